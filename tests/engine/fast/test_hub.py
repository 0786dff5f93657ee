"""The coordinator's memory against a model that keeps a matrix, or a count, for every client."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit.engine.fast import housekeeping
from fedbandit.engine.fast import hub as hubs
from fedbandit.engine.fast import row as fast_row
from fedbandit.engine.fast import statistics as stats
from fedbandit.engine.fast.cohorts import (
    CLASS,
    FREE,
    GROUP,
    ISSUE,
    LAST_VERSION,
    LEFT,
    NEXT,
    RIGHT,
    SIZE,
    SNAPSHOT,
    USED,
    Hub,
    empty_hub,
    has_room,
    meld,
    of,
)
from fedbandit.engine.fast.packed import multiply_packed, unpacked
from fedbandit.engine.fast.row import LOGDET, N_PENDING, VERSION, N
from fedbandit.types import Array, Ints

RIDGE = 0.1
TIE = 1e-9


@dataclass
class Plain:
    """Who has what, spelled out: for each client its V and n in common with the coordinator, and its pending."""

    d: int
    groups: list[int]
    gammas: list[float]
    counting: bool
    V: dict[int, Array] = field(default_factory=dict)
    n: dict[int, int] = field(default_factory=dict)
    pending: dict[int, list[Array]] = field(default_factory=dict)
    server_V: dict[int, Array] = field(default_factory=dict)
    server_n: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Nothing has been heard."""
        for g in self.groups:
            self.server_V[g], self.server_n[g] = np.zeros((self.d, self.d)), 0

    def measure(self, V: Array, n: int) -> float:
        """On the scale that downloads compare."""
        if self.counting:
            return math.log(n) if n > 0 else -math.inf
        return float(np.linalg.slogdet(V + RIDGE * np.eye(self.d))[1])

    def download(self, i: int) -> None:
        """Client i has all there is."""
        self.V[i], self.n[i] = self.server_V[self.groups[i]].copy(), self.server_n[self.groups[i]]

    def join(self, i: int, *, warm: bool) -> bool:
        """With nothing or, if there is something, with that; whether that was a download."""
        self.V[i], self.n[i], self.pending[i] = np.zeros((self.d, self.d)), 0, []
        if warm and self.server_n[self.groups[i]] > 0:
            self.download(i)
            return True
        return False

    def upload(self, i: int) -> list[int]:
        """Everyone in the group, uploader included, is looked at one by one; those who are sent a download."""
        g = self.groups[i]
        for x in self.pending[i]:
            self.V[i] = self.V[i] + np.outer(x, x)
            self.server_V[g] = self.server_V[g] + np.outer(x, x)
        self.n[i] += len(self.pending[i])
        self.server_n[g] += len(self.pending[i])
        self.pending[i] = []
        top = self.measure(self.server_V[g], self.server_n[g])
        stale = []
        for j in sorted(self.V):
            if self.groups[j] == g and top > -math.inf and math.isfinite(self.gammas[j]):
                mine = self.measure(self.V[j], self.n[j])
                if top - mine > math.log(self.gammas[j]) + TIE:
                    stale.append(j)
        for j in stale:
            self.download(j)
        return stale


