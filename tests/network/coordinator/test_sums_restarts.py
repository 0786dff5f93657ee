"""A coordinator of secure sums that restarts, at any point, has what it had: also after sums that were not opened."""

from __future__ import annotations

import random

import numpy as np
import pytest

from fedbandit.errors import FedbanditError
from fedbandit.machines.sums.client import SumClient
from fedbandit.machines.sums.masks import Identity
from fedbandit.machines.sums.messages import SumMessage, encode_step
from fedbandit.machines.sums.server import OpenedSum
from fedbandit.machines.sums.terms import NO_CERTIFICATE, Acquaintances
from fedbandit.messages import Collect, Contribution, Message, decode, encode
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.sums import SumDesk
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import MemoryStore
from fedbandit.network.sums import STEP_SECONDS, mask_terms
from tests.network.in_process import assert_same
from tests.network.relay.passed import terms

N, D = 4, 2
KEPT = ("name", "joined", "absent", "incarnation", "epoch", "nonce", "releases", "observations", "quarantined")


class Sums:
    """A federation, and clients that take part in its sums or are gone for a while. `step` lets one thing happen."""

    def __init__(self, seed: int, snapshot_every: int) -> None:
        self.random, self.rng, self.at = random.Random(seed), np.random.default_rng(seed), 0.0
        self.store, self.agreement, self.snapshot_every = MemoryStore(), terms(N), snapshot_every
        self.federation = self.restarted(self.store)
        self.desk = SumDesk(self.federation)
        self.clients = [DurableClient(MemoryStore(), self.agreement, i, iter(range(99 * i + 1, 9999)).__next__)
                        for i in range(N)]  # fmt: skip
        self.identities, self.known = [Identity.new() for _ in range(N)], [Acquaintances() for _ in range(N)]
        self.sessions: dict[int, SumClient] = {}
        self.to_send: dict[int, SumMessage] = {}
        self.gone: set[int] = set()
        self.opened = self.given_up = self.restarts = 0
        self.what = ""
        for i in range(N):
            self.federation.invite(self.name(i), 0.0)
            self.say(i, self.clients[i].greeting())

    def name(self, i: int) -> str:
        return f"client-{i}"

    def say(self, i: int, frame: bytes | None) -> None:
        if frame is not None:
            (answers,) = self.federation.receive([(self.name(i), frame)], self.at)
            assert not isinstance(answers, Refusal), answers
            self.deliver(answers)

    def deliver(self, messages: list[Message]) -> None:
        for message in messages:
            if message.member not in self.gone:
                self.clients[message.member].receive(decode(encode(message)))

    def step(self) -> None:
        """Users come, somebody is gone or back, time passes, a step of a sum is taken, or the coordinator restarts."""
        i, self.at = self.random.randrange(N), self.at + 0.2
        often = {"act": 12, "gone": 0.2, "back": 2, "late": 0.2, "sum": 60, "tick": 1, "restart": 0.2}
        self.what = self.random.choices(list(often), list(often.values()))[0]
        match self.what:
            case "act" if i not in self.gone:
                self.act(i)
            case "gone":
                self.gone.add(i)
                self.sessions.pop(i, None)
            case "back" if i in self.gone:
                self.gone.discard(i)
                self.say(i, self.clients[i].greeting())
            case "late":
                self.at += STEP_SECONDS + 1.0
                self.desk.look(self.at)
            case "tick":
                self.deliver(self.federation.tick(self.at))
                self.desk.look(self.at)
            case "sum" if i not in self.gone:
                self.take_part(i)
            case "restart":
                self.restarts += 1
                self.federation = self.restarted(self.store)
                self.desk = SumDesk(self.federation)
        self.tell()

    def act(self, i: int) -> None:
        choice = self.clients[i].select(self.rng.uniform(-0.5, 0.5, (3, D)))
        self.clients[i].observe(choice.number, float(self.rng.uniform(-1, 1)))
        for frame in self.clients[i].outgoing():
            self.say(i, frame.data)

    def take_part(self, i: int) -> None:
        """As a client's `SumTalk` does."""
        client = self.clients[i]
        call, client.called = client.called, None
        if call is not None:
            self.begin(i, call)
        if i not in self.sessions:
            return
        said = self.to_send.pop(i, None)
        try:
            answers = self.desk.exchange(self.name(i), b"" if said is None else encode_step(said), self.at)
            for answer in answers:
                for message in self.sessions[i].receive(answer):
                    self.to_send[i] = message
        except (FedbanditError, Refusal):
            self.sessions.pop(i, None)

    def begin(self, i: int, call: Collect) -> None:
        def contribution() -> Contribution:
            made = self.clients[i].contribute(call.epoch, call.included)
            if not isinstance(made, Contribution):
                raise FedbanditError("Nothing is left.")
            return made

        agreed = mask_terms(self.agreement.build(), self.agreement)
        self.sessions[i] = SumClient(
            agreed, i, call.epoch, self.identities[i], self.known[i], NO_CERTIFICATE, contribution
        )
        self.to_send[i] = self.sessions[i].begin()

    def tell(self) -> None:
        """What follows from a sum that is over, and what a restart at this point would find."""
        told, self.desk.told = self.desk.told, []
        self.deliver(told)
        pool = self.federation.machine.pool
        assert pool is not None
        self.given_up += sum(event.what == "a sum was not opened" for event in self.federation.events)
        self.federation.events.clear()
        self.opened = pool.total.epoch
        if self.what == "sum" and not told:
            return
        again = self.restarted(self.store.copy())
        assert_same(again.machine.state(), self.federation.machine.state())
        for one, other in zip(again.register.by_number, self.federation.register.by_number, strict=True):
            assert {k: getattr(one, k) for k in KEPT} == {k: getattr(other, k) for k in KEPT}

    def restarted(self, store: MemoryStore) -> Federation:
        return Federation("f", self.agreement, store, snapshot_every=self.snapshot_every)


