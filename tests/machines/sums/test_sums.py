"""Secure sums: right to the bit or not at all, and attacks on what clients send and answer."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbandit.errors import FedbanditError
from fedbandit.machines.sums import client as client_module
from fedbandit.machines.sums import shamir
from fedbandit.machines.sums.client import SumClient
from fedbandit.machines.sums.masks import Identity, mask_pair, own_mask, stream
from fedbandit.machines.sums.messages import (
    Step,
    SumMessage,
    decode_step,
    encode_step,
    pack_entries,
    pack_members,
    unpack_entries,
)
from fedbandit.machines.sums.server import SumServer
from fedbandit.machines.sums.terms import NO_CERTIFICATE, Acquaintances, MaskTerms
from fedbandit.messages import Contribution
from fedbandit.network.certificates import AUTHORITY, certify, init_keys
from fedbandit.network.certified import read_authority

N, WORDS = 5, 4
TERMS = MaskTerms(b"federation", WORDS, N, quorum=4, colluding=1)
IDENTITIES = [Identity.new() for _ in range(N)]
EXCESS = np.random.default_rng(1).integers(0, 2**64, (N, 1, WORDS), dtype=np.uint64)
NUMBERS = np.random.default_rng(0).integers(0, 2**64, (N, WORDS), dtype=np.uint64)


def client(
    i: int,
    epoch: int = 1,
    *,
    words: np.ndarray | None = None,
    terms: MaskTerms = TERMS,
    known: Acquaintances | None = None,
    certificate: bytes = NO_CERTIFICATE,
    kind: type[SumClient] = SumClient,
) -> SumClient:
    numbers = NUMBERS[i] if words is None else words
    made = Contribution(i, epoch, i + 1, numbers, EXCESS[i])
    return kind(terms, i, epoch, IDENTITIES[i], known or Acquaintances(), certificate, lambda: made)


def talk(
    clients: list[SumClient], server: SumServer, lost: Callable[[SumMessage], bool] = lambda _: False
) -> list[SumMessage]:
    """Let them talk until nobody has more to say; all messages that arrived."""
    said, seen = [c.begin() for c in clients], list[SumMessage]()
    by_member = {c.member: c for c in clients}
    while True:
        answers = list[SumMessage]()
        for message in said:
            if not lost(message):
                seen.append(decode_step(encode_step(message)))
                answers += server.receive(seen[-1])
        answers = answers or server.go_on()
        said = []
        for message in answers:
            if not lost(message):
                seen.append(message)
                said += by_member[message.member].receive(message)
        if not said and (server.over or not answers):
            return seen


def test_a_sum_is_exact_to_the_bit() -> None:
    server = SumServer(TERMS, 1, range(N))
    talk([client(i) for i in range(N)], server)
    assert server.opened is not None, server.failed
    assert (server.opened.words == NUMBERS.sum(axis=0, dtype=np.uint64)).all()
    assert server.opened.counts == {i: i + 1 for i in range(N)}


@pytest.mark.parametrize("step", list(Step))
@pytest.mark.parametrize("who", range(N))
def test_one_that_drops_out_at_any_step_is_in_the_sum_or_not(step: Step, who: int) -> None:
    server = SumServer(TERMS, 1, range(N))
    talk([client(i) for i in range(N)], server, lambda m: m.member == who and m.step == step)
    assert server.opened is not None, server.failed
    assert (who in server.opened.counts) == (step > Step.MASKED)
    wanted = sum((NUMBERS[i] for i in server.opened.counts), start=np.zeros(WORDS, dtype=np.uint64))
    assert (server.opened.words == wanted).all()


@pytest.mark.parametrize("step", [step for step in Step if step % 2])
def test_too_few_open_nothing(step: Step) -> None:
    server = SumServer(TERMS, 1, range(N))
    talk([client(i) for i in range(N)], server, lambda m: m.member in {0, 1} and m.step == step)
    assert server.opened is None
    assert "clients answered step" in server.failed
    assert server.go_on() == []


@pytest.mark.parametrize("lost", [None, Step.MASKED, Step.UNMASK])
def test_noise_is_taken_back_if_more_than_the_quorum_are_in_the_sum(lost: Step | None) -> None:
    """Client 2 is in the sum, or not, or does not say what it takes back."""
    terms = replace(TERMS, levels=(4, 5))
    server = SumServer(terms, 1, range(N))
    talk([client(i, terms=terms) for i in range(N)], server, lambda m: m.member == 2 and m.step == lost)
    assert server.opened is not None, server.failed
    assert server.opened.returned == tuple(i for i in range(N) if i != 2 or lost is None)
    wanted = sum((NUMBERS[i] for i in server.opened.counts), start=np.zeros(WORDS, dtype=np.uint64))
    if lost != Step.MASKED:
        wanted = wanted - sum((EXCESS[i, 0] for i in server.opened.returned), start=np.zeros(WORDS, dtype=np.uint64))
    assert (server.opened.words == wanted).all()


class Older(SumClient):
    """Speaks format 1 of the last step."""

    def receive(self, message: SumMessage) -> list[SumMessage]:
        said = super().receive(message)
        return [replace(m, body=m.body[8 * WORDS :], format=1) if m.step == Step.UNMASK else m for m in said]


def test_clients_that_take_nothing_back_are_understood() -> None:
    server = SumServer(TERMS, 1, range(N))
    talk([client(i, kind=Older) for i in range(N)], server)
    assert server.opened is not None, server.failed
    assert server.opened.returned == ()
    assert (server.opened.words == NUMBERS.sum(axis=0, dtype=np.uint64)).all()
    with pytest.raises(FedbanditError, match="format 2, expected b'FS' format 1"):
        decode_step(encode_step(SumMessage(0, 1, Step.AGREE, b"", 2)))


def keep(caught: list[SumMessage], message: SumMessage) -> bool:
    """Lose a message, but not for us."""
    caught.append(message)
    return True


# What a coordinator sees


def masked_bytes(words: np.ndarray, sums: int) -> np.ndarray:
    """All bytes that a coordinator sees of client 0's numbers, in so many sums."""
    seen = b""
    for epoch in range(1, sums + 1):
        server = SumServer(TERMS, epoch, range(N))
        messages = talk([client(i, epoch, words=words) for i in range(N)], server)
        seen += next(m.body[8:] for m in messages if m.step == Step.MASKED and m.member == 0)
    return np.frombuffer(seen, dtype=np.uint8)