class Pair:
    """The hub with rows for its clients, and the plain model, driven together.

    Forgetful clients throw their row away when they are given all there is with an upload.
    """

    def __init__(
        self, d: int, groups: list[int], gammas: list[float], *, counting: bool, forgetful: bool = False
    ) -> None:
        self.d, self.counting, self.forgetful = d, counting, forgetful
        n = len(groups)
        one_group = len(set(groups)) == 1
        of_group: Ints = np.zeros(1, dtype=np.int64) if one_group else np.unique(groups, return_inverse=True)[1]
        log_gamma = np.log(gammas[:1] if len(set(gammas)) == 1 else gammas)
        self.hub = empty_hub(d, n, len(set(groups)), of_group.astype(np.int64), log_gamma, RIDGE)
        self.rows = fast_row.empty_rows(n, d)
        for row in self.rows:
            fast_row.start_row(row, d, RIDGE)
        names = sorted(set(groups))
        self.plain = Plain(d, [names.index(g) for g in groups], gammas, counting)
        self.u, self.scratch = np.zeros(d), stats.scratch_matrix(d)

    def catch_up(self, i: int) -> Array:
        """Client i is about to act."""
        row: Array = self.rows[i]
        hubs.catch_up(self.hub, i, row, self.d, RIDGE, self.scratch)
        return row

    def reserve(self) -> None:
        """As every caller must."""
        if not has_room(self.hub):
            self.hub = housekeeping.make_room(self.hub)
            assert has_room(self.hub)

    def join(self, i: int, *, warm: bool) -> None:
        """A client joins in both worlds."""
        self.reserve()
        assert bool(hubs.join(self.hub, i, warm, self.counting)) == self.plain.join(i, warm=warm)

    def observe(self, i: int, x: Array) -> None:
        """A client catches up and observes."""
        row = self.catch_up(i)
        multiply_packed(fast_row.inverse_of(row, self.d), x, self.u)
        stats.observe(row, x, 1.0, self.u, RIDGE, self.scratch)
        self.plain.pending[i].append(x)

    def upload(self, i: int) -> None:
        """A client catches up and uploads; the same clients are sent a download."""
        self.reserve()
        row = self.catch_up(i)
        issues = self.issues()
        if self.forgetful and hubs.is_stale(self.hub, i, hubs.measure(row, self.counting), self.counting):
            for x in self.plain.pending[i]:
                hubs.take_in_one(self.hub, int(of(self.hub.group_of, i)), x, 1.0, RIDGE, self.scratch)
            downloads = hubs.renew(self.hub, i, self.counting)
            expected = self.plain.upload(i)
            assert i in expected
            assert downloads == len(expected)
            assert np.flatnonzero(self.issues() != issues).tolist() == expected
            row[:] = 0.0
            fast_row.start_row(row, self.d, RIDGE)
            return
        downloads = hubs.upload_row(self.hub, i, row, self.d, RIDGE, self.counting, self.scratch)
        expected = self.plain.upload(i)
        others = [j for j in expected if j != i]  # the uploader is at hand and gets its download without a snapshot
        assert np.flatnonzero(self.issues() != issues).tolist() == others
        assert downloads == len(expected)
        if others:
            assert np.flatnonzero(self.issues() == self.hub.counters[LAST_VERSION]).tolist() == others
        if i in expected:
            np.testing.assert_allclose(unpacked(fast_row.base_of(row, self.d), self.d), self.plain.V[i], atol=1e-9)

    def issues(self) -> Ints:
        """The version each client has been sent, −1 before it joined."""
        cohort = housekeeping.cohort_of_clients(self.hub)
        return np.where(cohort >= 0, self.hub.cohorts[cohort, ISSUE], -1)

    def check(self) -> None:
        """The hub is consistent, and every client would get what the plain model says it has."""
        check_hub(self.hub, self.counting)
        for g in range(len(self.hub.pool)):
            pool = unpacked(fast_row.base_of(self.hub.pool[g], self.d), self.d)
            np.testing.assert_allclose(pool, self.plain.server_V[g], atol=1e-9)
            assert self.hub.pool[g, N] == self.plain.server_n[g]
        for i, V in self.plain.V.items():
            copy = self.rows[i].copy()  # what the client would have; the client itself stays lazy
            hubs.catch_up(self.hub, i, copy, self.d, RIDGE, self.scratch)
            np.testing.assert_allclose(unpacked(fast_row.base_of(copy, self.d), self.d), V, atol=1e-9)
            assert copy[N] - copy[N_PENDING] == self.plain.n[i]
            assert copy[N_PENDING] == len(self.plain.pending[i])
            everything = V + sum((np.outer(x, x) for x in self.plain.pending[i]), np.zeros((self.d, self.d)))
            inverse = np.linalg.inv(everything + RIDGE * np.eye(self.d))
            np.testing.assert_allclose(unpacked(fast_row.inverse_of(copy, self.d), self.d), inverse, atol=1e-8)


