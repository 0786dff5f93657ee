"""Systems that find clusters, against the naive oracles: equal arms, regret, messages and partitions."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedbandit as fb
from fedbandit.engine.checkpoint import fingerprint, read_checkpoint, write_checkpoint
from fedbandit.engine.partitions import adjusted_rand
from fedbandit.engine.simulation import Engine, Simulation
from fedbandit.environments.recorded import RecordedStream
from fedbandit.protocols import CountTriggered
from fedbandit.structures import PhasedClusters
from fedbandit.structures.clustering import SimilarityGraph
from fedbandit.system import System
from tests.engine.test_exact import POLICIES, check_equal
from tests.logs import KINDS, random_log, recorded
from tests.oracles import naive, naive_clusters
from tests.oracles.naive import Log, Outcome

Oracle = Callable[..., tuple[Outcome, list[list[list[int]]]]]
ENGINES: tuple[Engine, ...] = ("plain", "fast")


def clustered_log(seed: int, kind: str = "ball", *, n_tastes: int = 3, **options: Any) -> Log:
    """A log in which client i has taste i mod n_tastes."""
    log = random_log(seed, kind, **options)
    rng = np.random.default_rng([seed, 1])
    tastes = rng.standard_normal((n_tastes, log.dim))
    tastes /= np.linalg.norm(tastes, axis=1, keepdims=True)
    means = [X @ tastes[i % n_tastes] for i, X in zip(log.clients, log.arms, strict=True)]
    return log._replace(means=means, rewards=[mean + 0.1 * rng.standard_normal(mean.size) for mean in means])


def check(
    make: Callable[..., System],
    oracle: Oracle,
    log: Log,
    policy: str,
    *,
    seed: int,
    ridge: float = 1.0,
    **keywords: Any,
) -> int:
    """Both engines and the oracle agree; the number of different partitions seen."""
    renamed = {key: value for key, value in keywords.items() if key not in ("clustering", "counting")}
    expected, history = oracle(log, POLICIES[policy][1], ridge=ridge, seed=seed, **keywords)
    for engine in ENGINES:
        system = make(policy=POLICIES[policy][0], ridge=ridge, **renamed)
        simulation = Simulation(system, recorded(log), len(log.clients), seed, engine=engine)
        while not simulation.finished:
            simulation.advance()
        result = simulation.result()
        found = dict(zip(result.cluster_rounds, result.clusters, strict=True))
        now = found[0]
        for t, expected_partition in enumerate(history):
            now = found.get(t + 1, now)
            assert sorted(now) == expected_partition, f"clusters differ after round {t + 1}"
        check_equal(simulation, expected)
    return len({str(partition) for partition in history})


CASES: dict[str, tuple[Callable[..., System], Oracle, dict[str, Any]]] = {
    "club": (fb.club, naive_clusters.club, {"alpha_split": 0.4}),
    "club-strict": (fb.club, naive_clusters.club, {"alpha_split": 0.15}),
    "sclub": (fb.sclub, naive_clusters.sclub, {"alpha_split": 0.35, "alpha_merge": 0.4}),
    "sclub-busy": (
        fb.sclub,
        naive_clusters.sclub,
        {"alpha_split": 0.2, "alpha_merge": 0.3, "alpha_frequency": 0.1},
    ),
    "fclub": (fb.fclub, naive_clusters.fclub, {"alpha_split": 0.4, "alpha_merge": 0.6}),
    "fclub-dc": (
        fb.fclub_dc,
        naive_clusters.fclub,
        {"alpha_split": 0.4, "alpha_merge": 0.6, "upload": 1.3, "download": 1.5},
    ),
    "fclub-dc-published": (
        fb.fclub_dc,
        naive_clusters.fclub,
        {"alpha_split": 0.5, "alpha_merge": 0.6, "upload": 1.5, "download": 1.2, "fresh": False},
    ),
    "fclub-dc-silent": (
        fb.fclub_dc,
        naive_clusters.fclub,
        {"alpha_split": 0.4, "alpha_merge": 0.5, "upload": math.inf, "download": math.inf},
    ),
    "homo": (fb.homo, naive_clusters.fclub, {"clustering": False}),
    "homo-dc": (fb.homo_dc, naive_clusters.fclub, {"clustering": False, "upload": 1.4, "download": 1.2}),
}
CHANGING = [name for name in CASES if "homo" not in name]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_every_system_on_every_kind_of_data(name: str, kind: str) -> None:
    make, oracle, keywords = CASES[name]
    seed = 10 * list(CASES).index(name) + KINDS.index(kind)
    log = clustered_log(seed, kind, horizon=140, n_clients=8)
    check(make, oracle, log, "ucb", seed=seed, n_servers=3, **keywords)


@pytest.mark.parametrize("name", CHANGING)
def test_clusters_do_change_in_these_cases(name: str) -> None:
    """So that the comparison above compares something; sets also merge again."""
    make, oracle, keywords = CASES[name]
    log = clustered_log(3, "sphere", horizon=300, n_clients=8)
    assert check(make, oracle, log, "ucb", seed=3, n_servers=2, **keywords) >= (2 if "fclub" in name else 3)
    if "sclub" in name:
        _, history = oracle(log, naive.Policy(), n_servers=2, seed=3, **keywords)
        counts = [len(partition) for partition in history]
        assert any(after < before for before, after in pairwise(counts))


@pytest.mark.parametrize("policy", list(POLICIES))
@pytest.mark.parametrize("name", ["club", "sclub", "fclub-dc", "fclub-dc-published"])
def test_every_policy(name: str, policy: str) -> None:
    """Random streams are those of users, whatever becomes of their clusters; rewards are late."""
    make, oracle, keywords = CASES[name]
    log = clustered_log(5, "ball", horizon=120, longest_delay=9)
    check(make, oracle, log, policy, seed=5, n_servers=2, **keywords)


@pytest.mark.parametrize("name", ["fclub", "fclub_dc", "homo", "homo_dc", "club", "sclub", "cdp_fclub_dc"])
def test_the_authors_bonus_has_no_root(name: str) -> None:
    """`bonus="authors"` is the policy "squared", which has its oracle; the default is the paper's, and 1.5 wide."""
    env = fb.environments.fclub(n_clients=6, dim=3, n_arms=8, n_clusters=2, n_servers=2)
    make = getattr(fb, name)
    theirs, squared, plain = (
        fb.simulate(make(**keywords), env, 400).arms for keywords in ({"bonus": "authors"}, {"policy": "squared"}, {})
    )
    assert np.array_equal(theirs, squared)
    assert not np.array_equal(theirs, plain)
    assert make().policy == fb.policies.UCB(alpha=1.5)
    assert make(alpha=None).policy == fb.policies.UCB()
    assert make(confidence=0.01).policy == fb.policies.UCB(confidence=0.01)
    assert make(policy="lints").policy == fb.policies.LinTS()