@pytest.mark.parametrize("value", [0, 1, 2**63])
def test_what_a_coordinator_sees_of_one_client_is_uniform_whatever_its_data(value: int) -> None:
    seen = masked_bytes(np.full(WORDS, value, dtype=np.uint64), 160)
    expected = seen.size / 256
    chi = float(((np.bincount(seen, minlength=256) - expected) ** 2 / expected).sum())
    assert chi < 255 + 4.5 * np.sqrt(2 * 255)  # chance 10⁻⁵


def test_unmasked_numbers_fail_that_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "own_mask", lambda _, n: np.zeros(n, dtype=np.uint64))
    monkeypatch.setattr(client_module, "stream", lambda _, n: np.zeros(n, dtype=np.uint64))
    seen = masked_bytes(np.zeros(WORDS, dtype=np.uint64), 4)
    assert not seen.any()


def difference(monkeypatch: pytest.MonkeyPatch | None) -> np.ndarray:
    """The attack on reused masks: subtract what one client sends in two epochs."""
    if monkeypatch is not None:  # planted: seeds that repeat
        counter = itertools.cycle(range(1, 2 * N + 1))
        monkeypatch.setattr(client_module, "new_seed", lambda: next(counter))
        monkeypatch.setattr(client_module, "mask_purpose", lambda *_: b"mask")
    sent = []
    for epoch in (1, 2):
        messages = talk([client(i, epoch) for i in range(N)], SumServer(TERMS, epoch, range(N)))
        body = next(m.body[8:] for m in messages if m.step == Step.MASKED and m.member == 0)
        sent.append(np.frombuffer(body, dtype="<u8"))
    return sent[1] - sent[0]


def test_masks_are_never_used_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    assert difference(None).all()
    assert not difference(monkeypatch).any(), "planted: with masks used twice the difference of data is seen"


# A coordinator that does not follow the protocol