@pytest.mark.parametrize("snapshot_every", [3, 2000])
@pytest.mark.parametrize("seed", range(2))
def test_a_restart_finds_what_there_was(seed: int, snapshot_every: int) -> None:
    sums = Sums(seed, snapshot_every)
    for _ in range(1500):
        sums.step()
    assert sums.restarts > 0
    assert sums.opened > 0
    assert sums.given_up > 0


def test_a_sum_that_takes_longer_than_patience_is_not_given_up_for_that() -> None:
    """A step waits for those who are late for 20 s, and there are five: nobody who is in it is absent meanwhile."""
    sums = Sums(0, 2000)
    machine = sums.federation.machine
    sums.gone = {3}
    while not machine.calls:
        sums.what, sums.at = "act", sums.at + 0.2
        sums.act(0)
    for _ in range(2 * sums.federation.patience):
        sums.deliver(sums.federation.tick(sums.at))
    assert list(machine.calls) == [1]
    assert [record.absent for record in sums.federation.register.by_number] == [False] * N


def test_failures_before_a_sum_was_opened_are_no_reason_to_ignore_more_requests_after_it() -> None:
    federation = Sums(0, 2000).federation
    pool, terms_of = federation.machine.pool, mask_terms(federation.system, federation.agreement)
    assert pool is not None
    words = np.zeros(terms_of.words, dtype=np.uint64)
    quiet = []
    for epoch in (1, 2, 3):
        federation.machine.collect(range(N))
        federation.give_up_sum("two clients are too few", 0.0)
        assert pool.unopened
        quiet.append(pool.quiet)
        if epoch == 2:
            federation.machine.collect(range(N))
            federation.open_sum(OpenedSum(3, words, dict.fromkeys(range(N), 1)), 0.0)
            assert pool.unopened == "", "the page says why the *last* one was not opened"
    assert quiet == [2 * pool.total.quorum, 4 * pool.total.quorum, 2 * pool.total.quorum]  # type: ignore[attr-defined]
