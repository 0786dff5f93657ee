"""Private learning on a graph: against oracles with the same noise, who draws it, and what leaves a client."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit import checks
from fedbandit.audit.likelihood import attack
from fedbandit.engine.fast.rewards import draw_reward
from fedbandit.engine.simulation import Simulation
from fedbandit.environments.block import world_of
from fedbandit.machines.link import Link
from fedbandit.messages import Download, Message, Upload, encode
from fedbandit.policies import UCB
from fedbandit.privacy import NoisyRewards, PrivateRewards, PrivateStatistics, PublishedSums, RewardSums
from fedbandit.privacy.mechanism import epsilon_of, noise_std
from fedbandit.privacy.published_sums import SeparateSums
from fedbandit.protocols import CountTriggered, EventTriggered, Never, Star
from fedbandit.rewards import learnt, reward_plan
from fedbandit.streams import Purpose, generator
from fedbandit.structures import Everyone, Laplacian, WeightedGraph
from fedbandit.sums import Sums
from fedbandit.system import System
from tests.logs import random_log, recorded
from tests.oracles import naive
from tests.oracles.naive import Array, Ints, Log
from tests.oracles.naive_graph import colin_features, goblin_features, run_graph
from tests.structures.test_graph import random_graph

N, D, T = 5, 3, 90
FEATURES = {"colin": colin_features, "goblin": goblin_features}
STRUCTURES: dict[str, Any] = {"colin": WeightedGraph, "goblin": Laplacian}
ALWAYS: dict[str, Any] = {"gamma_upload": 1.0, "gamma_download": 1.0, "warm_join": True}


def bounded_log(seed: int = 4) -> Log:
    """Rewards in [0, 1], some of them beyond."""
    log = random_log(seed, "sphere", horizon=T, n_clients=N, dim=D)
    return log._replace(rewards=[0.5 + 0.6 * np.asarray(r) for r in log.rewards])


def clipped(y: float, u: int, k: int) -> float:  # noqa: ARG001
    """Into [0, 1]."""
    return min(max(y, 0.0), 1.0)


def mixing(name: str, W: Array) -> Array:
    """M, as the structures have it."""
    return np.asarray(STRUCTURES[name](W).mixing(fb.World(N, D, T)))


@pytest.mark.parametrize("name", ["colin", "goblin"])
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_noise_on_sums_is_that_of_the_oracle(name: str, delta: float) -> None:
    log, W, seed = bounded_log(), random_graph(3, N), 11
    M, features = mixing(name, W), FEATURES[name](W)
    privacy = RewardSums(2.0, delta, "coordinator")
    result = fb.simulate(System(UCB(), Never(), STRUCTURES[name](W), privacy), recorded(log), T, seed)
    told = privacy.told(fb.World(N, D, T, bound=recorded(log).bound), T)
    streams = [told.stream(u, partial(generator, seed, Purpose.NOISE, u)) for u in range(N)]
    h = np.zeros((N, D))
    std = math.sqrt(np.mean(noise_std(told.mechanism) ** 2))

    def noise(u: int) -> Array:
        h[u] += streams[u].noise()
        return (M.T @ h).reshape(-1)  # b = (Mᵀ ⊗ I) vec(s)

    def wider(observed: Ints, inverse: Array, E: Array) -> float:
        total, precision = 0.0, np.linalg.inv(E @ inverse @ E.T)
        for j in np.flatnonzero(observed):
            P_uj = E @ inverse @ np.stack([features(int(j), np.asarray(e)) for e in np.eye(D)]).T
            total += std**2 * float(np.trace(precision @ P_uj @ P_uj.T))
        return 2 * math.sqrt(total)

    expected = run_graph(log, features, naive.Policy(), seed=seed, noise=noise, wider=wider, reward=clipped)
    np.testing.assert_array_equal(result.arms, expected.arms)


@pytest.mark.parametrize("name", ["colin", "goblin"])
@pytest.mark.parametrize("site", ["client", "coordinator"])
@pytest.mark.parametrize("width", ["user", "printed"])
def test_noise_as_published_is_that_of_the_oracle(name: str, site: Any, width: Any) -> None:
    log, W, seed, epsilon = bounded_log(), random_graph(3, N), 12, 3.0
    M = mixing(name, W)
    L = recorded(log).bound
    privacy = PublishedSums(epsilon, site)
    system = getattr(fb, f"{'dp' if site == 'coordinator' else 'ldp'}_{name}")
    system = system(epsilon=epsilon, calibration="published", graph=W, ridge=0.1)
    assert system.structure.width == "printed"
    if width == "user":
        system = System(UCB(), Never(), STRUCTURES[name](W), privacy)
    result = fb.simulate(system, recorded(log), T, seed)
    told = privacy.told(fb.World(N, D, T, bound=L, mixing=M), T)
    streams = {u: told.stream(u, partial(generator, seed, Purpose.NOISE, u)) for u in range(N + 1)}
    delta = L * np.linalg.norm(M, axis=1)
    levels = (T if site == "coordinator" else math.ceil(T / N)).bit_length()
    for u in (0, 3):
        sensitivity = delta.max() if site == "coordinator" else delta[u]
        assert streams[u].mechanism.scale == pytest.approx(levels * sensitivity / epsilon)
        assert streams[u].mechanism.dim == N * D
    eta = np.zeros(N * D)

    def noise(u: int) -> Array:
        nonlocal eta
        eta = eta + streams[N if site == "coordinator" else u].noise()
        return eta

    def wider(observed: Ints, inverse: Array, E: Array) -> float:  # noqa: ARG001
        if observed.sum() == 0:
            return 0.0
        if site == "coordinator":
            return float(delta.max() / epsilon * math.log(T) * math.sqrt(math.log(observed.sum())) * math.log(10))
        logs = np.log(np.maximum(observed, 1))
        return float(math.log(10) / epsilon * math.sqrt((logs * (delta * math.log(T / N)) ** 2).sum()))

    expected = run_graph(
        log,
        FEATURES[name](W),
        naive.Policy(),
        seed=seed,
        noise=noise,
        wider=wider,
        reward=clipped,
        printed_width=width == "printed",
    )
    np.testing.assert_array_equal(result.arms, expected.arms)


def test_private_linucb_as_published_is_n_learners() -> None:
    """Wang et al. 2020's baseline [29]: each user a LinUCB of its own, with a tree of T/N releases on its own Σ x y."""
    log, seed, epsilon = bounded_log(), 12, 3.0
    result = fb.simulate(fb.dp_linucb(epsilon=epsilon, calibration="published"), recorded(log), T, seed)
    L, own = recorded(log).bound, math.ceil(T / N)
    privacy = SeparateSums(epsilon).told(fb.World(N, D, T, bound=L, mixing=np.eye(N)), T)
    streams = [privacy.stream(u, partial(generator, seed, Purpose.NOISE, u)) for u in range(N)]
    assert all(stream.mechanism.dim == D for stream in streams)
    assert all(stream.mechanism.n_max >= own for stream in streams)
    assert streams[0].mechanism.scale == pytest.approx(own.bit_length() * L / epsilon)
    V, b = [np.zeros((D, D)) for _ in range(N)], [np.zeros(D) for _ in range(N)]
    eta, n = [np.zeros(D) for _ in range(N)], [0] * N
    for t, u in enumerate(log.clients.tolist()):
        inverse = np.linalg.inv(V[u] + np.eye(D))
        width = 0.1 * math.sqrt(-np.linalg.slogdet(inverse)[1] + 2 * math.log(10)) + 1.0
        if n[u]:
            width += L / epsilon * math.log(own) * math.sqrt(math.log(n[u])) * math.log(10)
        scores = [x @ inverse @ (b[u] + eta[u]) + width * math.sqrt(x @ inverse @ x) for x in log.arms[t]]
        a = next(k for k, score in enumerate(scores) if score >= max(scores) - 1e-9)
        assert a == result.arms[t]
        x = log.arms[t][a]
        V[u] += np.outer(x, x)
        b[u] += x * min(max(log.rewards[t][a], 0.0), 1.0)
        eta[u] = eta[u] + streams[u].noise()
        n[u] += 1
    assert result.guarantee.true_epsilon == pytest.approx(epsilon * math.sqrt(D))
    with pytest.raises(fb.FedbanditError, match="without edges"):
        fb.simulate(
            System(UCB(), Never(), WeightedGraph(random_graph(3, N)), SeparateSums(1.0)),
            recorded(log),
            T,
        )