def until(step: Step, clients: list[SumClient], epoch: int = 1) -> tuple[SumServer, list[SumMessage]]:
    """The sum up to the coordinator's messages of this step, which have not arrived."""
    server = SumServer(TERMS, epoch, range(N))
    messages = talk(clients, server, lambda m: m.step >= step)
    assert max(m.step for m in messages) == step - 1
    return server, messages


class Generous(SumClient):
    """Planted: answers whatever it is asked, as often as it is asked."""

    def receive(self, message: SumMessage) -> list[SumMessage]:
        self._awaited = message.step
        return super().receive(message)


def split_view(kind: type[SumClient]) -> bool:
    """The attack that double masks are about: make clients tell both kinds of shares about client 0.

    The coordinator, with one colluding client, says to everybody that 0 is in the sum, and afterwards that it is not.
    True if that takes the masks off what client 0 sent.
    """
    clients = [client(i, kind=kind) for i in range(N)]
    _, messages = until(Step.SURVIVORS, clients)
    told: dict[bool, dict[int, dict[int, bytes]]] = {True: {}, False: {}}
    for view in (True, False):
        survivors = [i for i in range(N) if view or i != 0]
        signatures: dict[int, bytes] = {}
        for step, bodies in ((Step.SURVIVORS, None), (Step.AGREED, signatures)):
            for i in survivors:
                body = pack_members(survivors) if bodies is None else pack_entries(signatures)
                try:
                    answers = clients[i].receive(SumMessage(i, 1, step, body))
                except FedbanditError:
                    continue
                for answer in answers:
                    if answer.step == Step.AGREE:
                        signatures[i] = answer.body
                    elif answer.step == Step.UNMASK:
                        told[view][i] = unpack_entries(answer.body[8 * WORDS :])
    t = TERMS.threshold
    if len(told[True]) < t or len(told[False]) < t:
        return False
    own, mask = (
        shamir.combine({v + 1: int.from_bytes(shares[0], "little") for v, shares in told[view].items()}, t)
        for view in (True, False)
    )
    keys = {m.member: m.body for m in messages if m.step == Step.KEYS}
    sent = next(np.frombuffer(m.body[8:], dtype="<u8") for m in messages if m.step == Step.MASKED and m.member == 0)
    numbers: Any = sent - own_mask(own, WORDS)
    for v in range(1, N):
        key = mask_pair(mask).agree(keys[v][32:64], client_module.mask_purpose(TERMS, 1))
        numbers = numbers - stream(key, WORDS)
    return bool((numbers == NUMBERS[0]).all())


def test_nobody_tells_both_kinds_of_shares_about_one_client() -> None:
    assert not split_view(SumClient)
    assert split_view(Generous), "planted: with clients that answer twice the attack reads a client's numbers"


def test_two_lists_of_survivors_do_not_both_get_enough_signatures() -> None:
    """Told different lists, clients do not unmask: no two sums over one epoch that differ by one client."""
    clients = [client(i) for i in range(N)]
    until(Step.SURVIVORS, clients)
    lists = [[0, 1, 2, 3], [0, 1, 2, 3, 4]]
    signed = [dict[int, bytes](), dict[int, bytes]()]
    for i in range(N):
        view = i % 2 if i < 4 else 1
        for answer in clients[i].receive(SumMessage(i, 1, Step.SURVIVORS, pack_members(lists[view]))):
            signed[view][i] = answer.body
    for i in range(N):
        view = i % 2 if i < 4 else 1
        with pytest.raises(FedbanditError, match="the number of signatures under the list of epoch 1 is"):
            clients[i].receive(SumMessage(i, 1, Step.AGREED, pack_entries({**signed[0], **signed[1]})))


def refused(step: Step, alter: Callable[[dict[int, bytes]], dict[int, bytes]], sentence: str, **keywords: Any) -> None:
    """A client refuses an altered message of the coordinator, and says nothing more in this epoch."""
    known = [Acquaintances() for _ in range(N)]
    clients = [client(i, known=known[i], **keywords) for i in range(N)]
    server = SumServer(TERMS, 1, range(N))
    caught = list[SumMessage]()
    talk(clients, server, lambda m: m.step == step and keep(caught, m))
    honest = next(m for m in caught if m.member == 0)
    body = pack_entries(alter(unpack_entries(honest.body)))
    with pytest.raises(FedbanditError, match=sentence):
        clients[0].receive(SumMessage(0, 1, step, body))
    assert clients[0].problem
    assert clients[0].receive(honest) == []


