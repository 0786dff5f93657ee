"""Servers of many users: what a server does by itself, and what is said when a phase begins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.machines.cluster_server import ClusterServer, ClusterServers
from fedbandit.machines.local_server import AllServers, LocalServer, LocalServers
from fedbandit.machines.phases import ClusterCoordinator, Renewal, Report
from fedbandit.messages import Download, Receipt, Upload
from fedbandit.model import RidgeModel
from fedbandit.privacy import NoisyRewards, PublishedClusters
from fedbandit.protocols import Synchronous
from fedbandit.state import State, joined, pack, parts_of, unpack
from fedbandit.structures import FederatedClustering, PhasedClusters, Structure
from fedbandit.structures.serving import NoiseOnGraph, Serving
from fedbandit.sums import Sums
from fedbandit.system import System
from fedbandit.types import Array, Ints

GRAPH = np.full((6, 6), 1 / 6)
SYSTEMS: dict[str, System] = {
    "central": fb.linucb_central(),
    "club": fb.club(alpha_split=0.4, n_servers=2),
    "sclub": fb.sclub(alpha_split=0.4, alpha_merge=0.5, n_servers=2),
    "dyclu": fb.dyclu(policy="lints"),
    "colin": fb.colin(graph=GRAPH),
    "noisy sums": fb.dp_colin(graph=GRAPH, mechanism="sums", alpha=None),
    "published sums": fb.dp_goblin(graph=GRAPH, calibration="published"),
    "homo": fb.homo_dc(n_servers=3),
    "fclub": fb.fclub_dc(alpha_split=0.4, n_servers=2, upload=1.2, download=1.2),
    "fclub, lagging": fb.fclub_dc(alpha_split=0.4, n_servers=2, upload=1.2, download=1.2, fresh=False),
    "fclub, noisy rewards": fb.fclub_dc(alpha_split=0.4, n_servers=2, privacy=NoisyRewards(2.0)),
    "fclub, synchronous": System(protocol=Synchronous(2.0), structure=PhasedClusters(0.4, n_servers=2)),
    "fclub, noisy": fb.cdp_fclub_dc(calibration="published", alpha_split=0.4, n_servers=2),
}


def world_for(horizon: int = 400) -> fb.World:
    return fb.World(n_clients=6, dim=3, horizon=horizon)


def make(system: System, world: fb.World) -> Any:
    federated = isinstance(system.structure, FederatedClustering)
    return (ClusterServers if federated else LocalServers)(system, world, seed=1)


def play(servers: Any, start: int, stop: int) -> list[int]:
    """Users 0, 2, 4 and 1, 3, 5 have two tastes; the arms that were pulled."""
    pulled = []
    for t in range(start, stop):
        rng = np.random.default_rng(t)
        user, X = int(rng.integers(6)), rng.standard_normal((5, 3)) / 3
        choice = servers.select(user, X)
        taste = np.array([1.0, 0.0, 0.0]) if user % 2 else np.array([0.0, 1.0, 0.0])
        servers.observe(user, choice.number, float(np.clip(X[choice.arm] @ taste, 0, 1)))
        pulled.append(choice.arm)
        if servers.next_wake(t) == t + 1:
            servers.end_round(t + 1)
    return pulled


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_state_goes_on_as_if_nothing_had_happened(name: str) -> None:
    """Through bytes, at several places, a choice that waits for its reward included."""
    world = world_for()
    system = SYSTEMS[name].told(world)
    whole, first = make(system, world), make(system, world)
    expected = play(whole, 0, 300)
    pulled = play(first, 0, 101)
    waiting = first.select(3, np.eye(3))
    again = make(system, world)
    again.restore(unpack("checkpoint", pack("checkpoint", first.state())))
    again.servers[again.server_of[3]]._chosen.pop(waiting.number)
    again.servers[again.server_of[3]]._steps[again.servers[again.server_of[3]].stream_of(3)] -= 1
    pulled += play(again, 101, 300)
    assert pulled == expected
    assert (again.uploads, again.downloads, again.clipped) == (whole.uploads, whole.downloads, whole.clipped)
    assert again.groups() == whole.groups()
    assert {r: stream.spent for r, stream in again.streams().items()} == {
        r: stream.spent for r, stream in whole.streams().items()
    }


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_state_of_another_size_is_refused(name: str) -> None:
    larger = fb.World(n_clients=6, dim=4, horizon=400)
    servers, other = (make(SYSTEMS[name].told(world), world) for world in (world_for(), larger))
    play(servers, 0, 50)
    with pytest.raises(fb.FedbanditError, match=r"stored .* shape|stored dim"):
        other.restore(servers.state())


@pytest.mark.parametrize("name", [name for name, system in SYSTEMS.items() if system.protocol.says != "nothing"])
def test_no_observation_is_lost(name: str) -> None:
    world = world_for()
    servers = make(SYSTEMS[name].told(world), world)
    assert isinstance(servers, ClusterServers)
    for stop in (1, 50, 300):
        servers = make(SYSTEMS[name].told(world), world)
        play(servers, 0, stop)
        account = servers.tally()
        assert account.observed == stop == account.applied + account.pending


def test_users_of_different_servers_know_nothing_of_each_other() -> None:
    world = world_for()
    served = make(fb.club(n_servers=2).told(world), world)
    before = served.servers[1].serving.model(5).theta.copy()
    play_one(served, 0)
    assert np.array_equal(served.servers[1].serving.model(5).theta, before)
    assert not np.array_equal(served.servers[0].serving.model(2).theta, before), "one cluster, one model"


def play_one(served: AllServers[LocalServer], user: int, reward: float = 1.0) -> None:
    choice = served.select(user, np.eye(3))
    served.servers[served.server_of[user]].observe(choice.number, reward)


def test_a_server_remembers_so_many_choices() -> None:
    world = world_for()
    server = LocalServer(np.arange(6), fb.club().told(world), world, waiting=2)
    first, *_, last = [server.select(0, np.eye(3)) for _ in range(3)]
    with pytest.raises(fb.FedbanditError, match="Choice 1 is not waiting"):
        server.observe(first.number, 1.0)
    server.observe(last.number, 1.0)
    with pytest.raises(fb.FedbanditError, match="Choice 3 is not waiting"):
        server.observe(last.number, 1.0)


def test_a_refused_reward_may_be_given_again() -> None:
    world = world_for()
    system = fb.fclub_dc(privacy=NoisyRewards(1.0, excess="refuse"), n_servers=1).told(world)
    server = ClusterServer(0, np.arange(6), system, world)
    choice = server.select(0, np.eye(3))
    for wrong in (2.0, math.nan):
        with pytest.raises(fb.FedbanditError):
            server.observe(choice.number, wrong)
    server.observe(choice.number, 0.5)
    assert server.observed == 1


@dataclass(frozen=True)
class OddAndEven(Structure):
    """A structure of one's own: one model for odd users and one for even ones."""

    separate: ClassVar[bool] = False

    def serve(self, world: fb.World, users: Ints, ridge: float, noise: NoiseOnGraph | None = None) -> Serving:  # noqa: ARG002
        """Two models."""
        return TwoModels(world, ridge)


