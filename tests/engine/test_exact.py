"""Both engines against the naive oracles: equal arms, regret, messages and final statistics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedbandit as fb
from fedbandit.engine.fast.cohorts import is_crowded
from fedbandit.engine.fast.hub import catch_up
from fedbandit.engine.fast.packed import unpacked
from fedbandit.engine.fast.row import N_OWN, N_PENDING, N, inverse_of, theta_of
from fedbandit.engine.fast.row_model import pending_sums, shared_sums
from fedbandit.engine.fast.rows import RowsLearner
from fedbandit.engine.fast.statistics import scratch_matrix
from fedbandit.engine.plain import PlainLearner
from fedbandit.engine.simulation import Engine, Simulation
from fedbandit.environments.recorded import RecordedStream
from fedbandit.machines.link import Carrier, Link
from fedbandit.machines.local_server import LocalServers
from fedbandit.policies import UCB, Greedy, LinPHE, LinTS, Policy, SquaredBonus, Uniform, Widest
from fedbandit.protocols import CountTriggered, EventTriggered, MessageProtocol, Synchronous
from fedbandit.structures import FixedGroups
from fedbandit.sums import LARGE, Sums
from fedbandit.system import System
from fedbandit.types import Array
from tests.logs import KINDS, random_log, recorded
from tests.oracles import naive
from tests.oracles.naive import Log, Outcome

POLICIES: dict[str, tuple[Policy, naive.Policy]] = {
    "ucb": (UCB(), naive.Policy("ucb")),
    "ucb-wide": (UCB(noise=1.0, confidence=0.01), naive.Policy("ucb", sigma=1.0, delta=0.01)),
    "ucb-fixed": (UCB(alpha=0.3), naive.Policy("ucb", alpha=0.3)),
    "squared": (SquaredBonus(), naive.Policy("squared")),
    "widest": (Widest(), naive.Policy("widest")),
    "greedy": (Greedy(), naive.Policy("greedy")),
    "lints": (LinTS(), naive.Policy("lints")),
    "lints-fixed": (LinTS(alpha=0.2), naive.Policy("lints", alpha=0.2)),
    "linphe": (LinPHE(), naive.Policy("linphe")),
    "linphe-fixed": (LinPHE(alpha=0.5), naive.Policy("linphe", alpha=0.5)),
    "uniform": (Uniform(), naive.Policy("uniform")),
}

LABELS = (0, 2, 0, 1, 2, 2)
PER_CLIENT = (1.0, 1.5, 5.0, math.inf, 2.0, 1.2)
OTHERS = (5.0, 1.0, 1.0, 3.0, math.inf, 1.5)


@dataclass(frozen=True)
class Case:
    """A system for six clients, in the package's words and in the oracle's."""

    system: Callable[[Policy], System]
    oracle: Callable[..., Outcome]
    keywords: dict[str, Any]


def preset_case(name: str, **keywords: Any) -> Case:
    """A preset, and the oracle of the same name."""
    given = {key: np.array(value) if isinstance(value, tuple) else value for key, value in keywords.items()}
    return Case(lambda policy: getattr(fb, name)(policy=policy, **given), getattr(naive, name), keywords)


def grouped_case(protocol: MessageProtocol, oracle: Callable[..., Outcome], **keywords: Any) -> Case:
    """A protocol within fixed groups."""
    return Case(lambda policy: System(policy, protocol, FixedGroups(LABELS)), oracle, {**keywords, "labels": LABELS})


def cases() -> dict[str, Case]:
    """Every preset with many settings, and fixed groups."""
    found = {"linucb": preset_case("linucb"), "linucb_central": preset_case("linucb_central")}
    for warm in (False, True):
        how = "warm" if warm else "cold"
        for threshold in (None, 0.0, 0.1, 5.0, math.inf):
            keywords: dict[str, Any] = {"threshold": threshold, "warm_join": warm}
            found[f"sync-{threshold}-{how}"] = preset_case("sync_linucb", **keywords)
        keywords = {"threshold": 0.5, "warm_join": warm}
        found[f"groups-sync-{how}"] = grouped_case(Synchronous(**keywords), naive.sync_linucb, **keywords)
        for gamma in (1.0, 1.5, 5.0, math.inf):
            keywords = {"gamma_upload": gamma, "gamma_download": gamma, "warm_join": warm}
            found[f"async-{gamma}-{how}"] = preset_case("async_linucb", **keywords)
        for up, down, name in ((1.2, 20.0, "talk"), (20.0, 1.2, "listen"), (PER_CLIENT, OTHERS, "each")):
            keywords = {"gamma_upload": up, "gamma_download": down, "warm_join": warm}
            found[f"async-{name}-{how}"] = preset_case("async_linucb", **keywords)
        for up, down, name in (
            (1.0, 1.0, "1"),
            (1.5, 1.5, "1.5"),
            (2.0, 2.0, "2"),
            (3.0, 1.25, "listen"),
            (math.inf, math.inf, "inf"),
            (PER_CLIENT, OTHERS, "each"),
        ):
            keywords = {"factor_upload": up, "factor_download": down, "warm_join": warm}
            found[f"count-{name}-{how}"] = preset_case("count_linucb", **keywords)
        gammas: dict[str, Any] = {"gamma_upload": 1.5, "gamma_download": 1.5, "warm_join": warm}
        found[f"groups-async-{how}"] = grouped_case(EventTriggered(**gammas), naive.async_linucb, **gammas)
        gammas = {"gamma_upload": PER_CLIENT, "gamma_download": OTHERS, "warm_join": warm}
        protocol = EventTriggered(np.array(PER_CLIENT), np.array(OTHERS), warm)
        found[f"groups-each-{how}"] = grouped_case(protocol, naive.async_linucb, **gammas)
        factors: dict[str, Any] = {"factor_upload": 1.5, "factor_download": 2.0, "warm_join": warm}
        found[f"groups-count-{how}"] = grouped_case(CountTriggered(**factors), naive.count_linucb, **factors)
    return found


CASES = cases()
ENGINES: tuple[Engine, Engine] = ("fast", "plain")


def run(system: System, log: Log, *, seed: int = 0, engine: Engine = "fast") -> Simulation:
    """The finished simulation."""
    simulation = Simulation(system, recorded(log), len(log.clients), seed, engine=engine)
    while not simulation.finished:
        simulation.advance()
    return simulation


def check_equal(simulation: Simulation, expected: Outcome) -> None:
    """Arms, regret and messages are those of the oracle."""
    result = simulation.result()
    different = np.flatnonzero(result.arms != expected.arms)
    assert different.size == 0, f"arms differ, first in round {different[0]}"
    np.testing.assert_array_equal(result.communication.per_round_uploads, expected.uploads)
    np.testing.assert_array_equal(result.communication.per_round_downloads, expected.downloads)
    np.testing.assert_allclose(result.regret, expected.regret, rtol=1e-9, atol=1e-9)


class Had(NamedTuple):
    """What one client has in the end."""

    sums: Sums
    inverse: Array
    theta: Array


def had_by(simulation: Simulation, r: int) -> Had:
    """What client r has, whichever engine ran."""
    learner, d = simulation.learner, simulation.env.dim
    if isinstance(learner, PlainLearner):
        if isinstance(learner.machines, LocalServers):
            model: Any = learner.machines.servers[0].model_of(r)
        else:
            assert isinstance(learner.machines, Link)
            model = learner.machines.client(r).model
        return Had(Sums(model.V, model.b, model.n), model.inverse, model.theta)
    assert isinstance(learner, RowsLearner)
    row = learner.rows[learner.slots.slot_of[r]]
    if learner.rules.speaks:
        catch_up(learner.hub, r, row, d, learner.rules.ridge, scratch_matrix(d))
    (V, b, n), pending = shared_sums(row, d), pending_sums(row, d)
    assert row[N] >= row[N_OWN] >= row[N_PENDING] >= 0
    return Had(Sums(V + pending.V, b + pending.b, n), unpacked(inverse_of(row, d), d), theta_of(row, d).copy())


def gathered_by(simulation: Simulation, g: int) -> Sums | None:
    """What the coordinator has for group g, if there is one."""
    learner = simulation.learner
    if isinstance(learner, RowsLearner) and learner.rules.speaks:
        return shared_sums(learner.hub.pool[g], simulation.env.dim)
    link = learner.machines if isinstance(learner, PlainLearner) else getattr(learner, "link", None)
    machine = link.coordinator if isinstance(link, Carrier) else None
    return None if machine is None else Sums(machine.members.V[g], machine.members.b[g], 0)


def check_statistics(simulation: Simulation, expected: Outcome, *, central: bool = False) -> None:
    """What every client and every coordinator has in the end is what the oracle's have."""
    d, ridge = simulation.env.dim, float(simulation.system.ridge)
    if isinstance(simulation.learner, RowsLearner):
        simulation.learner.settle()
    for r in {0} if central else set(expected.V):
        V = expected.V[next(iter(expected.V)) if central else r]
        b = expected.b[next(iter(expected.b)) if central else r]
        had = had_by(simulation, r)
        size = 1 + np.abs(V).max()
        np.testing.assert_allclose(had.sums.V, V, atol=1e-9 * size)
        np.testing.assert_allclose(had.sums.b, b, atol=1e-9 * size)
        inverse = np.linalg.inv(V + ridge * np.eye(d))
        np.testing.assert_allclose(had.inverse, inverse, atol=1e-9 / ridge)
        np.testing.assert_allclose(had.theta, inverse @ b, atol=1e-8)
    for g, (V, b) in enumerate(zip(expected.server_V, expected.server_b, strict=True)):
        pool = gathered_by(simulation, g)
        if pool is not None:
            size = 1 + np.abs(V).max()
            np.testing.assert_allclose(pool.V, V, atol=1e-9 * size)
            np.testing.assert_allclose(pool.b, b, atol=1e-9 * size)