def test_noisy_rewards_are_those_of_the_oracle() -> None:
    log, W = bounded_log(), random_graph(3, N)
    rule = reward_plan(NoisyRewards(4.0).reward_rule, 5)
    system = System(UCB(noise=0.1), Never(), WeightedGraph(W), NoisyRewards(4.0))
    expected = run_graph(log, colin_features(W), naive.Policy(), seed=5, reward=lambda y, u, k: learnt(rule, y, u, k))
    np.testing.assert_array_equal(fb.simulate(system, recorded(log), T, 5).arms, expected.arms)


@pytest.mark.parametrize("policy", ["ucb", "lints", "linphe"])
@pytest.mark.parametrize("name", ["colin", "goblin"])
def test_always_communicating_users_choose_as_one_place_would(name: str, policy: str) -> None:
    env = fb.environments.collaborative(n_clients=5, dim=3, n_arms=5, delay=(0, 3) if policy == "ucb" else 0)
    make = getattr(fb, name)
    central, federated = make(policy=policy), make(policy=policy, **ALWAYS)
    one, other = fb.simulate(central, env, 300, 1), fb.simulate(federated, env, 300, 1)
    np.testing.assert_array_equal(one.arms, other.arms)
    assert other.communication.uploads == 300 if policy != "ucb" else other.communication.uploads > 290
    seldom = fb.simulate(make(policy=policy, gamma_upload=3.0, gamma_download=3.0), env, 300, 1)
    assert 0 < seldom.communication.messages < other.communication.messages / 10