def test_a_crowd_that_is_invented_is_noticed(tmp_path: Path) -> None:
    init_keys(tmp_path, ["localhost"])
    authority = read_authority(tmp_path / AUTHORITY, "shops")

    def invent(keys: dict[int, bytes]) -> dict[int, bytes]:
        forged, forger = SumClient.__new__(SumClient), Identity.new()
        forged.__init__(TERMS, 4, 1, forger, Acquaintances(), NO_CERTIFICATE, lambda: (0, NUMBERS[0]))  # type: ignore[misc]
        return {**keys, 4: forged.begin().body}

    known = Acquaintances(authority)
    certificates = [certify(tmp_path, f"c{i}", "shops", IDENTITIES[i].public).signature for i in range(N)]
    clients = [client(i, known=known, certificate=certificates[i]) for i in range(N)]
    caught = list[SumMessage]()
    server = SumServer(TERMS, 1, range(N), known)
    talk(clients, server, lambda m: m.step == Step.ROSTER and keep(caught, m))
    with pytest.raises(FedbanditError, match="client 4 is not certified"):
        clients[0].receive(SumMessage(0, 1, Step.ROSTER, pack_entries(invent(unpack_entries(caught[0].body)))))
    assert clients[1].receive(caught[1])[0].step == Step.SHARES


def test_keys_are_pinned_at_first_contact() -> None:
    known = Acquaintances()
    assert known.fingerprints() == {}
    talk([client(i, known=known if i == 0 else None) for i in range(N)], SumServer(TERMS, 1, range(N)))
    assert len(known.fingerprints()) == N
    before = IDENTITIES[3]
    IDENTITIES[3] = Identity.new()
    try:
        with pytest.raises(FedbanditError, match="client 3 is another one than at first contact"):
            talk([client(i, 2, known=known if i == 0 else None) for i in range(N)], SumServer(TERMS, 2, range(N)))
    finally:
        IDENTITIES[3] = before


def test_keys_that_the_others_would_refuse_keep_nobody_else_from_a_sum(tmp_path: Path) -> None:
    """Unsigned, a stranger's, a copy of another's, not certified: refused by the coordinator, and the sum is opened."""
    init_keys(tmp_path, ["localhost"])
    authority = read_authority(tmp_path / AUTHORITY, "shops")
    signed = [certify(tmp_path, f"c{i}", "shops", IDENTITIES[i].public).signature for i in range(N)]
    elsewhere = certify(tmp_path, "c0", "hospitals", IDENTITIES[0].public).signature
    known = Acquaintances()
    talk([client(i, known=Acquaintances()) for i in range(N)], SumServer(TERMS, 1, range(N), known))
    stranger = SumClient(TERMS, 0, 2, Identity.new(), Acquaintances(), NO_CERTIFICATE, lambda: None)  # type: ignore[arg-type, return-value]
    copied = SumClient(TERMS, 0, 2, IDENTITIES[1], Acquaintances(), signed[1], lambda: None)  # type: ignore[arg-type, return-value]
    unsigned = client(0, 2, certificate=signed[0]).begin()
    unsigned = replace(unsigned, body=flip(unsigned.body, 0))
    for acquaintances, wrong, sentence in (
        (known, stranger.begin(), "another one than at first contact"),
        (Acquaintances(), unsigned, "not signed by it"),
        (Acquaintances(authority), copied.begin(), "has the signing key of client 1, as a copy"),
        (Acquaintances(authority), client(0, 2).begin(), "not certified by the federation's authority"),
        (Acquaintances(authority), client(0, 2, certificate=elsewhere).begin(), "not certified by the federation's"),
    ):
        server = SumServer(TERMS, 2, range(N), acquaintances)
        clients = [client(i, 2, known=Acquaintances(acquaintances.authority), certificate=signed[i]) for i in range(N)]
        server.receive(clients[1].begin())
        with pytest.raises(FedbanditError, match=sentence):
            server.receive(wrong)
        talk(clients, server, lambda m: m.step == Step.KEYS and m.member == 0)
        assert server.opened is not None
        assert set(server.opened.counts) == {1, 2, 3, 4}


