"""Attacks on secure sums by a coordinator: what it sees of one client, and what it can make a client tell.

| attack    | what must not be                                                                                     |
|-----------|------------------------------------------------------------------------------------------------------|
| bytes     | masked numbers that look like something: not uniform, or the same twice (χ², 10⁻⁹)                    |
| keys      | a key, or a secret's commitment, that is used in two sums                                             |
| few       | an answer to a roster or a list of fewer clients than the terms say                                   |
| forged    | an answer to a roster in which a key is not signed, or not that of first contact                      |
| two views | a second answer in one epoch, to another list: both kinds of shares, or two sums that differ by one   |
| excess    | noise that is told though the list of those in the sum leaves it no room                              |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from fedbandit.audit.report import Check
from fedbandit.errors import FedbanditError
from fedbandit.machines.sums.client import FRESH, SumClient
from fedbandit.machines.sums.masks import KEY, Identity
from fedbandit.machines.sums.messages import Step, SumMessage, pack_entries, pack_members, unpack_entries
from fedbandit.machines.sums.server import SumServer
from fedbandit.machines.sums.terms import NO_CERTIFICATE, Acquaintances, MaskTerms
from fedbandit.messages import Contribution
from fedbandit.privacy.calibration import special_functions
from fedbandit.privacy.sum_terms import SumTerms, taken_back

MOST = 8
"""Clients in the sums that are attacked."""
SUMS = 30

MakeClient = Callable[..., SumClient]
"""A client's half of a sum; tests plant faults here."""


class Crowd:
    """A few clients with the same numbers in every sum, and what a coordinator sees of them."""

    def __init__(self, sums: SumTerms, members: int, make: MakeClient) -> None:
        N = min(max(members, 4), MOST)
        self.terms = MaskTerms(b"audit", min(sums.words, 64), N, N - 1, 0, (N - 1, N))
        self.make = make
        self.identities = [Identity.new() for _ in range(N)]
        self.known = [Acquaintances() for _ in range(N)]

    def clients(self, epoch: int) -> list[SumClient]:
        """All of them, at the beginning of a sum."""
        words, excess = np.zeros(self.terms.words, np.uint64), np.ones((1, self.terms.words), np.uint64)
        return [
            self.make(
                self.terms, i, epoch, identity, self.known[i], NO_CERTIFICATE,
                lambda i=i: Contribution(i, epoch, 1, words, excess),
            )
            for i, identity in enumerate(self.identities)
        ]  # fmt: skip

    def run(self, clients: list[SumClient], stop: Step) -> tuple[list[SumMessage], dict[int, SumMessage]]:
        """Let a sum go on until the coordinator's messages of this step: all that it has seen, and these."""
        server = SumServer(self.terms, clients[0].epoch, range(len(clients)))
        seen = [client.begin() for client in clients]
        said = [answer for message in seen for answer in server.receive(message)]
        while said and said[0].step < stop:
            answers = [answer for message in said for answer in clients[message.member].receive(message)]
            seen += answers
            said = [message for answer in answers for message in server.receive(answer)]
        return seen, {message.member: message for message in said}


def mask_checks(sums: SumTerms, members: int, make: MakeClient = SumClient) -> Iterator[Check]:
    """All of them."""
    crowd = Crowd(sums, members, make)
    yield _bytes_check(crowd)
    yield _answers_check(crowd)
    yield _excess_check(crowd)