@pytest.mark.parametrize("name", ["dp_colin", "ldp_colin", "dp_goblin", "ldp_goblin"])
@pytest.mark.parametrize("keywords", [{"mechanism": "rewards"}, {"mechanism": "sums"}, {"delta": 1e-3}])
def test_private_users_choose_as_one_place_would(name: str, keywords: dict[str, Any]) -> None:
    env = fb.environments.collaborative(n_clients=4, dim=3, n_arms=5)
    make = partial(getattr(fb, name), epsilon=3.0, **keywords)
    one, other = (fb.simulate(system, env, 150, 1) for system in (make(), make(**ALWAYS)))
    np.testing.assert_array_equal(one.arms, other.arms)
    assert one.guarantee == other.guarantee
    assert one.guarantee.basis == "proven"


@pytest.mark.parametrize(
    "system",
    [
        fb.colin(gamma_upload=1.5, gamma_download=1.5),
        fb.goblin(gamma_upload=2.0, gamma_download=1.2, warm_join=True, policy="lints"),
        fb.dp_colin(mechanism="sums", gamma_upload=1.5, gamma_download=1.5),
        fb.ldp_goblin(mechanism="sums", gamma_upload=1.5, gamma_download=1.5, warm_join=True),
        fb.ldp_colin(delta=1e-3, gamma_upload=1.2, gamma_download=1.2),
        fb.dp_goblin(gamma_upload=1.2, gamma_download=1.2),
    ],
    ids=lambda system: f"{system.name}-{type(system.privacy).__name__}",
)
def test_machines_agree(system: System) -> None:
    checks.engines_agree(system)
    checks.bytes_agree(system)
    checks.loses_no_observation(system)


class Listener(Link):
    """A link that keeps everything that is sent."""

    def __init__(self, *args: Any) -> None:
        self.sent: list[Message] = []
        super().__init__(*args)

    def carry(self, message: Message) -> Message:
        self.sent.append(message)
        return super().carry(message)