class TwoModels(Serving):
    """All that has to be written."""

    def __init__(self, world: fb.World, ridge: float) -> None:
        self.models = [RidgeModel(world.dim, ridge) for _ in range(2)]

    def model(self, user: int) -> RidgeModel:
        return self.models[user % 2]

    def observe(self, user: int, x: Array, y: float) -> None:
        self.models[user % 2].observe(x, y)

    def state(self) -> State:
        return joined({}, {str(k): State(*model.dump()) for k, model in enumerate(self.models)})

    def restore(self, state: State) -> None:
        for k, model in enumerate(self.models):
            model.load(*parts_of(state)[str(k)])


def test_a_structure_of_ones_own_is_served() -> None:
    """With one user of each kind it is what LinUCB is, a model for each client; and it is checkpointed like any."""
    env = fb.environments.homogeneous(n_clients=2, dim=3, n_arms=5)
    result = fb.simulate(System(structure=OddAndEven()), env, 300, 4)
    assert result.engine == "plain"
    assert np.array_equal(result.arms, fb.simulate(fb.linucb(), env, 300, 4).arms)
    world = world_for()
    first, again = (make(System(structure=OddAndEven()).told(world), world) for _ in range(2))
    play(first, 0, 100)
    again.restore(unpack("checkpoint", pack("checkpoint", first.state())))
    assert play(first, 100, 200) == play(again, 100, 200)


# --------------------------------------------------------------------------------------------------------------- phases


def cluster_of(theta: list[float], n: int) -> Sums:
    return Sums(n * np.eye(3), n * np.array(theta), n)


def coordinator(**keywords: Any) -> ClusterCoordinator:
    world = world_for()
    return ClusterCoordinator(fb.fclub_dc(n_servers=3, alpha_merge=1.0, ridge=1.0, **keywords).told(world), world)