def test_triggers_on_counts() -> None:
    """The structure does not care by which protocol local clusters share."""

    def make(policy: Any, ridge: float, upload: float, download: float, **structure: Any) -> System:
        return System(policy, CountTriggered(upload, download), PhasedClusters(**structure), ridge=ridge)

    log = clustered_log(6, horizon=200, n_clients=8)
    keywords = {"alpha_split": 0.4, "alpha_merge": 0.6, "upload": 1.3, "download": 1.5, "counting": True}
    check(make, naive_clusters.fclub, log, "ucb", seed=6, n_servers=4, **keywords)


@pytest.mark.parametrize("chunk", [1, 7])
@pytest.mark.parametrize("name", ["club", "sclub", "fclub-dc"])
def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch, name: str, chunk: int) -> None:
    monkeypatch.setattr(RecordedStream, "chunk", chunk)
    make, oracle, keywords = CASES[name]
    check(make, oracle, clustered_log(chunk, longest_delay=5), "lints", seed=chunk, n_servers=2, **keywords)


factors = st.sampled_from([1.0, 1.05, 1.5, 3.0, math.inf])
alphas = st.sampled_from([0.05, 0.2, 0.4, 0.8, 2.0])


@st.composite
def anything(draw: st.DrawFn) -> tuple[str, dict[str, Any], Log, str, float, int]:
    """A system with random parameters, data, and a policy."""
    n = draw(st.integers(1, 9), label="clients")
    log = clustered_log(
        draw(st.integers(0, 2**20), label="data seed"),
        draw(st.sampled_from(KINDS), label="kind"),
        n_tastes=draw(st.integers(1, 4), label="tastes"),
        horizon=draw(st.integers(1, 80), label="horizon"),
        n_clients=n,
        dim=draw(st.integers(1, 4), label="dim"),
        most_arms=4,
        longest_delay=draw(st.sampled_from([0, 0, 3, 20]), label="longest delay"),
        skewed=draw(st.booleans(), label="skewed"),
    )
    name = draw(st.sampled_from(["club", "sclub", "fclub", "fclub-dc", "homo-dc"]), label="system")
    keywords: dict[str, Any] = {"n_servers": draw(st.integers(1, n), label="servers")}
    if "homo" not in name:
        keywords["alpha_split"] = draw(alphas, label="split")
    if name in ("sclub", "fclub", "fclub-dc"):
        keywords["alpha_merge"] = draw(alphas, label="merge")
    if name == "sclub":
        keywords["alpha_frequency"] = draw(alphas, label="frequency")
    if "dc" in name:
        keywords |= {"upload": draw(factors, label="upload"), "download": draw(factors, label="download")}
    if name == "fclub-dc":
        keywords["fresh"] = draw(st.booleans(), label="fresh")
    if "homo" in name:
        keywords["clustering"] = False
    ridge = draw(st.sampled_from([0.1, 1.0, 3.0]), label="ridge")
    return name, keywords, log, draw(st.sampled_from(list(POLICIES))), ridge, draw(st.integers(0, 99))