def check_case(case: Case, policy: str, log: Log, *, seed: int) -> None:
    """Oracle, fast engine and plain engine agree."""
    of_package, of_oracle = POLICIES[policy]
    expected = case.oracle(log, of_oracle, seed=seed, **case.keywords)
    for engine in ENGINES:
        simulation = run(case.system(of_package), log, seed=seed, engine=engine)
        check_equal(simulation, expected)
        check_statistics(simulation, expected, central=case.oracle is naive.linucb_central)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_every_system_chooses_and_speaks_as_the_oracle(name: str, kind: str) -> None:
    """UCB, every system, every kind of data."""
    seed = 10 * list(CASES).index(name) + KINDS.index(kind)
    check_case(CASES[name], "ucb", random_log(seed, kind), seed=seed)


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy != "ucb"])
@pytest.mark.parametrize("name", CASES)
def test_every_policy_in_every_system_chooses_as_the_oracle(name: str, policy: str) -> None:
    """Every pair on one kind of data, which differs from pair to pair."""
    seed = 10 * list(CASES).index(name) + list(POLICIES).index(policy)
    check_case(CASES[name], policy, random_log(seed, KINDS[seed % len(KINDS)], horizon=60), seed=seed)


@pytest.mark.parametrize("longest_delay", [1, 7, 1000])
@pytest.mark.parametrize("name", CASES)
def test_rewards_that_arrive_late(name: str, longest_delay: int) -> None:
    """Rewards that are due at once, out of order, or after the end."""
    seed = longest_delay + list(CASES).index(name)
    policy = list(POLICIES)[seed % len(POLICIES)]
    log = random_log(seed, KINDS[seed % len(KINDS)], horizon=70, longest_delay=longest_delay)
    check_case(CASES[name], policy, log, seed=seed)