def check_hub(hub: Hub, counting: bool) -> None:
    """Sizes, heaps, queues, snapshots and the stack of free ones agree with one another."""
    used = int(hub.counters[USED])
    cohort = housekeeping.cohort_of_clients(hub)
    joined = cohort >= 0
    root = hub.parent[:used] == np.arange(used)
    sizes = np.where(root, hub.cohorts[:used, SIZE], 0)
    np.testing.assert_array_equal(np.bincount(cohort[joined], minlength=used), sizes)
    assert sizes.sum() == joined.sum()

    for i in np.flatnonzero(joined):
        assert hub.cohorts[cohort[i], GROUP] == of(hub.group_of, int(i))
        assert hub.cohorts[cohort[i], CLASS] == of(hub.class_of, int(i))

    holders = np.zeros_like(hub.users)
    for c in np.flatnonzero(root):
        slot = hub.cohorts[c, SNAPSHOT]
        if slot >= 0:
            holders[slot] += 1
    np.testing.assert_array_equal(hub.users, holders)
    free = hub.free[: hub.counters[FREE]]
    assert sorted(free.tolist()) == np.flatnonzero(holders == 0).tolist()

    standing = []
    for g, top in enumerate(hub.heap):
        stack = [int(top)] if top >= 0 else []
        while stack:
            here = stack.pop()
            standing.append(here)
            assert hub.cohorts[here, GROUP] == g
            for child in (int(hub.cohorts[here, LEFT]), int(hub.cohorts[here, RIGHT])):
                if child >= 0:
                    assert hub.key[child] >= hub.key[here]
                    stack.append(child)
    for (g, kind), first in np.ndenumerate(hub.oldest):
        here = int(first)
        while here >= 0:
            standing.append(here)
            assert hub.cohorts[here, GROUP] == g
            assert hub.cohorts[here, CLASS] == kind
            following = int(hub.cohorts[here, NEXT])
            if following >= 0:
                assert hub.key[following] >= hub.key[here]
            else:
                assert hub.newest[g, kind] == here
            here = following
        assert (first < 0) == (hub.newest[g, kind] < 0)
    standing += hub.newcomers[hub.newcomers >= 0].tolist()
    assert len(standing) == len(set(standing))
    assert set(np.flatnonzero(sizes > 0).tolist()) <= set(standing)

    for g in range(len(hub.pool)):
        for kind in range(len(hub.log_gamma)):
            current, newcomers = int(hub.current[g, kind]), int(hub.newcomers[g, kind])
            if current >= 0:
                assert sizes[current] > 0
                known = hubs.measure(hub.snapshots[hub.cohorts[current, SNAPSHOT]], counting)
                assert known == hubs.measure(hub.pool[g], counting)
            if newcomers >= 0:
                assert hub.cohorts[newcomers, SNAPSHOT] == -1
                assert hub.cohorts[newcomers, ISSUE] == 0


def observable(hub: Hub, counting: bool) -> list[object]:
    """All that a client or a caller can see of a hub."""
    cohort = housekeeping.cohort_of_clients(hub)
    seen: list[object] = [hub.pool.copy(), int(hub.counters[LAST_VERSION])]
    for c in cohort:
        if c < 0:
            seen.append(None)
        else:
            slot = int(hub.cohorts[c, SNAPSHOT])
            shared = None if slot < 0 else hub.snapshots[slot].copy()
            seen.append((int(hub.cohorts[c, ISSUE]), float(hub.key[c]), int(hub.cohorts[c, SIZE]), shared))
    together = [[bool(a == b and a >= 0) for a in cohort] for b in cohort]
    return [*seen, together, counting]