@given(anything())
def test_anything(drawn: tuple[str, dict[str, Any], Log, str, float, int]) -> None:
    """Whatever the parameters and the data."""
    name, keywords, log, policy, ridge, seed = drawn
    make, oracle, _ = CASES[name]
    check(make, oracle, log, policy, seed=seed, ridge=ridge, **keywords)


# ------------------------------------------------------------------------------------------------- the whole simulator


def busy(name: str) -> System:
    """A preset whose clusters change often."""
    make, _, keywords = CASES[name]
    return make(n_servers=2, **{key: value for key, value in keywords.items() if key != "clustering"})


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_checkpoint_and_resume(name: str, engine: Engine, tmp_path: Path) -> None:
    """From half way, clusters and all; the second half is run by a simulation that has never seen the first."""
    env = fb.environments.fclub(n_clients=8, dim=4, n_arms=40, n_clusters=3, n_servers=2, delay=(0, 3))
    system, path, horizon = busy(name), tmp_path / "half.npz", 5000  # blocks of 3,276
    whole = fb.simulate(system, env, horizon, seed=2, checkpoint=path, checkpoint_every=1, engine=engine)
    simulation = Simulation(system, env, horizon, 2, engine=engine)
    read_checkpoint(path, simulation, fingerprint(system, env, horizon, 2))
    assert simulation.finished
    half = Simulation(system, env, horizon, 2, engine=engine)
    half.advance()
    write_checkpoint(path, half, "half")
    resumed = Simulation(system, env, horizon, 2, engine=engine)
    read_checkpoint(path, resumed, "half")
    assert 0 < resumed.round < horizon
    while not resumed.finished:
        resumed.advance()
    result = resumed.result()
    assert np.array_equal(whole.arms, result.arms)
    assert np.array_equal(whole.communication.message_curve, result.communication.message_curve)
    assert (whole.clusters, whole.cluster_rounds) == (result.clusters, result.cluster_rounds)


