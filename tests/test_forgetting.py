"""Models that forget: sums stay additive, whoever has them and whenever they were sent."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedbandit as fb
from fedbandit.actions import as_rows
from fedbandit.encoded_sums import all_blocks
from fedbandit.errors import FedbanditError
from fedbandit.forgetting import scaled, settled_discount
from fedbandit.machines.link import Link
from fedbandit.messages import Download, Restate, Upload, decode, encode
from fedbandit.structures.time_blocks import AdaptiveWindow, SlidingWindow, TimeBlocks
from fedbandit.structures.window_model import WindowModel
from fedbandit.sums import BlockSums, Form, Sums, add
from fedbandit.types import Array
from tests.oracles.naive_discounted import sums_since, weighted

N, D, GAMMA = 3, 2, 0.97
WORLD = fb.World(n_clients=N, dim=D, horizon=400)


class Driven:
    """A link whose rounds go by, also some in which nobody acts, and all that was observed."""

    def __init__(self, system: fb.System, *, encoded: bool = False, world: fb.World = WORLD) -> None:
        self.link = Link(system, world, encoded=encoded)
        self.seen: dict[int, list[tuple[int, Array, float]]] = {i: [] for i in range(N)}

    def run(self, steps: int, seed: int = 0) -> list[int]:
        rng, arms = np.random.default_rng(seed), []
        for _ in range(steps):
            self.link.now += int(rng.integers(0, 4))
            i, A = int(rng.integers(N)), self.link.world.actions
            X = rng.standard_normal((4, D))
            X /= 1.01 * np.linalg.norm(X, axis=1, keepdims=True)
            rows = as_rows(X, rng.integers(0, A, 4), A) if A else X
            choice = self.link.select(i, rows)
            y = float(rng.standard_normal())
            self.link.observe(i, choice.number, y)
            self.seen[i].append((self.link.now, rows[choice.arm], y))
            arms.append(choice.arm)
        return arms


SYSTEMS = {
    "asynchronous": fb.async_linucb(gamma_upload=1.5, gamma_download=1.5, discount=GAMMA),
    "synchronous": fb.sync_linucb(threshold=1.0, discount=GAMMA),
    "never": fb.linucb(discount=GAMMA),
    "sliding window": fb.async_linucb(gamma_upload=1.5, gamma_download=1.5, window=40),
    "adaptive window": fb.async_linucb(gamma_upload=1.5, gamma_download=1.5, window="adaptive", noise=1.0),
    "synchronous window": fb.sync_linucb(threshold=1.0, window=30),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_same_over_encoded_messages_and_after_a_restart(name: str) -> None:
    plain, encoded = Driven(SYSTEMS[name]), Driven(SYSTEMS[name], encoded=True)
    assert plain.run(150) == encoded.run(150)
    again = Driven(SYSTEMS[name], encoded=True)
    again.link.restore(encoded.link.state())
    again.link.now = encoded.link.now
    assert plain.run(60, seed=7) == again.run(60, seed=7)


def test_everybody_has_the_weighted_sums_of_all_observations() -> None:
    """Always up to date: V and b of each client are the paper's sums over everybody's observations."""
    driven = Driven(fb.async_linucb(gamma_upload=1.0, gamma_download=1.0, warm_join=True, discount=GAMMA))
    for part in range(4):
        driven.run(25, seed=part)
        rounds, X, y = zip(*(entry for seen in driven.seen.values() for entry in seen), strict=True)
        V, b = weighted(list(rounds), list(X), list(y), driven.link.now, GAMMA)
        for i in range(N):
            driven.link.client(i).at(driven.link.now)
            common = driven.link.client(i).model.in_common()
            np.testing.assert_allclose(common.V, V, atol=1e-9)
            np.testing.assert_allclose(common.b, b, atol=1e-9)
            theta = np.linalg.solve(V + 0.1 * np.eye(D), b)
            np.testing.assert_allclose(driven.link.client(i).model.theta, theta, atol=1e-9)


def test_nothing_is_lost_between_messages() -> None:
    """What the coordinator has and what is pending is, taken to one round, all that was observed."""
    driven = Driven(fb.async_linucb(gamma_upload=3.0, gamma_download=3.0, discount=GAMMA))
    driven.run(200)
    now, link = driven.link.now, driven.link
    assert link.coordinator is not None
    members = link.coordinator.members
    V = GAMMA ** (now - members.round) * members.V[0]
    for i, client in link.clients.items():
        client.at(now)
        V = V + client.model.pending().V
        rounds, X, y = zip(*driven.seen[i], strict=True)
        assert client.observed == len(rounds)
    rounds, X, y = zip(*(entry for seen in driven.seen.values() for entry in seen), strict=True)
    np.testing.assert_allclose(V, weighted(list(rounds), list(X), list(y), now, GAMMA)[0], atol=1e-9)


@pytest.mark.parametrize("w", [3, 24, 50])
def test_everybody_has_the_sums_of_the_last_rounds(w: int) -> None:
    """By epochs of ⌊w/8⌋ rounds: never more than w rounds, and never an epoch less."""
    driven = Driven(fb.async_linucb(gamma_upload=1.0, gamma_download=1.0, window=w))
    k = max(w // 8, 1)
    for part in range(4):
        driven.run(25, seed=part)
        now = driven.link.now
        first = (now // k - w // k + 1) * k
        assert now - w < first <= now - w + 2 * k
        kept = [entry for seen in driven.seen.values() for entry in seen if entry[0] >= first]
        V, b = sums_since(first, [r for r, _, _ in kept], [x for _, x, _ in kept], [y for _, _, y in kept])
        for i in range(N):
            driven.link.client(i).at(now)
            model = driven.link.client(i).model
            assert isinstance(model, WindowModel)
            np.testing.assert_allclose(model.V, V, atol=1e-9)
            np.testing.assert_allclose(model.theta, np.linalg.solve(V + 0.1 * np.eye(D), b), atol=1e-9)


WINDOWS: list[TimeBlocks] = [SlidingWindow(8), SlidingWindow(50), AdaptiveWindow(1, 0.1), AdaptiveWindow(5, 0.1)]


@pytest.mark.parametrize("window", WINDOWS)
@given(
    rounds=st.lists(st.integers(0, 3000), min_size=1, max_size=12),
    wait=st.integers(0, 90_000),
    later=st.integers(0, 900),
)
@settings(max_examples=40, deadline=None)
def test_sums_of_blocks_are_moved_all_the_same(window: TimeBlocks, rounds: list[int], wait: int, later: int) -> None:
    """At once or in steps, full or sparse: an observation is where its round belongs by then."""
    now, form = max(rounds) + wait, Form(1, window.slots)
    step = moved = form.zero()
    expected, at = np.zeros(window.slots), 0
    for number, round in enumerate(sorted(rounds)):
        one = BlockSums(np.full((1, 1, 1), 2.0**number), np.zeros((1, 1)), 1, np.array([window.slot(round)]))
        step, at = add(window.moved(step, at, round), one), round
        moved = add(moved, window.moved(one, round, now + later))
        slot = int(window.targets(np.array([round // window.length]), (now + later) // window.length)[0])
        if slot >= 0:
            expected[slot] += 2.0**number
    step = window.moved(window.moved(step, at, now), now, now + later)
    for sums in (step, moved):
        assert isinstance(sums, BlockSums)
        np.testing.assert_array_equal(all_blocks(sums, window.slots).V[:, 0, 0], expected)


@given(now=st.integers(0, 2**20))
def test_blocks_of_an_adaptive_window_grow_with_age(now: int) -> None:
    window = AdaptiveWindow(1, 0.1)
    epochs = np.arange(max(now - 3000, 0), now + 1)
    slots = window.targets(epochs, now)
    changes = np.flatnonzero(np.diff(slots)) + 1
    starts, ends = epochs[np.concatenate(([0], changes))], epochs[np.concatenate((changes - 1, [epochs.size - 1]))]
    assert np.unique(slots).size == starts.size, "a slot has epochs in two places"
    old = starts > epochs[0]  # the first may be cut
    assert (window.first_epochs(now)[slots[starts[old] - epochs[0]]] == starts[old]).all()
    assert (ends - starts + 1 <= np.maximum(now - ends, 1)).all()


def test_an_adaptive_window_ends_where_the_world_has_changed() -> None:
    rng, model = np.random.default_rng(3), WindowModel(2, 0.1, AdaptiveWindow(4, 0.1))
    one, other = np.array([0.8, 0.0]), np.array([0.0, 0.8])

    def live(theta: Array, rounds: range) -> None:
        for round in rounds:
            model.slide(round)
            x = rng.standard_normal(2)
            model.observe(x / np.linalg.norm(x), float(x @ theta / np.linalg.norm(x) + 0.1 * rng.standard_normal()))

    live(one, range(300))
    assert np.trace(model.V) == pytest.approx(300)
    live(other, range(300, 340))
    assert np.trace(model.V) < 60
    np.testing.assert_allclose(model.theta, other, atol=0.15)
    live(other, range(340, 1000))
    assert 400 < np.trace(model.V) <= 704
    live(one, range(1000, 1100))
    np.testing.assert_allclose(model.theta, one, atol=0.1)
    assert model.n == 1100


def test_actions_are_forgotten_too() -> None:
    world = fb.World(n_clients=N, dim=D, horizon=400, actions=5)
    driven = Driven(fb.linucb(discount=GAMMA), world=world)
    driven.run(80)
    client = driven.link.client(0)
    client.at(driven.link.now)
    theta = np.zeros((5, D))
    for a in range(5):
        seen = [(r, row[1:], y) for r, row, y in driven.seen[0] if row[0] == a]
        if seen:
            rounds, X, y = zip(*seen, strict=True)
            V, b = weighted(list(rounds), list(X), list(y), driven.link.now, GAMMA)
            theta[a] = np.linalg.solve(V + 0.1 * np.eye(D), b)
    np.testing.assert_allclose(client.model.theta, theta, atol=1e-9)


def test_dated_messages_keep_their_bytes() -> None:
    """Of format 3, as clients in other languages send them (docs/protocol.md)."""
    one = "000000000000f03f"
    header = "46420342 02000000 0100000000000000 0200000000000000 0000000000000000 000000000000e03f"
    upload = Upload(1, 2, Sums(np.eye(2), np.ones(2), 3), 0.5, round=7)
    dated = f"0700000000000000 0300000000000000 {one} {one} {one} 0000000000000000 {one}"
    assert encode(upload) == bytes.fromhex(header + dated)
    blocks = BlockSums(np.eye(1)[None], np.ones((1, 1)), 3, np.array([4]))
    header = "46420362 01000000 0100000000000000 0200000000000000 0000000000000000 000000000000e03f"
    dated = f"0700000000000000 0300000000000000 08000000 01000000 0400000000000000 {one} {one}"
    assert encode(Upload(1, 2, blocks, 0.5, 8, 7)) == bytes.fromhex(header + dated)


def test_dated_messages_are_read_back() -> None:
    sums = Sums(np.eye(2), np.ones(2), 3)
    for message in (
        Upload(1, 2, sums, 0.5, round=7),
        Download(1, 2, 3, sums, round=0),
        Restate(1, 2, 2, sums, 0.5, round=2**40),
    ):
        again = decode(encode(message))
        assert type(again) is type(message)
        assert again.round == message.round
        assert encode(again) == encode(message)
        with pytest.raises(FedbanditError, match="bytes, got"):
            decode(encode(message)[:-8])


@pytest.mark.parametrize("keywords", [{"window": "adaptive"}, {"window": 400}])
def test_windows_follow_a_world_that_changes(keywords: dict[str, object]) -> None:
    env = fb.environments.homogeneous(n_clients=2, dim=3, n_arms=5, drift=(500, 1000))
    for_ever = fb.simulate(fb.async_linucb(), env, 1500, 5, engine="plain")
    forgets = fb.simulate(fb.async_linucb(**keywords), env, 1500, 5)  # type: ignore[arg-type]
    assert forgets.regret[-1] < 0.5 * for_ever.regret[-1]
    assert forgets.communication.scalars > for_ever.communication.scalars


def test_nothing_is_forgotten_where_nothing_changes() -> None:
    env = fb.environments.homogeneous(n_clients=2, dim=3, n_arms=5)
    for_ever = fb.simulate(fb.async_linucb(), env, 600, 4, engine="plain")
    adaptive = fb.simulate(fb.async_linucb(window="adaptive"), env, 600, 4)
    assert np.array_equal(for_ever.arms, adaptive.arms)
    assert for_ever.communication.messages == adaptive.communication.messages


def test_forgetting_follows_a_world_that_changes() -> None:
    env = fb.environments.homogeneous(n_clients=2, dim=4, n_arms=6, drift=(600, 1200, 1800))
    for_ever = fb.simulate(fb.async_linucb(), env, 2400, 5, engine="plain")
    forgets = fb.simulate(fb.async_linucb(discount="changes:3"), env, 2400, 5)
    assert forgets.regret[-1] < 0.5 * for_ever.regret[-1]
    assert forgets.engine == "plain"


def test_discounts_and_windows() -> None:
    assert (SlidingWindow(500).length, SlidingWindow(500).slots) == (62, 8)
    assert fb.linucb(window=500).parameters()["window"] == 500
    assert settled_discount("changes:0", 10, 1000, 1000) == 1.0
    assert scaled(Sums(np.eye(2), np.ones(2), 3), 0.5).n == 3
    for keywords, sentence in (
        ({"discount": 0.0}, "discount is 0.0, but must be a number > 0 and ≤ 1"),
        ({"discount": 1.5}, "discount is 1.5"),
        ({"discount": "fast"}, "discount is 'fast', but must be a number or a rule such as 'changes:3'"),
        ({"window": 1}, "window is 1"),
        ({"window": "some"}, "window is 'some', but must be a whole number ≥ 2 or 'adaptive'"),
        ({"window": 9, "discount": 0.9}, "Both discount and window"),
    ):
        with pytest.raises(FedbanditError, match=sentence):
            fb.linucb(**keywords)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: fb.count_linucb(discount=0.9), "CountTriggered"),
        (lambda: fb.feducb(window="adaptive"), "PrivateStatistics"),
        (lambda: fb.System(protocol=fb.protocols.Synchronous(growth=1.5), discount=0.9), "Synchronous"),
        (lambda: fb.linucb_central(discount=0.9), "Central"),
        (lambda: fb.hetofedbandit(discount=0.9), "HomogeneityCliques"),
        (lambda: fb.System(protocol=fb.protocols.Gossip(), discount=0.9), "Gossip"),
    ],
)
def test_parts_that_remember_are_refused(make: object, name: str) -> None:
    assert callable(make)
    with pytest.raises(FedbanditError, match=f"{name} is refused with discount or window"):
        make()
    with pytest.raises(FedbanditError, match="does not know models that forget"):
        fb.simulate(
            fb.linucb(discount=0.9), fb.environments.homogeneous(n_clients=2, dim=2, n_arms=3), 10, engine="fast"
        )


def test_windows_of_actions_are_refused() -> None:
    with pytest.raises(FedbanditError, match="window is refused where each action has a θ of its own"):
        fb.linucb(window=50).told(fb.World(n_clients=2, dim=2, horizon=100, actions=5))