gammas = st.sampled_from([1.0, 1.3, 2.0, 5.0, 50.0, math.inf])


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    """A hub for one to eight clients, in one or more groups, with one γ_D for all or one for each."""
    n = draw(st.integers(1, 8), label="clients")
    groups = draw(st.just([0] * n) | st.lists(st.integers(0, 2), min_size=n, max_size=n), label="groups")
    each = draw(gammas.map(lambda gamma: [gamma] * n) | st.lists(gammas, min_size=n, max_size=n), label="γ_D")
    counting, forgetful = draw(st.booleans(), label="counting"), draw(st.booleans(), label="forgetful")
    return Pair(draw(st.integers(1, 3)), groups, each, counting=counting, forgetful=forgetful)


@given(st.data())
def test_any_sequence_of_events(data: st.DataObject) -> None:
    """Joins, observations and uploads in any order: the same downloads, and a consistent memory after each."""
    pair = data.draw(pairs(), label="pair")
    n = len(pair.plain.groups)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**20), label="seed"))
    warm = data.draw(st.booleans(), label="warm join")
    events = data.draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, 12)), max_size=80), label="events")
    for i, k in events:
        if i not in pair.plain.V:
            pair.join(i, warm=warm)
        for _ in range(k):
            pair.observe(i, rng.standard_normal(pair.d) * rng.random())
        if k > 0:
            pair.upload(i)
        else:  # a client that looks but has nothing to say
            pair.catch_up(i)
    pair.check()


@given(st.data())
def test_consistent_after_every_event(data: st.DataObject) -> None:
    """The same with fewer events and a check after each, observations left pending included."""
    pair = data.draw(pairs(), label="pair")
    n = len(pair.plain.groups)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**20), label="seed"))
    for _ in range(data.draw(st.integers(0, 25), label="events")):
        i = int(rng.integers(n))
        if i not in pair.plain.V:
            pair.join(i, warm=bool(rng.integers(2)))
        for _ in range(int(rng.integers(0, 4))):
            pair.observe(i, rng.standard_normal(pair.d))
        if pair.plain.pending[i] and rng.integers(2):
            pair.upload(i)
        pair.check()


def some_events(data: st.DataObject, pair: Pair) -> Iterator[np.random.Generator]:
    """Up to thirty joins, observations and uploads; after each, what else is random comes from the generator."""
    n = len(pair.plain.groups)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**20), label="seed"))
    for _ in range(data.draw(st.integers(0, 30), label="events")):
        i = int(rng.integers(n))
        if i not in pair.plain.V:
            pair.join(i, warm=bool(rng.integers(2)))
        if rng.integers(2):
            pair.observe(i, rng.standard_normal(pair.d))
            pair.upload(i)
        yield rng