def report(machine: ClusterCoordinator, *clusters: dict[int, Sums]) -> list[Renewal]:
    """All servers report; the answer to the last one."""
    answers = [machine.receive_report(Report(k, 2, each)) for k, each in enumerate(clusters)]
    assert not any(answers[:-1]), "the coordinator waits for the last server"
    return answers[-1]


def test_alike_clusters_of_different_servers_merge() -> None:
    machine = coordinator()
    a, b = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]
    many = 500
    renewals = report(machine, {0: cluster_of(a, many), 1: cluster_of(b, many)}, {2: cluster_of(a, many)}, {
        4: cluster_of(b, many), 5: cluster_of(b, many)
    })  # fmt: skip
    assert machine.groups() == [[0, 2], [1, 4, 5]], "two of one server meet through one of another"
    downloads = {message.member: message for renewal in renewals for message in renewal.downloads}
    assert sorted(downloads) == [0, 1, 2, 4, 5]
    assert [downloads[r].sums.n for r in (0, 1, 2)] == [2 * many, 3 * many, 2 * many]
    np.testing.assert_allclose(downloads[2].sums.V, 2 * many * np.eye(3))


def test_a_phase_that_changes_nothing_is_over_at_once() -> None:
    machine = coordinator()
    same = cluster_of([1.0, 0.0, 0.0], 500)
    renewals = report(machine, {0: same}, {2: same}, {4: same})
    assert [renewal.downloads for renewal in renewals] == [(), (), ()], "all were together before"
    within = machine.within
    assert within.gathered().n == 0, "the reports served to look, and were forgotten"


def test_a_server_goes_on_or_begins_anew() -> None:
    world = world_for()
    system = fb.fclub_dc(n_servers=1, alpha_split=0.3, upload=math.inf).told(world)
    server = ClusterServer(0, np.arange(6), system, world)
    for t in range(60):
        X = np.random.default_rng(t).standard_normal((4, 3)) / 3
        choice = server.select(t % 6, X)
        assert server.observe(choice.number, float(X[choice.arm][t % 2])) == []
    said = server.begin_phase()
    assert len(said.clusters) > 1
    assert sum(sums.n for sums in said.clusters.values()) == 60
    assert list(server.exchanges) == [0], "until it is told, it goes on"
    server.renew(Renewal(0, said.phase, ()))
    assert server.exchanges[0].model.n_pending == 60

    said = server.begin_phase()
    downloads = tuple(Download(r, 1, 0, sums) for r, sums in said.clusters.items())
    server.renew(Renewal(0, said.phase, downloads))
    assert sorted(server.exchanges) == sorted(said.clusters)
    for r, exchange in server.exchanges.items():
        assert (exchange.model.n_pending, exchange.model.n_own) == (0, said.clusters[r].n)
        assert exchange.model.n == said.clusters[r].n
    with pytest.raises(fb.FedbanditError, match="Client 9 is no model of this server"):
        server.receive(Receipt(9, 1))


def test_noise_is_new_with_each_clustering() -> None:
    """FCLUB, Alg. 2: what is reported is noised, by a tree that goes on within the phase."""
    world = world_for()
    system = fb.cdp_fclub_dc(calibration="published", n_servers=1, upload=1.0).told(world)
    assert isinstance(system.privacy, PublishedClusters)
    server = ClusterServer(0, np.arange(6), system, world)
    choice = server.select(0, np.eye(3))
    (upload,) = server.observe(choice.number, 1.0)
    assert isinstance(upload, Upload)
    exact = np.zeros((3, 3))
    exact[choice.arm, choice.arm] = 1.0
    assert abs(upload.sums.V - exact).min() > 0
    first, second = server.begin_phase(), server.begin_phase()
    assert not np.array_equal(first.clusters[0].V, second.clusters[0].V)
    assert server.exchanges[0].stream is not None
    assert server.exchanges[0].stream.spent == 1
    server.renew(Renewal(0, second.phase, (Download(0, 1, 0, second.clusters[0]),)))
    assert server.exchanges[0].stream.spent == 1, "the report was the first release of the new tree"


def test_protocols_without_a_coordinator_are_refused() -> None:
    with pytest.raises(fb.FedbanditError, match="share through a coordinator"):
        System(protocol=fb.protocols.Gossip(), structure=PhasedClusters())


def test_an_empty_state_names_what_is_missing() -> None:
    world = world_for()
    served = make(fb.club(n_servers=1).told(world), world)
    state = served.state()
    broken = State(state.header, {name: array for name, array in state.arrays.items() if not name.endswith("edges")})
    with pytest.raises(fb.FedbanditError, match="has no 'edges'"):
        served.restore(broken)