@pytest.mark.parametrize("labels", [(0,), (0, 0), (0, 0, 1), LABELS])
def test_any_number_of_clients_can_be_grouped(labels: tuple[int, ...]) -> None:
    """A system is composed before it knows the world."""
    assert System(UCB(), EventTriggered(), FixedGroups(labels)).structure == FixedGroups(labels)


@pytest.mark.parametrize("seed", range(3))
def test_uniform_preset(seed: int) -> None:
    """The preset without keywords."""
    log = random_log(seed)
    check_equal(run(fb.uniform(), log, seed=seed), naive.uniform(log, seed=seed))


@pytest.mark.parametrize("chunk", [1, 7, 64])
@pytest.mark.parametrize("name", ["linucb", "sync-0.1-cold", "async-1.5-cold", "count-2-warm", "groups-each-warm"])
def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch, name: str, chunk: int) -> None:
    """Events and late rewards at the edges of blocks."""
    monkeypatch.setattr(RecordedStream, "chunk", chunk)
    check_case(CASES[name], "lints", random_log(chunk, longest_delay=9), seed=chunk)


@pytest.mark.parametrize("warm_join", [False, True])
@pytest.mark.parametrize("engine", ENGINES)
def test_more_clients_than_rooms(engine: Engine, warm_join: bool) -> None:
    """Rows and the hub's cohorts have to grow: 400 clients, most of whom act once or twice."""
    log = random_log(7, n_clients=400, horizon=900, dim=2, most_arms=3, skewed=True)
    gammas: dict[str, Any] = {"gamma_upload": 1.2, "gamma_download": 3.0, "warm_join": warm_join}
    expected = naive.async_linucb(log, naive.Policy(), **gammas)
    simulation = run(fb.async_linucb(**gammas), log, engine=engine)
    check_equal(simulation, expected)
    check_statistics(simulation, expected)