class Replay:
    """Noise that makes releases what they were, whatever the rewards are now: neighbours in the worst case."""

    def __init__(self, released: list[Array]) -> None:
        self.released = released

    def may_release(self, n: int) -> bool:  # noqa: ARG002
        """Always."""
        return True

    def release(self, sums: Sums) -> Sums:
        """As before."""
        return Sums(sums.V, self.released.pop(0), sums.n)

    def state(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Nothing."""


def converse(link: Listener, env: Any, rewards: Any) -> list[tuple[int, Array, float]]:
    """Let machines do what `simulate` does, with these rewards; who chose what and earned what."""
    block = env.open(3).block(0, 80)
    history = []
    for s, i in enumerate(map(int, block.clients)):
        offered = block.X[block.arms[s]]
        choice = link.select(i, offered)
        y = rewards(s, draw_reward(block, s, choice.arm))
        link.observe(i, choice.number, y)
        history.append((i, offered[choice.arm], y))
    return history


def other_rewards(s: int, y: float) -> float:
    """Every second reward replaced."""
    return 1.0 - min(max(y, 0.0), 1.0) if s % 2 else y


GAMMAS: dict[str, Any] = {"gamma_upload": 1.3, "gamma_download": 1.1}


def test_under_local_privacy_nothing_but_noised_sums_depends_on_rewards() -> None:
    env = fb.environments.collaborative(n_clients=4, dim=3, n_arms=5)
    system, world = fb.ldp_colin(mechanism="sums", **GAMMAS), world_of(env, 80, 3)
    link = Listener(system, world, 3)
    converse(link, env, lambda _, y: y)
    again = Listener(system, world, 3)
    for client in map(again.client, range(4)):
        mine = [m for m in link.sent if isinstance(m, Upload) and m.member == client.member]
        client.stream = Replay([m.sums.b for m in mine])  # type: ignore[assignment]
    converse(again, env, other_rewards)
    # Other rewards, the same noised sums: not one other bit on the wire, in either direction.
    assert [encode(m) for m in link.sent] == [encode(m) for m in again.sent]
    assert sum(isinstance(m, Upload) for m in link.sent) > 8
    assert sum(isinstance(m, Download) for m in link.sent) > 8


def test_under_global_privacy_uploads_are_exact_and_downloads_noised() -> None:
    env = fb.environments.collaborative(n_clients=4, dim=3, n_arms=5)
    world = world_of(env, 80, 3)
    link = Listener(fb.dp_colin(mechanism="sums", **GAMMAS), world, 3)
    history = converse(link, env, lambda _, y: y)
    sent = [m for m in link.sent if isinstance(m, Upload) and m.member == 0]
    n = sum(m.sums.n for m in sent)
    mine = [(x, min(max(y, 0.0), 1.0)) for i, x, y in history if i == 0][:n]
    exact = np.sum([x * y for x, y in mine], axis=0)
    np.testing.assert_allclose(np.sum([m.sums.b for m in sent], axis=0), exact, atol=1e-9)
    assert isinstance(link.coordinator, Star)
    assert np.abs(link.coordinator.members.b[0] - exact).max() > 0.1
    again = Listener(fb.dp_colin(mechanism="sums", **GAMMAS), world, 3)
    assert isinstance(again.coordinator, Star)
    released = released_by(fb.dp_colin(mechanism="sums", **GAMMAS), world, env)
    again.coordinator.privatise = lambda member: Replay(released[member])
    converse(again, env, other_rewards)
    downloads = [[encode(m) for m in one.sent if isinstance(m, Download)] for one in (link, again)]
    assert downloads[0] == downloads[1]
    uploads = [[encode(m) for m in one.sent if isinstance(m, Upload)] for one in (link, again)]
    assert uploads[0] != uploads[1]


def released_by(system: System, world: fb.World, env: Any) -> dict[int, list[Array]]:
    """What a trusted coordinator made of each upload."""
    link = Listener(system, world, 3)
    keeper = link.coordinator
    assert isinstance(keeper, Star)
    assert keeper.privatise is not None
    make, found = keeper.privatise, {i: list[Array]() for i in range(world.n_clients)}

    class Recorder:
        def __init__(self, member: int) -> None:
            stream = make(member)
            assert stream is not None
            self.stream, self.member = stream, member

        def release(self, sums: Sums) -> Sums:
            released = self.stream.release(sums)
            found[self.member].append(released.b)
            return released

        def state(self) -> dict[str, Any]:
            return self.stream.state()

        def restore(self, saved: Mapping[str, Any]) -> None:
            self.stream.restore(saved)

    keeper.privatise = Recorder
    converse(link, env, lambda _, y: y)
    return found


def test_local_noise_is_drawn_by_the_client_and_global_noise_by_the_coordinator() -> None:
    world = fb.World(4, 3, 100, graph=np.full((4, 4), 0.25))
    local, trusting = (Link(make(mechanism="sums", **GAMMAS), world) for make in (fb.ldp_colin, fb.dp_colin))
    assert all(local.client(i).stream is not None for i in range(4))
    assert all(trusting.client(i).stream is None for i in range(4))
    assert isinstance(local.coordinator, Star)
    assert isinstance(trusting.coordinator, Star)
    assert local.coordinator.privatise is None
    assert trusting.coordinator.privatise is not None


@pytest.mark.parametrize(("name", "ratio"), [("identity", 5.0), ("uniform", 15.811388)])
def test_what_is_published_is_less_private_than_it_claims(name: str, ratio: float) -> None:
    W = np.eye(10) if name == "identity" else np.full((10, 10), 0.1)
    for site in ("client", "coordinator"):
        system = System(UCB(), Never(), WeightedGraph(W, isolated=True), PublishedSums(2.0, site))
        told = system.told(fb.World(10, 25, 10_000))
        assert told.guarantee.true_epsilon == pytest.approx(2.0 * ratio)
        assert isinstance(told.privacy, PublishedSums)
        dense = np.kron(W[0], np.full(25, 0.2))  # x of norm 1 with equal entries
        mechanism = told.privacy.mechanism_of(0)
        assert np.abs(dense).sum() * mechanism.factorisation.column_norm(1) / mechanism.scale == pytest.approx(
            2.0 * ratio
        )


def test_the_gamma_tree_passes_the_audit_and_a_smaller_scale_fails_it() -> None:
    told = RewardSums(1.0, releases=4).told(fb.World(4, 3, 100), 100)
    mechanism = told.mechanism
    assert epsilon_of(mechanism) == pytest.approx(1.0)
    difference = np.array([1.0, 0.0, 0.0])  # a reward of 1 instead of 0
    rng = np.random.default_rng(0)
    assert 0.3 < attack(mechanism, difference, 0 * difference, rng, trials=20_000).lower_bound <= 1.0
    weaker = replace(mechanism, scale=mechanism.scale / 4)
    assert attack(weaker, difference, 0 * difference, rng, trials=20_000).lower_bound > 1.0


@pytest.mark.parametrize(("dim", "horizon", "expected"), [(5, 2_000, NoisyRewards), (5, 100_000, RewardSums)])
def test_the_mechanism_with_less_noise_is_taken(dim: int, horizon: int, expected: type) -> None:
    world = fb.World(1, dim, horizon)
    privacy = PrivateRewards(1.0)
    assert isinstance(privacy.told(world, horizon), expected)
    on_rewards, on_sums = privacy.squares(world, horizon)
    assert (on_rewards <= on_sums) == (expected is NoisyRewards)


def test_without_noise_private_systems_are_the_plain_ones() -> None:
    env = fb.environments.collaborative(n_clients=4, dim=3, n_arms=5, rewards="bernoulli")
    plain = fb.simulate(fb.colin(), env, 200)
    for keywords in ({"mechanism": "sums"}, {"mechanism": "rewards"}, {"calibration": "published"}):
        result = fb.simulate(fb.dp_colin(epsilon=math.inf, **keywords), env, 200)  # type: ignore[arg-type]
        np.testing.assert_array_equal(result.arms, plain.arms)
        assert result.guarantee.basis == "none"


def test_rewards_out_of_range_are_refused_in_a_sentence() -> None:
    log, W = random_log(1, "large", horizon=50), random_graph(1)
    for privacy in (
        RewardSums(1.0, excess="refuse"),
        PublishedSums(1.0, excess="refuse"),
        NoisyRewards(1.0, excess="refuse"),
    ):
        with pytest.raises(fb.FedbanditError, match=r"guarantee holds for rewards in \[0, 1\]"):
            fb.simulate(System(UCB(), Never(), WeightedGraph(W), privacy), recorded(log), 50)


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        (
            {"protocol": EventTriggered(), "structure": Everyone(), "privacy": RewardSums()},
            "learns from its own rewards",
        ),
        (
            {
                "protocol": EventTriggered(),
                "structure": WeightedGraph(central=False, fresh=False),
                "privacy": RewardSums(),
            },
            "read counts",
        ),
        ({"protocol": Never(), "structure": WeightedGraph(), "privacy": PrivateStatistics()}, "on a graph of users"),
        ({"protocol": Never(), "structure": WeightedGraph(central=False)}, "need a protocol in which they upload"),
        ({"protocol": CountTriggered(), "structure": WeightedGraph(), "privacy": RewardSums()}, "nobody to exchange"),
        (
            {"protocol": CountTriggered(), "structure": WeightedGraph(central=False), "privacy": PublishedSums()},
            "in one place",
        ),
    ],
)
def test_unsound_pairs_are_refused(parts: dict[str, Any], sentence: str) -> None:
    with pytest.raises(fb.FedbanditError, match=sentence):
        System(**parts)


def test_a_checkpoint_keeps_the_noise(tmp_path: Any) -> None:
    from fedbandit.engine.checkpoint import fingerprint, write_checkpoint

    env = fb.environments.collaborative(n_clients=3, dim=2, n_arms=4, pool=20)
    for system in (
        fb.dp_colin(mechanism="sums"),
        fb.ldp_goblin(calibration="published"),
        fb.dp_colin(mechanism="sums", gamma_upload=1.5, gamma_download=1.5),
    ):
        half = Simulation(system, env, 4300, 7)
        half.advance()
        path = tmp_path / "half.npz"
        write_checkpoint(path, half, fingerprint(system, env, 4300, 7))
        again = fb.simulate(system, env, 4300, 7, checkpoint=path)
        np.testing.assert_array_equal(again.arms, fb.simulate(system, env, 4300, 7).arms)
        path.unlink()