def test_phases_in_rounds_in_which_all_act() -> None:
    """Phases are counted in rounds, and so are the rounds of `result.clusters`."""
    log = clustered_log(8, "sphere", horizon=40 * 6)
    log = log._replace(clients=np.arange(40 * 6) % 6)
    rng = np.random.default_rng(8)
    tastes = rng.standard_normal((2, log.dim))
    means = [X @ tastes[i % 2] for i, X in zip(log.clients, log.arms, strict=True)]
    log = log._replace(means=means, rewards=means)
    env = fb.environments.recorded(log.clients, log.arms, means, means, n_clients=6, rounds="all")
    keywords: dict[str, Any] = {"alpha_split": 0.8, "alpha_merge": 0.8, "upload": 1.5, "download": 1.5, "n_servers": 3}
    expected, history = naive_clusters.fclub(log, naive.Policy(alpha=1.5), per_round=6, **keywords)
    for engine in ENGINES:
        result = fb.simulate(fb.fclub_dc(**keywords), env, 40, engine=engine)
        assert np.array_equal(result.arms.reshape(-1), expected.arms)
        assert result.communication.uploads == expected.uploads.sum()
        assert result.communication.downloads == expected.downloads.sum()
        assert sorted(result.clusters[-1]) == history[-1]
        assert len(result.clusters) > 1
        assert set(result.cluster_rounds) <= {0, 2, 6, 14, 30}


def test_synchronous_local_clusters() -> None:
    """Any protocol with a coordinator may carry the exchange; with threshold 0 all is shared at once, as in FCLUB."""
    env = fb.environments.fclub(n_clients=8, dim=4, n_clusters=2, n_servers=4)
    structure = PhasedClusters(1.0, 1.0)
    at_once = fb.simulate(System(protocol=fb.protocols.Synchronous(0.0), structure=structure, ridge=1.0), env, 2000)
    always = fb.simulate(fb.fclub(alpha_split=1.0, alpha_merge=1.0, alpha=None), env, 2000)
    assert at_once.clusters == always.clusters
    assert np.array_equal(at_once.arms, always.arms)


def test_clusters_are_saved_measured_and_drawn(tmp_path: Path) -> None:
    env = fb.environments.fclub(n_clients=12, n_clusters=2, n_servers=3, gap=1.2)
    result = fb.simulate(fb.fclub_dc(alpha_split=3.0, alpha_merge=3.0), env, 30_000)
    assert result.rand_index(env.partition)[-1] == 1.0
    assert result.rand_index(env.partition)[0] == 0.0, "at first all are taken to be alike"
    assert sorted(result.clusters[-1]) == [[0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 11]]
    loaded = fb.Result.load(result.save(tmp_path / "run.npz"))
    assert (loaded.clusters, loaded.cluster_rounds) == (result.clusters, result.cluster_rounds)
    counts, agreement = result.plot_clusters(env.partition).figure.axes
    assert counts.lines[0].get_ydata()[-1] == 2
    assert agreement.lines[0].get_ydata()[-1] == 1.0
    alone = fb.simulate(fb.linucb(), env, 10)
    assert (alone.clusters, alone.cluster_rounds, alone.rand_index(env.partition)) == ([], [], [])
    with pytest.raises(fb.FedbanditError, match="no clusters"):
        alone.plot_clusters()