def test_long_run_of_one_client_across_refreshes() -> None:
    """More observations than are made between two refreshes, and many more than are listed as pending."""
    log = random_log(3, n_clients=2, horizon=700, dim=3, most_arms=4)
    gammas: dict[str, Any] = {"gamma_upload": 50.0, "gamma_download": 2.0}
    expected = naive.async_linucb(log, naive.Policy(), **gammas)
    for engine in ENGINES:
        simulation = run(fb.async_linucb(**gammas), log, engine=engine)
        check_equal(simulation, expected)
        check_statistics(simulation, expected)


# ------------------------------------------------------------------------------------------- any system, any data

factors = st.sampled_from([1.0, 1.0 + 1e-6, 1.1, 1.5, 2.0, 5.0, 100.0, math.inf])


@st.composite
def anything(draw: st.DrawFn) -> tuple[Case, str, Log, int]:
    """A system with random parameters, a policy, data, and a seed."""
    n = draw(st.integers(1, 9), label="clients")
    log = random_log(
        draw(st.integers(0, 2**20), label="data seed"),
        draw(st.sampled_from(KINDS), label="kind"),
        horizon=draw(st.integers(1, 60), label="horizon"),
        n_clients=n,
        dim=draw(st.integers(1, 6), label="dim"),
        most_arms=draw(st.integers(1, 9), label="arms"),
        longest_delay=draw(st.sampled_from([0, 0, 1, 3, 20]), label="longest delay"),
        skewed=draw(st.booleans(), label="skewed"),
    )
    labels: Sequence[int] | None = None
    if draw(st.booleans(), label="groups"):
        labels = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n), label="labels")
    ridge = draw(st.sampled_from([0.01, 0.1, 1.0, 10.0]), label="ridge")
    each = factors | st.lists(factors, min_size=n, max_size=n)
    name = draw(st.sampled_from(["sync", "async", "count"]), label="protocol")
    warm = draw(st.booleans(), label="warm join")
    keywords: dict[str, Any] = {"labels": labels, "ridge": ridge}
    protocol: MessageProtocol
    if name == "sync":
        threshold = draw(st.none() | st.sampled_from([0.0, 0.01, 0.5, 3.0, math.inf]), label="threshold")
        keywords |= {"threshold": threshold, "warm_join": warm}
        protocol = Synchronous(threshold, warm_join=warm)
    else:
        up, down = draw(each, label="upload"), draw(each, label="download")
        kind = EventTriggered if name == "async" else CountTriggered
        what = "gamma" if name == "async" else "factor"
        keywords |= {f"{what}_upload": up, f"{what}_download": down, "warm_join": warm}
        both = [np.array(value) if isinstance(value, list) else value for value in (up, down)]
        protocol = kind(both[0], both[1], warm)
    oracles: dict[str, Callable[..., Outcome]] = {
        "sync": naive.sync_linucb,
        "async": naive.async_linucb,
        "count": naive.count_linucb,
    }

    def system(policy: Policy) -> System:
        structure = fb.structures.Everyone() if labels is None else FixedGroups(labels)
        return System(policy, protocol, structure, ridge=ridge)

    return Case(system, oracles[name], keywords), draw(st.sampled_from(list(POLICIES))), log, draw(st.integers(0, 99))


