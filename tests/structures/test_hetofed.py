"""Clusters that are found while running, against the naive oracles: equal arms, messages and clusters."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise as pairwise_of
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import ncx2

import fedbandit as fb
from fedbandit.engine.result import Result
from fedbandit.engine.simulation import Simulation
from fedbandit.machines.client import ClientMachine
from fedbandit.messages import Collect, Download, Receipt, Request, Threshold, Upload
from fedbandit.policies import UCB
from fedbandit.protocols import EventTriggered, Never, Scheduled, ServerQueue, Synchronous
from fedbandit.protocols.queue import RULES, QueueCoordinator
from fedbandit.sharing import Members
from fedbandit.structures import Everyone, EvidenceClusters, HomogeneityCliques, Neighbourhoods
from fedbandit.structures.exploration import theorem_rounds
from fedbandit.sums import Sums
from tests.oracles import naive_hetofed
from tests.oracles.naive import Log, Policy
from tests.oracles.naive_hetofed import Client, Run

N, DIM, ROUNDS = 6, 3, 30


def round_log(seed: int, *, rounds: int = ROUNDS, n_clusters: int = 2, few: bool = False) -> Log:
    """Rounds in which everybody acts, with clusters of clients; `few` offers a handful of arms, often twice."""
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal((n_clusters, DIM))
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    handful = rng.standard_normal((5, DIM)) / 3
    clients = np.tile(np.arange(N), rounds)
    arms, means, rewards = [], [], []
    for i in clients:
        k = int(rng.integers(2, 6))
        X = handful[rng.integers(0, 5, size=k)] if few else rng.uniform(-1, 1, size=(k, DIM)) / math.sqrt(DIM)
        arms.append(X)
        means.append(X @ theta[i % n_clusters])
        rewards.append(means[-1] + 0.1 * rng.standard_normal(k))
    return Log(clients, arms, means, rewards, N)


def simulate(system: fb.System, log: Log) -> Result:
    """The log, replayed in rounds of all clients."""
    env = fb.environments.recorded(log.clients, log.arms, log.means, log.rewards, n_clients=N, rounds="all", noise=0.1)
    return fb.simulate(system, env, len(log.clients) // N)


def agree(result: Result, run: Run) -> None:
    """Equal arms, messages and, at the end, clusters."""
    assert result.arms.reshape(-1).tolist() == run.arms
    assert result.communication.per_round_uploads.tolist() == np.reshape(run.uploads, (-1, N)).sum(axis=1).tolist()
    assert result.communication.per_round_downloads.tolist() == np.reshape(run.downloads, (-1, N)).sum(axis=1).tolist()
    assert sorted(result.clusters[-1]) == sorted(run.clusters)


def limit_of(rule: str) -> Callable[[int], float]:
    world = fb.World(N, DIM, N * ROUNDS, per_round=N)
    return lambda size: RULES[rule](world, size)


WIDEST = Policy("widest")
PAPER, CODE = "T log(|C|T)/(d|C|)", "T/(|C| d log T)"
QUEUES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "fifo": ("hetofedbandit", {"exploration": 6}, {"margin": "tight", "level": 0.5, "explorer": WIDEST}),
    "published": (
        "hetofedbandit",
        {"exploration": 6, "margin": "published", "test_level": 0.1, "explore": "random"},
        {"margin": "published", "level": 0.1},
    ),
    "pq": ("hetofedbandit_pq", {"exploration": 6, "explore": "random"}, {"margin": "tight", "level": 0.5}),
    "dr": ("hetofedbandit_dr", {"exploration": 6}, {"margin": "data", "explorer": WIDEST}),
    "e": ("hetofedbandit_e", {}, {"margin": "data"}),
    "e-explores": ("hetofedbandit_e", {"exploration": 4, "explore": "random"}, {"margin": "data"}),
}


@pytest.mark.parametrize(("case", "rule"), [*((case, CODE) for case in QUEUES), ("fifo", PAPER), ("e", PAPER)])
def test_queue_equals_its_oracle(case: str, rule: str) -> None:
    name, keywords, facts = QUEUES[case]
    for seed, few in ((0, False), (1, True)):
        log = round_log(seed, few=few, n_clusters=2 + seed)
        run = naive_hetofed.queue(
            log,
            exploration=keywords.get("exploration", 0),
            order="priority" if name.endswith(("_pq", "_e")) else "fifo",
            recluster=name.endswith(("_dr", "_e")),
            limit=limit_of(rule),
            **facts,
        )
        agree(simulate(getattr(fb, name)(threshold=rule, **keywords), log), run)


OVERLAPPING, OVERLAPPING_FACTS = {"margin": "none", "test_level": 0.99}, {"margin": "none", "level": 0.99}
LETTER: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "alg2": ("hetofedbandit", {"exploration": 6}, {"margin": "published"}),
    "alg2-pq": ("hetofedbandit_pq", {"exploration": 4} | OVERLAPPING, OVERLAPPING_FACTS),
    "alg2-overlaps": ("hetofedbandit", {"exploration": 6} | OVERLAPPING, OVERLAPPING_FACTS),
    "alg2-models": ("hetofedbandit", {"exploration": 6, "shares": "models"} | OVERLAPPING, OVERLAPPING_FACTS),
    "alg5": ("hetofedbandit_e", {}, {"margin": "data"}),
    "alg5-fifo": ("hetofedbandit_dr", {"exploration": 3}, {"margin": "data"}),
    "alg5-models": ("hetofedbandit_e", {"shares": "models"}, {"margin": "data"}),
}


@pytest.mark.parametrize("rule", [CODE, PAPER])
@pytest.mark.parametrize("case", LETTER)
def test_as_printed_is_the_paper_to_the_letter(case: str, rule: str) -> None:
    """Also where cliques overlap: tests that find true clusters unlike, and few arms to go by."""
    name, keywords, facts = LETTER[case]
    overlapping = 0
    for seed, few in ((0, False), (1, True), (2, False), (3, False)):
        log = round_log(seed, few=few, n_clusters=2 + seed % 2)
        run = naive_hetofed.to_the_letter(
            log,
            exploration=keywords.get("exploration", 0),
            order="priority" if name.endswith(("_pq", "_e")) else "fifo",
            recluster=name.endswith(("_dr", "_e")),
            limit=limit_of(rule),
            shares=keywords.get("shares", "buffers"),
            **facts,
        )
        agree(simulate(getattr(fb, name)(as_printed=True, threshold=rule, **keywords), log), run)
        overlapping += sum(map(len, run.clusters)) > N
    assert overlapping or "margin" not in keywords


def test_a_level_per_pair_is_that_of_each_test() -> None:
    log = round_log(1, few=True, n_clusters=3)
    keywords: dict[str, Any] = {"exploration": 6, "explore": "random", "margin": "none", "threshold": CODE}
    run = naive_hetofed.queue(
        log,
        exploration=6,
        order="fifo",
        recluster=False,
        limit=limit_of(CODE),
        margin="none",
        level=0.2,
        per_pair=True,
    )
    agree(simulate(fb.hetofedbandit(pair_level=0.2, **keywords), log), run)
    with pytest.raises(fb.FedbanditError, match="both given"):
        fb.hetofedbandit(pair_level=0.2, test_level=0.1)


def test_the_widest_arm_does_not_depend_on_rewards() -> None:
    """Rewards in other units do not make exploration greedy."""
    log = round_log(0)
    larger = log._replace(means=[1e4 * m for m in log.means], rewards=[1e4 * r for r in log.rewards])
    explores = fb.hetofedbandit(exploration=ROUNDS + 1)
    np.testing.assert_array_equal(simulate(explores, log).arms, simulate(explores, larger).arms)


@pytest.mark.parametrize(("n_clusters", "gap"), [(1, 0.85), (4, 0.85), (4, 0.3)])
def test_the_theorem_s_exploration_is_that_of_its_formula(n_clusters: int, gap: float) -> None:
    n, d, T, sigma, delta = 10, 5, 500, 0.1, 0.1
    v = ncx2.isf(delta / n**2, d, 1 / sigma**2)
    psi = brentq(lambda psi: ncx2.cdf(v, d, psi) - delta / n**2 / max(n_clusters - 1, 1), 1, 10_000)
    expected = min(16 * psi * sigma**2 * d / gap**2, 64 * d / 3 * math.log(2 * T * d / delta))
    assert theorem_rounds(fb.World(n, d, n * T), gap, n_clusters) == math.ceil(expected)
    printed = fb.hetofedbandit(as_printed=True, gap=gap, n_clusters=n_clusters).structure
    assert isinstance(printed, HomogeneityCliques)
    assert printed.rounds(fb.World(n, d, n * T)) == math.ceil(expected)
    with pytest.raises(fb.FedbanditError, match="say gap"):
        fb.hetofedbandit(exploration="theorem")


def test_the_doubling_trick_explores_again() -> None:
    """Widest arms in its phases and only there, and clusters are looked for at the end of each."""
    log = round_log(3, rounds=75)
    system = fb.hetofedbandit(exploration="doubling", threshold=1e9)
    result = simulate(system, log)
    first = math.ceil(1.65 * DIM)
    exploring = [t for start, end in ((0, first), (4 * first, 6 * first)) for t in range(start, end)]
    clients = [Client() for _ in range(N)]
    for t in range(75):
        for i in range(N):
            policy = WIDEST if t in exploring else Policy()
            assert naive_hetofed.act(clients[i], i, log, t * N + i, policy, 0) == result.arms[t, i]
    per_round = result.communication.per_round_uploads
    assert np.flatnonzero(per_round == N).tolist() == [first - 1, 6 * first - 1]
    assert system.structure.explores_again(fb.World(N, DIM, 75 * N), 4 * first)


def test_an_own_test_says_who_is_alike() -> None:
    """The hook: whatever function says, its cliques share."""

    def odd_and_even(members: Members, world: fb.World) -> NDArray[np.bool_]:
        assert members.n.sum() == world.n_clients * 6
        parity = np.arange(world.n_clients) % 2
        return parity[:, None] == parity

    def one_way(members: Members, world: fb.World) -> NDArray[np.bool_]:  # noqa: ARG001 - it looks at nothing
        return np.triu(np.ones((world.n_clients, world.n_clients), dtype=bool))

    log = round_log(0)
    result = simulate(fb.hetofedbandit(exploration=6, test=odd_and_even), log)
    assert result.clusters[-1] == [[0, 2, 4], [1, 3, 5]]
    assert "odd_and_even" in str(result.parameters["structure.test"])
    with pytest.raises(fb.FedbanditError, match="symmetric"):
        simulate(fb.hetofedbandit(exploration=6, test=one_way), log)


@pytest.mark.parametrize("engine", ["plain", "fast"])
def test_results_know_who_was_served_and_how_long_they_waited(engine: Literal["plain", "fast"], tmp_path: Path) -> None:
    """Three pairs ask at once, in the first round after exploration, and are served one by one."""
    env = fb.environments.clustered(
        n_clients=6, dim=3, n_arms=4, n_clusters=3, gap=0.9, sizes=(2, 2, 2), contexts="sphere", rounds="all"
    )
    system = fb.hetofedbandit(exploration=12, threshold=1.0)
    result = fb.simulate(system, env, 60, seed=1, engine=engine)
    assert result.served[:3] == [(13, (0, 1), 1), (14, (2, 3), 2), (15, (4, 5), 3)]
    assert 2 * len(result.served) == result.communication.downloads
    assert result.edges() == [(0, 1), (2, 3), (4, 5)]
    assert result.edges(0) == []
    assert Result.load(result.save(tmp_path / "served.npz")).served == result.served
    half = tmp_path / "half.npz"
    stopped = Simulation(system, env, 60, 1, engine=engine)
    stopped.keep(half, 14)
    while stopped.round < 14:
        stopped.advance()
    assert fb.simulate(system, env, 60, seed=1, engine=engine, checkpoint=half).served == result.served
    assert fb.simulate(fb.linucb(), env, 5, seed=1).served == []


@pytest.mark.parametrize("odds", [0.0, 6.0])
def test_evidence_on_a_schedule_equals_its_oracle(odds: float) -> None:
    for seed, few in ((0, False), (1, True)):
        log = round_log(seed, few=few, n_clusters=2 + seed)
        agree(
            simulate(fb.clustered_linucb(growth=1.4, odds=odds), log),
            naive_hetofed.scheduled(log, growth=1.4, odds=odds),
        )


@pytest.mark.parametrize(("up", "down", "exploration"), [(2.0, 2.0, 0), (1.5, 5.0, 5)])
def test_asynchronous_clusters_equal_their_oracle(up: float, down: float, exploration: int) -> None:
    for seed, few in ((0, False), (1, True)):
        log = round_log(seed, few=few)
        system = fb.hetofedbandit_async(
            gamma_upload=up, gamma_download=down, recluster=1.5, exploration=exploration, test_level=0.05
        )
        run = naive_hetofed.star(
            log,
            log_gamma_upload=math.log(up),
            log_gamma_download=math.log(down),
            exploration=exploration,
            recluster=1.5,
            level=0.05,
        )
        agree(simulate(system, log), run)


@pytest.mark.parametrize("retest", [1.0, 1.3])
def test_neighbourhoods_equal_their_oracle(retest: float) -> None:
    for seed, few in ((0, False), (1, True)):
        log = round_log(seed, few=few)
        run = naive_hetofed.neighbourhoods(log, retest=retest)
        assert simulate(fb.dyclu(retest=retest), log).arms.reshape(-1).tolist() == run.arms


def test_dyclu_notices_changes_as_its_oracle_does(tmp_path: Path) -> None:
    """Tastes turn into their opposites half way; without a window users would long be wrong."""
    log = round_log(0, rounds=40)
    sign = [1.0 if s < N * 20 else -1.0 for s in range(len(log.clients))]
    means = [k * m for k, m in zip(sign, log.means, strict=True)]
    rewards = [m + y - before for m, y, before in zip(means, log.rewards, log.means, strict=True)]
    log = log._replace(means=means, rewards=rewards)
    for retest in (1.0, 1.3):
        run = naive_hetofed.neighbourhoods(log, retest=retest, window=8)
        assert simulate(fb.dyclu(retest=retest, window=8), log).arms.reshape(-1).tolist() == run.arms
    stays, notices = (simulate(fb.dyclu(window=window), log) for window in (None, 8))
    assert notices.regret[-1] - notices.regret[19] < 0.5 * (stays.regret[-1] - stays.regret[19])
    env = fb.environments.recorded(log.clients, log.arms, log.means, log.rewards, n_clients=N, rounds="all", noise=0.1)
    half = Simulation(fb.dyclu(window=8), env, 40, 0)
    again = Simulation(fb.dyclu(window=8), env, 40, 0)
    half.keep(tmp_path / "half.npz", 1)
    while not half.finished:
        half.advance()
    assert again.keep(tmp_path / "half.npz", 1)
    assert again.result().arms.tolist() == half.result().arms.tolist()


def small_world(**options: Any) -> fb.environments.Clustered:
    return fb.environments.clustered(
        n_clients=8, dim=4, n_arms=6, n_clusters=2, gap=0.9, contexts="sphere", rounds="all", **options
    )


CLUSTERING = (
    "hetofedbandit",
    "hetofedbandit_dr",
    "hetofedbandit_e",
    "hetofedbandit_async",
    "dyclu",
    "clustered_linucb",
)


@pytest.mark.parametrize("name", CLUSTERING)
def test_well_separated_clusters_are_found_in_every_seed(name: str) -> None:
    env = small_world()
    keywords = {"exploration": 40, "test_level": 0.001} if name == "hetofedbandit" else {}
    for seed in range(10):
        result = fb.simulate(getattr(fb, name)(**keywords), env, 250, seed)
        assert result.rand_index(env.partition)[-1] == 1.0


@pytest.mark.parametrize("name", [*CLUSTERING, "hetofedbandit_pq"])
def test_clusters_are_saved_and_a_checkpoint_goes_on(name: str, tmp_path: Path) -> None:
    env, system = small_world(pool=30), getattr(fb, name)()
    whole = fb.simulate(system, env, 1500, 3)
    file = tmp_path / "state"
    fb.simulate(system, env, 1500, 3, checkpoint=file, checkpoint_every=500)
    again = fb.simulate(system, env, 1500, 3, checkpoint=file)
    assert np.array_equal(again.arms, whole.arms)
    assert again.communication.message_curve.tolist() == whole.communication.message_curve.tolist()
    loaded = Result.load(whole.save(tmp_path / "result.npz"))
    assert (loaded.clusters, loaded.cluster_rounds) == (whole.clusters, whole.cluster_rounds)


@pytest.mark.parametrize("name", ["hetofedbandit", "hetofedbandit_e", "hetofedbandit_async", "clustered_linucb"])
def test_machines_agree_where_everybody_acts(name: str) -> None:
    env, system = small_world(), getattr(fb, name)()
    fast, plain = (fb.simulate(system, env, 120, 1, engine=engine) for engine in ("fast", "plain"))
    assert np.array_equal(fast.arms, plain.arms)
    assert fast.communication.message_curve.tolist() == plain.communication.message_curve.tolist()


def test_a_client_asks_once_and_again_only_when_its_growth_has_doubled() -> None:
    system = fb.System(UCB(), ServerQueue(threshold=1.0), HomogeneityCliques(recluster=2.0))
    client = ClientMachine(0, system, fb.World(3, 2, 1000, per_round=3))
    asked = []
    for _ in range(40):
        choice = client.select([[1.0, 0.0], [0.0, 1.0]])
        asked += client.observe(choice.number, 0.5)
    growths = [message.growth for message in asked if isinstance(message, Request)]
    assert len(growths) == len(asked) > 1
    assert all(later > 2 * earlier for earlier, later in pairwise_of(growths))
    assert growths[0] > 1.0
    assert [type(answer) for answer in client.receive(Collect(0, 1))] == [Upload]
    client.receive(Threshold(0, 1e9))
    choice = client.select([[1.0, 0.0]])
    assert client.observe(choice.number, 0.5) == []


def test_the_server_serves_whom_a_request_concerns_and_applies_a_retry_once() -> None:
    world = fb.World(3, 2, 1000, per_round=3)
    system = fb.System(UCB(), ServerQueue(threshold=0.0), HomogeneityCliques(recluster=1e9))
    server, clients = system.told(world).coordinator(world), [ClientMachine(i, system, world) for i in range(3)]
    assert isinstance(server, QueueCoordinator)
    (request,) = clients[0].observe(clients[0].select([[1.0, 0.0]]).number, 1.0)
    upload = Upload(0, 1, Sums(np.eye(2), np.ones(2), 2), 1.0)
    server.sharing.restore({"exploring": False, "cliques": [[0, 1], [2]], "home": [[0, 1], [0, 1], [2]]})
    server.size[:2] = 2
    assert server.receive(request) == []
    assert server.next_wake(4) == 5
    calls = server.end_round(5)
    assert calls == [Collect(0, 1), Collect(1, 1)]
    assert server.receive(upload) == [Receipt(0, 1)]
    assert server.receive(upload) == [Receipt(0, 1)]
    answers = server.receive(Upload(1, 1, Sums(np.eye(2), np.ones(2), 3), 1.0))
    sent = [answer for answer in answers if isinstance(answer, Download)]
    assert [(download.member, download.sums.n) for download in sent] == [(0, 5), (1, 5)]
    assert server.next_wake(5) > 1000
    with pytest.raises(fb.FedbanditError, match="does not take a Receipt"):
        server.receive(Receipt(0, 1))
    with pytest.raises(fb.FedbanditError, match="Client 9 is not one of 3 clients"):
        server.receive(Request(9))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: fb.hetofedbandit(test_level=0.1, test_threshold=5.0), "both given"),
        (lambda: fb.hetofedbandit(test_level=1.5), "test_level is 1.5"),
        (lambda: fb.hetofedbandit(test_threshold=-1.0), "test_threshold is -1.0"),
        (lambda: fb.hetofedbandit(test_threshold=math.inf), "test_threshold is inf"),
        (lambda: fb.hetofedbandit(exploration=-1), "exploration is -1"),
        (lambda: fb.hetofedbandit(threshold=math.nan), "threshold is nan"),
        (lambda: fb.hetofedbandit(threshold=math.inf), "threshold is inf"),
        (lambda: fb.hetofedbandit(threshold="often"), "no rule for threshold 'often'"),
        (lambda: fb.hetofedbandit_e(margin="wide"), "margin is 'wide'"),  # type: ignore[arg-type]
        (lambda: fb.hetofedbandit(explore="boldly"), "explore is 'boldly'"),  # type: ignore[arg-type]
        (lambda: fb.hetofedbandit_async(recluster=0.5), "recluster is 0.5"),
        (lambda: fb.dyclu(retest=0.0), "retest is 0.0"),
        (lambda: fb.clustered_linucb(growth=0.9), "growth is 0.9"),
        (lambda: fb.clustered_linucb(odds=math.inf), "odds is inf"),
        (lambda: ServerQueue(order="lifo"), "order is 'lifo'"),  # type: ignore[arg-type]
        (lambda: fb.System(protocol=ServerQueue(), structure=Everyone()), "knows one by one"),
        (lambda: fb.System(protocol=Scheduled(), structure=Neighbourhoods()), "is refused"),
        (lambda: fb.System(protocol=Never(), structure=HomogeneityCliques()), "found by a coordinator"),
        (
            lambda: fb.System(UCB(), ServerQueue(), HomogeneityCliques(5), fb.privacy.PrivateStatistics()),
            "reads raw data",
        ),
        (
            lambda: fb.System(UCB(), EventTriggered(), EvidenceClusters(recluster=2.0), fb.privacy.PrivateStatistics()),
            "reads raw data",
        ),
        (lambda: fb.System(UCB(), EventTriggered(), EvidenceClusters()), "EventTriggered is refused: nobody says when"),
        (lambda: fb.System(UCB(), ServerQueue(), HomogeneityCliques()), r"use HomogeneityCliques\(recluster=1.3\)"),
    ],
)  # fmt: skip
def test_bad_systems_are_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(fb.FedbanditError, match=words):
        make()


def test_synchronous_federations_form_groups_too() -> None:
    system = fb.System(protocol=Synchronous(), structure=HomogeneityCliques(exploration=20))
    result = fb.simulate(system, small_world(), 200)
    assert len(result.clusters) > 1
    assert result.communication.messages > 0


def test_exploration_beyond_the_horizon_and_thresholds_that_never_trigger_leave_everybody_alone() -> None:
    env = small_world()
    explores = fb.simulate(fb.hetofedbandit(exploration=1000), env, 50)
    assert explores.communication.messages == 0
    assert explores.clusters == [[[i] for i in range(8)]]
    never = fb.simulate(fb.hetofedbandit_e(threshold=1e12), env, 50)
    assert np.array_equal(never.arms, fb.simulate(fb.linucb(), env, 50).arms)
    assert never.communication.messages == 0


def test_a_test_that_nobody_passes_leaves_clients_who_can_be_told_apart_alone() -> None:
    env = small_world()
    result = fb.simulate(fb.hetofedbandit(exploration=20, test_threshold=0.0), env, 60)
    assert result.clusters[-1] == [[i] for i in range(8)]
    assert result.communication.messages == 8  # the one clustering


def test_rewards_without_noise_are_tested_too() -> None:
    env = small_world(noise=0.0)
    result = fb.simulate(fb.hetofedbandit_e(), env, 100)
    assert result.rand_index(env.partition)[-1] == 1.0