@pytest.mark.parametrize(
    ("system", "env"),
    [
        (fb.fclub_dc(alpha_split=3.0, alpha_merge=3.0), {"n_clusters": 3, "n_servers": 3}),
        (fb.club(alpha_split=3.5), {"n_clusters": 2, "n_servers": 1}),
        (fb.fclub(alpha_split=3.0, alpha_merge=3.0), {"n_clusters": 3, "n_servers": 3}),
        (fb.sclub(alpha_split=4.0, alpha_merge=3.0), {"n_clusters": 2, "n_servers": 1}),
        (fb.sclub(alpha_split=4.0, alpha_merge=3.0), {"n_clusters": 3, "n_servers": 1}),
    ],
)
def test_well_separated_clusters_are_found_in_every_seed(system: System, env: dict[str, Any]) -> None:
    world = fb.environments.fclub(n_clients=12, dim=5, gap=1.0, **env)
    for seed in range(10):
        result = fb.simulate(system, world, 30_000, seed)
        assert result.rand_index(world.partition)[-1] == 1.0, f"seed {seed}: {result.clusters[-1]}"


def test_who_learns_how_fast() -> None:
    """Fig. 2a: clusters help, and taking different users to be alike costs linear regret."""
    env = fb.environments.fclub(n_clients=20, dim=5, n_clusters=2, n_servers=2, placement="blocks", gap=1.0)
    final = {
        name: fb.simulate(getattr(fb, name)(alpha=0.3, ridge=1.0), env, 40_000).regret
        for name in ("fclub", "fclub_dc", "club", "linucb", "homo", "homo_dc")
    }
    for name in ("fclub", "fclub_dc", "club"):
        assert final[name][-1] < 0.7 * final["linucb"][-1]
    for name in ("homo", "homo_dc"):
        assert final[name][-1] > 1.8 * final[name][19_999]
        assert final[name][-1] > 2 * final["linucb"][-1]


def groupings(n: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, 3), min_size=n, max_size=n)


@given(st.integers(2, 12).flatmap(lambda n: st.tuples(groupings(n), groupings(n))))
def test_adjusted_rand_counts_pairs(labels: tuple[list[int], list[int]]) -> None:
    """By its definition, over all pairs."""
    found, truth = (np.array(label) for label in labels)
    n = found.size
    pairs = [(i, j) for i in range(n) for j in range(i)]
    both = sum(found[i] == found[j] and truth[i] == truth[j] for i, j in pairs)
    mine, true = (sum(label[i] == label[j] for i, j in pairs) for label in (found, truth))
    expected, most = mine * true / len(pairs), (mine + true) / 2
    index = 1.0 if most == expected else (both - expected) / (most - expected)
    clusters = [np.flatnonzero(found == name).tolist() for name in np.unique(found)]
    assert adjusted_rand(clusters, truth) == pytest.approx(index)
    assert adjusted_rand([*clusters, [0, 1]], truth) <= 1.0  # overlapping ones are taken by their pairs
    assert adjusted_rand([np.flatnonzero(truth == name).tolist() for name in np.unique(truth)], truth) == 1.0


# ----------------------------------------------------------------------------------------------------------- bad input


