"""Coordinators against Async-LinUCB's Alg. 1 and 4 as printed, and what they do when messages get lost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit.errors import FedbanditError
from fedbandit.messages import Collect, Download, Join, Message, Receipt, Request, Upload
from fedbandit.protocols import (
    Coordinator,
    CountTriggered,
    EventTriggered,
    MessageProtocol,
    Scheduled,
    ServerQueue,
    Synchronous,
)
from fedbandit.protocols.trigger import NOTHING_COUNTED
from fedbandit.sharing import FoundGroups, Groups, Members, Noise, Others, Sharing
from fedbandit.state import State, pack, unpack
from fedbandit.sums import Slack, Sums, zero_sums
from fedbandit.types import Array, Ints
from fedbandit.world import World

N, DIM, RIDGE, TIE = 5, 2, 0.5, 1e-9
WORLD = World(n_clients=N, dim=DIM, horizon=100)
EVERYONE = np.zeros(1, dtype=np.int64)


def logdet(V: Array) -> float:
    return float(np.linalg.slogdet(V / RIDGE + np.eye(DIM))[1])


def data(rng: np.random.Generator, n: int) -> Sums:
    X, y = rng.standard_normal((n, DIM)), rng.standard_normal(n)
    return Sums(X.T @ X, X.T @ y, n)


def plus(a: Sums, b: Sums) -> Sums:
    return Sums(a.V + b.V, a.b + b.b, a.n + b.n)


def coordinator_of(
    protocol: MessageProtocol, sharing: Sharing | Ints = EVERYONE, noise: Noise | None = None
) -> Coordinator:
    shared = Groups(sharing, N) if isinstance(sharing, np.ndarray) else sharing
    machine = protocol.told(WORLD).coordinator(shared, WORLD, DIM, RIDGE, noise)
    assert machine is not None
    return machine


def restarted(machine: Coordinator, fresh: Coordinator) -> Coordinator:
    """Another one of the same system that goes on from the stored state."""
    fresh.restore(unpack("coordinator", pack("coordinator", machine.state())))
    return fresh


def downloads(messages: Sequence[Message]) -> dict[int, Download]:
    return {message.member: message for message in messages if isinstance(message, Download)}


class Star:
    """Alg. 1 with a download buffer for each client, which says what it lacks; and what each client has."""

    def __init__(self, protocol: EventTriggered | CountTriggered, group_of: list[int], factors: list[float]) -> None:
        self.counting, self.warm = protocol.counting, protocol.warm_join
        self.group_of, self.factors = group_of, factors
        self.server = {g: zero_sums(DIM) for g in group_of}
        self.has: dict[int, Sums] = {}
        self.lacks: dict[int, Sums] = {}

    def measure(self, sums: Sums) -> float:
        if not self.counting:
            return logdet(sums.V)
        return math.log(sums.n) if sums.n > 0 else NOTHING_COUNTED

    def download(self, j: int) -> None:
        self.has[j], self.lacks[j] = plus(self.has[j], self.lacks[j]), zero_sums(DIM)

    def join(self, j: int) -> list[int]:
        self.has[j], self.lacks[j] = zero_sums(DIM), self.server[self.group_of[j]]
        if not self.warm or self.lacks[j].n == 0:
            return []
        self.download(j)
        return [j]

    def upload(self, i: int, sums: Sums) -> float:
        """Lines 4–6; what client i then knows."""
        g = self.group_of[i]
        self.server[g], self.has[i] = plus(self.server[g], sums), plus(self.has[i], sums)
        for j in self.has:
            if self.group_of[j] == g and j != i:
                self.lacks[j] = plus(self.lacks[j], sums)
        return self.measure(self.has[i])

    def answer(self, g: int) -> list[int]:
        """Lines 7–10: who is sent what it lacks."""
        group = [j for j in self.has if self.group_of[j] == g]
        everything = self.measure(self.server[g])
        stale = [j for j in group if everything - self.measure(self.has[j]) > math.log(self.factors[j]) + TIE]
        for j in stale:
            self.download(j)
        return sorted(stale)


FACTORS = st.one_of(
    st.sampled_from([1.0, 1.5, 2.0, 5.0, math.inf]).map(lambda factor: [factor] * N),
    st.lists(st.sampled_from([1.0, 1.2, 2.0, 4.0, math.inf]), min_size=N, max_size=N),
)


@given(
    protocol=st.sampled_from([EventTriggered, CountTriggered]),
    warm=st.booleans(),
    factors=FACTORS,
    group_of=st.lists(st.integers(0, 1), min_size=N, max_size=N).map(lambda g: np.unique(g, return_inverse=True)[1]),
    acts=st.lists(st.tuples(st.integers(0, N - 1), st.integers(0, 3), st.booleans()), max_size=25),
    seed=st.integers(0, 2**16),
)
def test_a_star_is_algorithm_1(
    protocol: Any, warm: bool, factors: list[float], group_of: Ints, acts: list[tuple[int, int, bool]], seed: int
) -> None:
    """The same members are sent the same sums, whatever is repeated and however often the machine is restarted."""
    rng = np.random.default_rng(seed)
    made = protocol(2.0, factors, warm)
    machine, oracle = coordinator_of(made, group_of), Star(made, group_of.tolist(), factors)
    sequence, version = dict.fromkeys(range(N), 0), dict.fromkeys(range(N), 0)
    for i, n, restart in acts:
        if i not in oracle.has:
            assert sorted(downloads(machine.receive(Join(i)))) == oracle.join(i)
        sums = data(rng, n)
        sequence[i] += 1
        upload = Upload(i, sequence[i], sums, oracle.upload(i, sums))
        sent = downloads(machine.receive(upload))
        assert sorted(sent) == oracle.answer(int(group_of[i]))
        for j, message in sent.items():
            np.testing.assert_allclose(message.sums.V, oracle.has[j].V, atol=1e-9)
            np.testing.assert_allclose(message.sums.b, oracle.has[j].b, atol=1e-9)
            assert (message.sums.n, message.acknowledged) == (oracle.has[j].n, sequence[j])
            assert message.version > version[j]
            version[j] = message.version
        assert machine.receive(upload) == [Receipt(i, sequence[i])]
        if restart:
            machine = restarted(machine, coordinator_of(made, group_of))
    total = machine.gathered()
    np.testing.assert_allclose(total.V, sum(sums.V for sums in oracle.server.values()), atol=1e-9)


@given(
    group_of=st.lists(st.integers(0, 1), min_size=N, max_size=N).map(lambda g: np.unique(g, return_inverse=True)[1]),
    acts=st.lists(st.tuples(st.integers(0, N - 1), st.integers(0, 3), st.booleans()), max_size=40),
    seed=st.integers(0, 2**16),
)
def test_a_synchronous_group_is_algorithm_4(group_of: Ints, acts: list[tuple[int, int, bool]], seed: int) -> None:
    """Whoever is idle asks, whoever is asked answers; groups do not wait for one another."""
    rng = np.random.default_rng(seed)
    made = Synchronous(threshold=1.0)
    machine = coordinator_of(made, group_of)
    total = {int(g): zero_sums(DIM) for g in group_of}
    sequence, asked = dict.fromkeys(range(N), 0), set[int]()
    for i in range(N):
        assert machine.receive(Join(i)) == []
    for i, n, restart in acts:
        group = np.flatnonzero(group_of == group_of[i]).tolist()
        if asked.isdisjoint(group):
            called = machine.receive(Request(i))
            assert [message.member for message in called if isinstance(message, Collect)] == group
            asked.update(group)
        elif i not in asked:
            assert machine.receive(Request(i)) == []
        else:
            sums, g = data(rng, n), int(group_of[i])
            total[g] = plus(total[g], sums)
            sequence[i] += 1
            asked.discard(i)
            sent = downloads(machine.receive(Upload(i, sequence[i], sums, 0.0)))
            assert sorted(sent) == (group if asked.isdisjoint(group) else [])
            for j, message in sent.items():
                np.testing.assert_allclose(message.sums.V, total[g].V, atol=1e-9)
                np.testing.assert_allclose(message.sums.b, total[g].b, atol=1e-9)
                assert (message.sums.n, message.acknowledged) == (total[g].n, sequence[j])
                assert message.sums is next(iter(sent.values())).sums, "one inverse serves all"
        assert machine.awaits() == sorted(asked)
        if restart:
            machine = restarted(machine, coordinator_of(made, group_of))


def test_a_synchronisation_is_one_of_everybody_and_starts_nobody_before_it_joins() -> None:
    """Alg. 4: all N upload and download; whoever has not joined is sent nothing, and starts so (lines 5–6)."""
    rng = np.random.default_rng(0)
    for warm in (False, True):
        machine, sums = coordinator_of(Synchronous(threshold=1.0, warm_join=warm)), data(rng, 2)
        machine.receive(Join(0))
        machine.receive(Request(0))
        for i in range(N):
            sent = downloads(machine.receive(Upload(i, 1, sums if i == 0 else zero_sums(DIM), 0.0)))
        assert sorted(sent) == list(range(N))
        assert [message.sums.n for _, message in sorted(sent.items())] == [2, *[2 if warm else 0] * (N - 1)]
        late = machine.receive(Join(1, 0))  # a client that has not got what was sent to it, as on a network
        assert [message.sums.n for message in downloads(late).values()] == ([2] if warm else [])


class Pairs(FoundGroups):
    """Everybody alone, then neighbours in pairs: found after three rounds, and never again."""

    exploring = True

    def next_wake(self, done: int) -> int:
        return 3 if done < 3 else 2**62

    def find(self, members: Members, done: int, noise: Noise | None) -> list[list[int]]:  # noqa: ARG002
        self.exploring = False
        return [[0, 1], [2, 3], [4]]


class Overlapping(Pairs):
    """Client 2 is in both groups, and is sent the sum of the second."""

    disjoint = False

    def alike(self, noise: Noise | None) -> bool:  # noqa: ARG002
        return False

    def find(self, members: Members, done: int, noise: Noise | None) -> list[list[int]]:
        super().find(members, done, noise)
        return [[0, 1, 2], [2, 3, 4]]

    def affected(self, member: int) -> Sequence[int]:
        return [j for j in range(N) if member in self._home[j]]


PROTOCOLS: dict[str, MessageProtocol] = {
    "event": EventTriggered(2.0, 1.5),
    "count": CountTriggered(2.0, 1.5),
    "synchronous": Synchronous(threshold=1.0),
    "queue": ServerQueue(threshold=1.0),
    "reclustering": ServerQueue(threshold=1.0, recluster=True, order="priority"),
    "scheduled": Scheduled(growth=1.5),
}


@pytest.mark.parametrize("sharing", [Pairs, Overlapping])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_restart_at_any_point_changes_nothing(name: str, sharing: type[Pairs]) -> None:
    """Two machines hear the same; one of them is stored and restored after each message."""
    rng = np.random.default_rng(3)
    protocol = PROTOCOLS[name]
    one = coordinator_of(protocol, sharing(N))
    other = coordinator_of(protocol, sharing(N))
    sequence, epoch, sent = [0] * N, [0] * N, 0
    waiting: list[int] = []

    def same(what: str, argument: Any) -> None:
        nonlocal other, sent
        said = getattr(one, what)(argument)
        again = getattr(other, what)(argument)
        assert [repr(message) for message in said] == [repr(message) for message in again]
        for message in said:
            if isinstance(message, Collect) and message.epoch > epoch[message.member]:
                epoch[message.member] = message.epoch
                waiting.append(message.member)
        sent += len(downloads(said))
        other = restarted(other, coordinator_of(protocol, sharing(N)))

    for i in range(N):
        same("receive", Join(i))
    for done in range(1, 30):
        for i in rng.permutation(N)[:2].tolist():
            if protocol.says == "request":
                same("receive", Request(i, float(5 * rng.random())))
            elif protocol.reads != "nothing":
                waiting.append(i)
        if one.awaits() and rng.random() < 0.2:
            same("excuse", one.awaits()[:2])
        while waiting:
            i = waiting.pop(int(rng.integers(len(waiting))))
            sequence[i] += 1
            same("receive", Upload(i, sequence[i], data(rng, int(rng.integers(3))), 0.1 * done))
        if one.next_wake(done - 1) == done:
            same("end_round", done)
    assert sent > 5
    assert one.clocked
    assert not one.exploring


class Lifting:
    """Noise that is made usable by adding I for each release, and is 10 in b for each of those."""

    weighed = with_own = False

    def variance(self, member: int, releases: int) -> float:  # noqa: ARG002
        return float(releases)

    def slack_of(self, variance: float) -> Slack:
        return Slack(noise=variance)

    def repair(self, V: Array, releases: Any, ridge: float) -> tuple[Array, Slack]:  # noqa: ARG002
        count = sum(releases.values())
        return V + count * np.eye(DIM), Slack(offset=1.0 * len(releases), noise=10.0 * count)

    def deviations(self, releases: Ints) -> Array:
        return releases.astype(np.float64)


@pytest.mark.parametrize("sharing", [EVERYONE, Pairs(N)])
def test_noisy_sums_are_made_usable_for_downloads_and_kept_as_they_came(sharing: Ints | Sharing) -> None:
    machine = coordinator_of(EventTriggered(1.0, 1.0), sharing, Lifting())
    if isinstance(sharing, Pairs):
        sharing.regroup(machine.members, 3)
    for i in range(3):
        machine.receive(Join(i))
    noisy = Sums(-np.eye(DIM), np.ones(DIM), 4)
    machine.receive(Upload(0, 1, noisy, 0.0))
    machine.receive(Upload(0, 2, zero_sums(DIM), 0.0))  # nothing was released by this
    sent = downloads(machine.receive(Upload(1, 1, noisy, 0.0)))
    np.testing.assert_allclose(sent[0].sums.V, 0 * np.eye(DIM))
    assert (sent[0].slack, sent[0].sums.n) == (Slack(offset=2.0, noise=20.0), 8)
    np.testing.assert_allclose(machine.gathered().V, -2 * np.eye(DIM))


def test_members_of_a_group_are_one_slot_and_others_one_each() -> None:
    assert coordinator_of(EventTriggered()).members.V.shape == (1, DIM, DIM)
    assert coordinator_of(EventTriggered(), np.array([0, 1, 0, 1, 1])).members.V.shape == (2, DIM, DIM)
    assert coordinator_of(EventTriggered(), Others(EVERYONE, N)).members.V.shape == (N, DIM, DIM)


def test_a_member_that_weighs_noise_is_sent_the_others_data() -> None:
    machine = coordinator_of(CountTriggered(1.0, 1.0, warm_join=True), Others(EVERYONE, N), Lifting())
    rng = np.random.default_rng(0)
    first, second = data(rng, 2), data(rng, 3)
    assert machine.receive(Join(0)) == machine.receive(Join(1)) == []
    sent = downloads(machine.receive(Upload(0, 1, first, math.log(2))))
    assert sorted(sent) == [1]
    assert not sent[1].own
    sent = downloads(machine.receive(Upload(1, 1, second, math.log(5))))
    assert sorted(sent) == [0]
    np.testing.assert_allclose(sent[0].sums.V, second.V)
    assert sent[0].slack == Slack(noise=1.0)
    (late,) = downloads(machine.receive(Join(2))).values()
    assert late.sums.n == 5


# ------------------------------------------------------------------------------------------ messages that get lost


def called(members: Sequence[int] = range(N)) -> Coordinator:
    """A synchronous coordinator whose members have joined, and have been called by the first."""
    machine = coordinator_of(Synchronous(threshold=1.0))
    for i in members:
        machine.receive(Join(i))
    machine.receive(Request(0))
    return machine


def test_a_member_that_joins_again_is_called_again_while_its_answer_is_awaited() -> None:
    machine = called()
    assert machine.receive(Join(3)) == [Collect(3, 1)]
    machine.receive(Upload(3, 1, zero_sums(DIM), 0.0))
    assert machine.receive(Join(3)) == []


def test_an_excused_member_owes_its_answer_and_is_sent_what_it_missed() -> None:
    machine, rng = called(), np.random.default_rng(0)
    for i in range(N - 1):
        machine.receive(Upload(i, 1, data(rng, 1), 0.0))
    sent = machine.excuse([N - 1])
    assert sorted(downloads(sent)) == list(range(N))
    assert machine.awaits() == []
    assert machine.excuse([N - 1]) == []
    again = machine.receive(Join(N - 1))
    assert [type(message) for message in again] == [Collect, Download]
    assert machine.receive(Upload(N - 1, 1, data(rng, 7), 0.0)) == [Receipt(N - 1, 1)]
    assert machine.gathered().n == N - 1 + 7
    assert machine.receive(Upload(N - 1, 2, data(rng, 1), 0.0)) == [Receipt(N - 1, 2)], "of a call that was forgotten"
    assert machine.gathered().n == N - 1 + 8


def test_everybody_may_be_excused() -> None:
    machine = called()
    assert sorted(downloads(machine.excuse(range(N)))) == list(range(N))


def test_a_client_that_lost_a_download_is_sent_all_there_is_as_a_new_version() -> None:
    machine, rng = coordinator_of(EventTriggered(1.0, 1.0)), np.random.default_rng(0)
    for i in range(2):
        machine.receive(Join(i))
    lost = downloads(machine.receive(Upload(0, 1, data(rng, 2), 0.0)))[1]
    (again,) = machine.receive(Join(1, 0))
    assert isinstance(again, Download)
    assert again.version > lost.version
    assert again.sums.n == 2
    assert machine.receive(Join(1, again.version)) == []
    assert 1 not in downloads(machine.receive(Upload(0, 2, zero_sums(DIM), logdet(again.sums.V))))


def test_a_client_that_starts_over_is_sent_all_there_is_and_numbers_from_1() -> None:
    machine, rng = coordinator_of(EventTriggered(1.0, math.inf)), np.random.default_rng(0)
    machine.receive(Join(0))
    machine.start_over(0)
    assert machine.receive(Join(0)) == [], "there is nothing yet"
    for sequence in (1, 2):
        machine.receive(Upload(0, sequence, data(rng, 1), 0.0))
    machine.start_over(0)
    (download,) = machine.receive(Join(0))
    assert isinstance(download, Download)
    assert (download.sums.n, download.acknowledged) == (2, 0)
    assert machine.receive(Upload(0, 1, data(rng, 1), 0.0)) == [Receipt(0, 1)]


def test_a_client_that_starts_over_during_a_call_is_called_once() -> None:
    """It answers the call under way and owes nothing more; between calls it owes an answer, to hear of them."""
    machine, rng = called(), np.random.default_rng(0)
    machine.start_over(1)
    assert machine.receive(Join(1)) == [Collect(1, 1)]
    for i in range(N):
        machine.receive(Upload(i, 1, data(rng, 1), 0.0))
    assert (machine.awaits(), machine.owed) == ([], {})
    machine.start_over(1)
    assert [type(message) for message in machine.receive(Join(1))] == [Collect, Download]
    assert machine.receive(Upload(1, 1, zero_sums(DIM), 0.0)) == [Receipt(1, 1)]
    assert machine.owed == {}


def test_a_coordinator_may_begin_with_what_was_released_elsewhere() -> None:
    """FCLUB, Alg. 2: a new clustering; −1 is nobody."""
    rng = np.random.default_rng(0)
    first, second, third = (data(rng, n) for n in (1, 2, 3))
    machine = coordinator_of(EventTriggered(1.0, 1.0), np.array([0, -1, 0, 1, -1]))
    sent = downloads(machine.begin({0: first, 2: second, 3: third}))
    assert {i: message.sums.n for i, message in sent.items()} == {0: 3, 2: 3, 3: 3}
    np.testing.assert_allclose(sent[0].sums.V, first.V + second.V)
    assert machine.groups() == [[0, 2], [3]]
    answers = machine.receive(Upload(0, 1, data(rng, 1), logdet(first.V + second.V)))
    assert sorted(downloads(answers)) == [0, 2]
    with pytest.raises(FedbanditError, match="not one of"):
        machine.receive(Join(1))


# ------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (Upload(0, 1, zero_sums(DIM), 0.0), "before it joined"),
        (Upload(7, 1, zero_sums(DIM), 0.0), "not one of 5 clients"),
        (Join(-1), "not one of 5 clients"),
        (Request(0), "does not take a Request"),
        (Upload(1, 5, zero_sums(DIM), 0.0), "1 is the next one expected"),
        (Upload(1, 1, zero_sums(3), 0.0), "dimension 3, expected 2"),
        (Upload(1, 1, zero_sums(DIM), math.nan), "not finite"),
        (Upload(1, 1, Sums(np.full((DIM, DIM), np.inf), np.zeros(DIM), 1), 0.0), "not finite"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(message: Message, sentence: str) -> None:
    machine = coordinator_of(EventTriggered())
    machine.receive(Join(1))
    before = pack("coordinator", machine.state())
    with pytest.raises(FedbanditError, match=sentence):
        machine.receive(message)
    assert pack("coordinator", machine.state()) == before


@pytest.mark.parametrize("name", PROTOCOLS)
def test_clients_do_not_send_downloads(name: str) -> None:
    with pytest.raises(FedbanditError, match="does not take a Download"):
        coordinator_of(PROTOCOLS[name], Pairs(N)).receive(Download(0, 1, 0, zero_sums(DIM)))


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_state_of_another_federation_is_refused(name: str) -> None:
    machine = coordinator_of(PROTOCOLS[name], Pairs(N))
    header, arrays = machine.state()
    with pytest.raises(FedbanditError, match="expected a"):
        machine.restore(State({**header, "machine": "Gateway"}, arrays))
    for key, array in arrays.items():
        assert array.dtype in (np.float64, np.int64)
        longer = np.concatenate([array, array])
        with pytest.raises(FedbanditError, match=rf"stored {key} is \w+ of shape"):
            machine.restore(State(header, {**arrays, key: longer}))
        with pytest.raises(FedbanditError, match=f"has no '{key}'"):
            machine.restore(State(header, {k: v for k, v in arrays.items() if k != key}))
    before = pack("coordinator", State(header, arrays))
    assert pack("coordinator", machine.state()) == before, "a refused state has changed nothing"