@given(st.data())
def test_making_room_changes_nothing(data: st.DataObject) -> None:
    """Before or after any event."""
    pair = data.draw(pairs(), label="pair")
    for rng in some_events(data, pair):
        if rng.integers(2):
            before = observable(pair.hub, pair.counting)
            pair.hub = housekeeping.make_room(pair.hub)
            np.testing.assert_equal(observable(pair.hub, pair.counting), before)
            assert has_room(pair.hub)
            check_hub(pair.hub, pair.counting)
    pair.check()


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60), st.booleans())
def test_a_broadcast_to_everyone(events: list[int], counting: bool) -> None:
    """Synchronous: all who have joined a group are sent all there is, others nothing; then nothing is owed."""
    pair = Pair(2, [0, 0, 0, 1, 1, 1], [1.0] * 6, counting=counting)
    rng = np.random.default_rng(len(events))
    for i in events:
        pair.reserve()
        if i not in pair.plain.V:
            pair.join(i, warm=True)
            continue
        g = i // 3
        x = rng.standard_normal(2)
        pool = pair.hub.pool[g]
        stats.add_to_base(pool, 2, np.outer(x, x))
        pool[N] += 1
        hubs.settle_pool(pair.hub, g, 2, RIDGE, pair.scratch)
        pair.plain.server_V[g] = pair.plain.server_V[g] + np.outer(x, x)
        pair.plain.server_n[g] += 1
        issues = pair.issues()
        everyone = [j for j in sorted(pair.plain.V) if j // 3 == g]
        assert hubs.broadcast(pair.hub, g, True, counting) == len(everyone)
        assert np.flatnonzero(pair.issues() != issues).tolist() == everyone
        assert hubs.broadcast(pair.hub, g, False, counting) == 0
        for j in everyone:
            pair.plain.download(j)
        pair.check()


def test_snapshots_are_freed_when_the_last_cohort_leaves() -> None:
    """However many uploads there are, no more snapshots are kept than there are clients."""
    pair = Pair(2, [0] * 5, [1.0] * 5, counting=False)
    rng = np.random.default_rng(0)
    for t in range(300):
        i = int(rng.integers(5))
        if i not in pair.plain.V:
            pair.join(i, warm=t % 2 == 0)
        pair.observe(i, rng.standard_normal(2))
        pair.upload(i)
        assert np.count_nonzero(pair.hub.users) <= 5
    assert pair.hub.users.size <= 64
    assert pair.hub.key.size <= 128
    pair.check()


def test_the_room_grows_with_the_number_of_separate_cohorts() -> None:
    """γ_D = ∞: everyone who uploads is alone for ever."""
    n = 150
    pair = Pair(2, [0] * n, [math.inf] * n, counting=False)
    rng = np.random.default_rng(0)
    for i in range(n):
        pair.join(i, warm=False)
        pair.observe(i, rng.standard_normal(2))
        pair.upload(i)
    pair.check()
    assert len(set(housekeeping.cohort_of_clients(pair.hub).tolist())) == n


def test_downloads_are_materialised_when_a_client_next_acts() -> None:
    """Until then its row does not change; then it has all there is, with its pending observations on top."""
    pair = Pair(2, [0, 0], [1.0, 1.0], counting=False)
    for i in (0, 1):
        pair.join(i, warm=False)
    pair.observe(1, np.array([0.0, 0.5]))
    before = pair.rows[1].copy()
    pair.observe(0, np.array([1.0, 0.0]))
    pair.upload(0)
    np.testing.assert_array_equal(pair.rows[1], before)
    row = pair.catch_up(1)
    np.testing.assert_allclose(unpacked(fast_row.base_of(row, 2), 2), np.diag([1.0, 0.0]))
    np.testing.assert_allclose(unpacked(fast_row.inverse_of(row, 2), 2), np.diag([1 / 1.1, 1 / 0.35]))
    assert row[VERSION] == 1
    assert row[LOGDET] == pytest.approx(math.log(11) + math.log(3.5))


@pytest.mark.parametrize("counting", [False, True])
def test_measure(counting: bool) -> None:
    """log det or log count; nothing counted is below everything."""
    row = fast_row.empty_rows(1, 2)[0]
    fast_row.start_row(row, 2, RIDGE)
    nothing = hubs.measure(row, counting)
    assert nothing == (hubs.NOTHING_COUNTED if counting else 0.0)
    assert math.isfinite(nothing)
    row[N], row[LOGDET] = 5, 2.5
    assert hubs.measure(row, counting) == pytest.approx(math.log(5) if counting else 2.5)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=40))
def test_meld_is_a_heap(keys: list[float]) -> None:
    """Popping gives the keys in order."""
    cohorts = np.full((len(keys), 7), -1, dtype=np.int64)
    key = np.array(keys)
    top = -1
    for c in range(len(keys)):
        top = meld(cohorts, key, top, c)
    popped = []
    while top >= 0:
        popped.append(float(key[top]))
        top = meld(cohorts, key, cohorts[top, LEFT], cohorts[top, RIGHT])
    assert popped == sorted(keys)