def world(**options: Any) -> fb.environments.Fclub:
    return fb.environments.fclub(**({"n_clients": 6, "dim": 3, "n_arms": 4, "n_clusters": 2, "n_servers": 2} | options))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: world(n_clusters=7), "n_clusters is 7, but must be at most n_clients = 6"),
        (lambda: world(n_servers=7), "n_servers is 7, but must be at most n_clients = 6"),
        (lambda: world(gap=2.0), "gap is 2.0"),
        (lambda: world(gap=1.4, dim=2, n_clusters=4).open(0), "make it smaller"),
        (lambda: world(dim=1), "dim is 1"),
        (lambda: world(contexts="ball"), "contexts is 'ball'"),
        (lambda: world(placement="anywhere"), "placement is 'anywhere'"),
        (lambda: world(theta="no/such.npy"), "theta cannot be read from 'no/such.npy'"),
        (lambda: world(theta=[1.0, 2.0]), "the shape of theta is (2,)"),
        (lambda: world(theta=[["x"]]), "not a number"),
        (lambda: world(theta=np.eye(3), n_clients=3, drift=(5,)), "nothing to draw anew"),
        (lambda: fb.simulate(fb.fclub_dc(n_servers=9), world(), 10), "n_servers is 9, but must be at most 6"),
        (lambda: fb.World(3, 2, 9, server_of=(0, 2, 2)), "the number of users of server 1 is 0"),
        (lambda: fb.World(3, 2, 9, server_of=(0, 1)), "the length of server_of is 2"),
        (lambda: fb.fclub_dc(alpha_split=math.inf), "alpha_split is inf"),
        (lambda: fb.fclub(alpha_merge=0.0), "alpha_merge is 0.0"),
        (lambda: fb.club(alpha_split=-1.0), "alpha_split is -1.0"),
        (lambda: fb.sclub(alpha_frequency=math.nan), "alpha_frequency is nan"),
        (lambda: fb.fclub_dc(upload=0.5), "gamma_upload is 0.5"),
        (lambda: fb.simulate(fb.homo_dc(upload=[2.0] * 6), world(), 10), "it is local clusters that communicate"),  # type: ignore[arg-type]
        (lambda: fb.simulate(fb.homo_dc(download=[2.0] * 6), world(), 10), "it is local clusters that communicate"),  # type: ignore[arg-type]
        (lambda: fb.fclub_dc(bonus="mine"), "bonus"),  # type: ignore[arg-type]
        (lambda: fb.fclub_dc(bonus="authors", policy="lints"), "policy is 'lints'"),
        (lambda: System(structure=PhasedClusters()), "PhasedClusters with Never is refused"),
        (lambda: System(structure=fb.structures.PrunedGraph(), protocol=fb.protocols.always()), "nobody coordinates"),
        (lambda: fb.ClientMachine(0, fb.club(), fb.World(3, 2, 9)), "clients share models"),
        (lambda: SimilarityGraph(100_000), "too many edges"),
        (lambda: adjusted_rand([[0, 3]], [0, 1]), "the number of labels is 2"),
    ],
)
def test_bad_input_gets_one_sentence(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(fb.FedbanditError) as caught:
        make()
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_thresholds_that_never_trigger_leave_the_phases() -> None:
    """U = ∞: local clusters speak only when a phase begins, one upload each."""
    result = fb.simulate(fb.fclub_dc(upload=math.inf, download=math.inf), world(), 100)
    spoken = np.flatnonzero(result.communication.per_round_uploads)
    assert spoken.tolist() == [1, 5, 13, 29, 61]


def test_fclub_world() -> None:
    """Items and parameters have norm 1 and last coordinate 1/√2; rewards are clicks; parameters may be given."""
    env = world(gap=0.5)
    stream = env.open(3)
    block = stream.block(0, 50)
    for vectors in (block.X, stream.parameters[0]):
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0)
        np.testing.assert_allclose(vectors[:, -1], 2**-0.5)
    assert np.linalg.norm(np.subtract(*stream.parameters[0])) >= 0.5
    assert ((block.means >= 0) & (block.means <= 1)).all()
    assert set(np.diff(fb.simulate(fb.uniform(), env, 50).reward, prepend=0.0).tolist()) == {0.0, 1.0}
    given = np.repeat(stream.parameters[0], [2, 4], axis=0)
    same = fb.environments.fclub(theta=given, n_servers=3)
    assert same.partition.tolist() == [0, 0, 1, 1, 1, 1]
    assert same.server_of.tolist() == [0, 0, 1, 1, 2, 2]
    assert (same.n_clients, same.dim, same.n_clusters) == (6, 3, 2)
    first = same.open(0).block(0, 20)
    np.testing.assert_allclose(
        first.means, np.einsum("td,tkd->tk", given[first.clients], first.X[first.arms]), atol=1e-12
    )