def flip(body: bytes, at: int) -> bytes:
    return body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]


@pytest.mark.parametrize(
    ("step", "alter", "sentence"),
    [
        (Step.ROSTER, lambda e: {**e, 2: flip(e[2], 0)}, "client 2 in epoch 1 are not signed by it"),
        (Step.ROSTER, lambda e: {i: e[i] for i in (0, 1, 2)}, "is 3, but must be 4 or more"),
        (Step.ROSTER, lambda e: {i: e[i] for i in (1, 2, 3, 4)}, "without itself"),
        (Step.DELIVERY, lambda e: {**e, 2: flip(e[2], 3)}, "does not decrypt"),
        (Step.DELIVERY, lambda e: {**e, 2: e[1], 1: e[2]}, "does not decrypt"),
        (Step.DELIVERY, lambda e: {1: e[1]}, "is 2, but must be 4 or more"),
        (Step.AGREED, lambda e: {i: e[i] for i in (0, 1)}, "is 2, but must be 4 or more"),
        (Step.AGREED, lambda e: {i: flip(e[i], 5) for i in e}, "is 0, but must be 4 or more"),
    ],
)
def test_altered_messages_are_refused(step: Step, alter: Any, sentence: str) -> None:
    refused(step, alter, sentence)


def test_a_client_that_answers_twice_with_different_bytes_is_refused_and_nothing_changes() -> None:
    server = SumServer(TERMS, 1, range(N))
    clients = [client(i) for i in range(N)]
    first = clients[0].begin()
    server.receive(first)
    assert server.receive(first) == []
    with pytest.raises(FedbanditError, match="answered step KEYS of epoch 1 twice, differently"):
        server.receive(client(0).begin())
    with pytest.raises(FedbanditError, match="speaks of the sum of epoch 2"):
        server.receive(client(1, epoch=2).begin())
    with pytest.raises(FedbanditError, match="which is over"):
        server.receive(SumMessage(1, 1, Step.MASKED, b""))
    with pytest.raises(FedbanditError, match="does not fit this sum"):
        server.receive(SumMessage(1, 1, Step.KEYS, b"short"))
    assert server.awaited == {1, 2, 3, 4}


def test_shares_that_do_not_fit_open_nothing() -> None:
    server = SumServer(TERMS, 1, range(N))
    clients = [client(i) for i in range(N)]
    caught = list[SumMessage]()
    talk(clients, server, lambda m: m.step == Step.UNMASK and keep(caught, m))
    assert server.failed  # nobody's shares came
    again = SumServer(TERMS, 1, range(N))
    again._answers, again.step, again.awaited = server._answers, Step.UNMASK, set(range(N))
    for message in caught:
        entries = unpack_entries(message.body[8 * WORDS :])
        entries[2] = flip(entries[2], 16)
        again.receive(SumMessage(message.member, 1, Step.UNMASK, pack_entries(entries)))
    assert again.opened is None
    assert "do not fit" in again.failed


def test_terms_that_hide_nobody_are_refused() -> None:
    for members, quorum, colluding in ((2, 2, 0), (5, 6, 0), (5, 2, 0), (6, 4, 2)):
        with pytest.raises(FedbanditError):
            MaskTerms(b"f", 1, members, quorum, colluding)


def test_shamir() -> None:
    assert pow(2, shamir.PRIME - 1, shamir.PRIME) == pow(3, shamir.PRIME - 1, shamir.PRIME) == 1
    secret, who = 2**128 - 1, [1, 2, 5, 9, 11]
    shares = shamir.split(secret, 3, who)
    for some in itertools.combinations(who, 3):
        assert shamir.combine({x: shares[x] for x in some}, 3) == secret
    with pytest.raises(FedbanditError, match="2 shares of a secret, but 3"):
        shamir.combine({x: shares[x] for x in who[:2]}, 3)
    # Two of three shares fit every secret: with any value of the third there is one.
    assert len({shamir.combine({1: shares[1], 2: shares[2], 5: guess}, 3) for guess in range(50)}) == 50