def _bytes_check(crowd: Crowd) -> Check:
    name = "sums, masks and keys"
    masked, fresh = list[bytes](), list[bytes]()
    for epoch in range(1, SUMS + 1):
        seen, _ = crowd.run(crowd.clients(epoch), Step.SURVIVORS)
        masked += [message.body[8:] for message in seen if message.step == Step.MASKED]
        keys = [message.body[:FRESH] for message in seen if message.step == Step.KEYS]
        fresh += [key[at : at + KEY] for key in keys for at in range(0, FRESH, KEY)]
    counts = np.bincount(np.frombuffer(b"".join(masked), np.uint8), minlength=256)
    expected = counts.sum() / 256
    chi = float(((counts - expected) ** 2).sum() / expected)
    if chi > 2 * float(special_functions().gammainccinv(255 / 2, 1e-9)):
        return Check(name, False, math.inf, f"what is seen of one client is not uniform: χ² = {chi:,.0f} of 255")
    pairs = np.array([np.frombuffer(body, "<u8") for body in masked])
    differences = len(np.unique(pairs, axis=0)) == len(pairs) and len(set(fresh)) == len(fresh)
    if not differences:
        return Check(name, False, math.inf, "a mask or a key is used in two sums: their difference is bare")
    return Check(name, True, 0.0, f"{counts.sum():,} bytes of {SUMS} sums are uniform, {len(fresh)} keys all different")


def _answers_check(crowd: Crowd) -> Check:
    """What a coordinator that does not follow the protocol gets out of client 0."""
    name, found, epoch, N = "sums, answers", list[str](), SUMS, crowd.terms.members

    def asked(stop: Step, body: Callable[[bytes], bytes], again: bool = False) -> bool:
        """Whether client 0 answers an altered message, or such a one after the right one."""
        nonlocal epoch
        epoch += 1
        clients = crowd.clients(epoch)
        _, said = crowd.run(clients, stop)
        if again:
            clients[0].receive(said[0])
        try:
            return bool(clients[0].receive(SumMessage(0, epoch, stop, body(said[0].body))))
        except FedbanditError:
            return False

    few = crowd.terms.quorum - 1

    def fewer(body: bytes) -> bytes:
        return pack_entries(dict(list(unpack_entries(body).items())[:few]))

    def forged(body: bytes) -> bytes:
        entries = unpack_entries(body)
        return pack_entries({**entries, 1: Identity.new().public + entries[1][KEY:]})

    def swapped(body: bytes) -> bytes:  # a client that nobody has met, under a known number
        entries = unpack_entries(body)
        stranger = crowd.make(crowd.terms, 1, epoch, Identity.new(), Acquaintances(), NO_CERTIFICATE, lambda: None)
        return pack_entries({**entries, 1: stranger.begin().body})

    for what, answered in (
        ("a roster of too few clients", asked(Step.ROSTER, fewer)),
        ("keys that are not signed", asked(Step.ROSTER, forged)),
        ("keys of a stranger", asked(Step.ROSTER, swapped)),
        ("a list of too few clients", asked(Step.SURVIVORS, lambda _: pack_members(range(few)))),
        ("a list without signatures", asked(Step.AGREED, lambda _: pack_entries({}))),
        ("two lists in one epoch", asked(Step.SURVIVORS, lambda _: pack_members(range(N - 1)), True)),
        ("a second question about shares", asked(Step.AGREED, lambda body: body, True)),
    ):
        found += [what] if answered else []
    if found:
        return Check(name, False, math.inf, f"a client answers {', '.join(found)}")
    return Check(name, True, 0.0, "no answer to rosters and lists that are short, forged, unsigned or the second ones")


def _excess_check(crowd: Crowd) -> Check:
    """What client 0 tells of its noise after lists of the fewest clients, and of all: nothing, or what is too much."""
    name, epoch = "sums, excess noise", SUMS + 100
    for members in (crowd.terms.quorum, crowd.terms.members):
        epoch += 1
        clients = crowd.clients(epoch)
        crowd.run(clients, Step.SURVIVORS)
        listed = pack_members(range(members))
        signed = [
            client.receive(SumMessage(client.member, epoch, Step.SURVIVORS, listed)) for client in clients[:members]
        ]
        signatures = pack_entries({answer.member: answer.body for answers in signed for answer in answers})
        (answer,) = clients[0].receive(SumMessage(0, epoch, Step.AGREED, signatures))
        told = np.frombuffer(answer.body, "<u8", crowd.terms.words)
        room = taken_back(crowd.terms.levels, members)  # every portion here is one
        if (told > room).any():
            return Check(name, False, math.inf, f"in a sum over {members} clients more noise is told than it can spare")
    return Check(name, True, 0.0, "what is told of the noise is what the list of those in the sum makes superfluous")