@given(anything())
def test_anything(drawn: tuple[Case, str, Log, int]) -> None:
    """Whatever the parameters and the data."""
    case, policy, log, seed = drawn
    check_case(case, policy, log, seed=seed)


# -------------------------------------------------------------------------------------------------------- the limits

LEARNERS = ("ucb", "ucb-fixed", "greedy")  # the others draw from streams that the central learner does not have


def arms_of(system: System, log: Log) -> naive.Ints:
    """The arms that a system chooses."""
    return run(system, log).result().arms


@pytest.mark.parametrize("policy", LEARNERS)
@pytest.mark.parametrize("kind", ["ball", "sphere", "few", "large"])
@pytest.mark.parametrize("seed", range(3))
def test_limits(seed: int, kind: str, policy: str) -> None:
    """γ = 1 and threshold 0 with warm joining are centralised; γ = ∞ and threshold ∞ are independent."""
    log = random_log(100 + seed, kind, horizon=300)
    chosen = POLICIES[policy][0]
    central = arms_of(fb.linucb_central(policy=chosen), log)
    alone = arms_of(fb.linucb(policy=chosen), log)
    assert (central != alone).any()

    always = fb.async_linucb(gamma_upload=1.0, gamma_download=1.0, warm_join=True, policy=chosen)
    np.testing.assert_array_equal(arms_of(always, log), central)
    together = fb.sync_linucb(threshold=0.0, warm_join=True, policy=chosen)
    np.testing.assert_array_equal(arms_of(together, log), central)
    never = fb.async_linucb(gamma_upload=math.inf, gamma_download=math.inf, policy=chosen)
    np.testing.assert_array_equal(arms_of(never, log), alone)
    np.testing.assert_array_equal(arms_of(fb.sync_linucb(threshold=math.inf, policy=chosen), log), alone)


@pytest.mark.parametrize("engine", ENGINES)
def test_large_models_that_are_sent_after_every_observation(engine: Engine) -> None:
    """They follow from the last one sent, and are that of a centralised learner."""
    env = fb.environments.homogeneous(n_clients=3, dim=LARGE, n_arms=6)
    together, central = (
        fb.simulate(system, env, 300, 0, engine=engine).arms
        for system in (fb.sync_linucb(threshold=0.0, warm_join=True), fb.linucb_central())
    )
    np.testing.assert_array_equal(together, central)


def test_always_communicates_every_round() -> None:
    """γ = 1: every observation is uploaded, and everyone else who is known downloads it."""
    log = random_log(5, "sphere", horizon=200)
    system = fb.async_linucb(gamma_upload=1.0, gamma_download=1.0, warm_join=True)
    communication = run(system, log).result().communication
    assert (communication.per_round_uploads == 1).all()
    known = np.array([len(set(log.clients[: t + 1].tolist())) for t in range(200)])
    joined_late = np.diff(known, prepend=1)  # a warm join is a download too, unless there is nothing yet
    np.testing.assert_array_equal(communication.per_round_downloads, known - 1 + joined_late)


def test_silence_when_infinite() -> None:
    """γ = ∞: no message at all."""
    log = random_log(6)
    for system in (fb.async_linucb(gamma_upload=math.inf), fb.sync_linucb(threshold=math.inf)):
        assert run(system, log).result().communication.messages == 0


@pytest.mark.parametrize("policy", ["ucb", "linphe"])
def test_a_crowd_of_cohorts(policy: str) -> None:
    """Thousands of clients with snapshots of their own: both engines come to the same."""
    env = fb.environments.homogeneous(n_clients=15_000, dim=3, n_arms=3, pool=50, delay=(0, 3))
    outcomes = []
    for engine in ENGINES:
        simulation = Simulation(fb.async_linucb(policy=POLICIES[policy][0]), env, 20_000, 0, engine=engine)
        while not simulation.finished:
            simulation.advance()
        if engine == "fast":
            assert isinstance(simulation.learner, RowsLearner)
            assert is_crowded(simulation.learner.hub)
        result = simulation.result()
        outcomes.append((result.arms, result.communication.uploads, result.communication.downloads))
    (arms, *sent), (arms_again, *sent_again) = outcomes
    np.testing.assert_array_equal(arms, arms_again)
    assert sent == sent_again
