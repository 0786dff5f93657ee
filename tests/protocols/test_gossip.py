"""Peer to peer: who hears what, when, how often; and that machines and simulator agree."""

from __future__ import annotations

import math
from collections import Counter

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedbandit as fb
from fedbandit.engine.plain import Machines, PlainLearner
from fedbandit.engine.simulation import Engine, Simulation
from fedbandit.errors import FedbanditError
from fedbandit.machines.link import Link
from fedbandit.machines.peer import PeerLink
from fedbandit.messages import Ask, Join, Tell, decode, encode
from fedbandit.protocols import PeerNode
from fedbandit.protocols.topology import TOPOLOGIES, neighbours_of
from fedbandit.sums import Sums

DIM = 3
ENGINES: tuple[Engine, Engine] = ("fast", "plain")


def one(n: int = 1) -> Sums:
    """Statistics that can be told from nothing."""
    return Sums(np.eye(DIM), np.ones(DIM), n)


def network(topology: object, n: int, ttl: int) -> list[PeerNode]:
    """The nodes of a topology."""
    return [PeerNode(i, near, ttl, DIM) for i, near in enumerate(neighbours_of(topology, n))]


def carry(nodes: list[PeerNode]) -> Counter[tuple[int, int]]:
    """Let every message go one hop; how many Tells went over each link."""
    links: Counter[tuple[int, int]] = Counter()
    for sender, receiver, message in [(node.member, *sent) for node in nodes for sent in node.send()]:
        again = decode(encode(message))
        assert type(again) is type(message)
        links[sender, receiver] += isinstance(message, Tell)
        nodes[receiver].receive(sender, again)
    return links


@given(
    st.integers(2, 12), st.integers(1, 5), st.sampled_from(sorted(TOPOLOGIES)), st.integers(0, 11), st.integers(0, 2)
)
@settings(max_examples=60, deadline=None)
def test_a_message_reaches_exactly_those_within_its_hops_one_hop_a_round(
    n: int, ttl: int, topology: str, origin: int, estimator: int
) -> None:
    if topology == "ring" and n < 3:
        n = 3
    origin %= n
    nodes = network(topology, n, ttl)
    graph = nx.Graph([(i, j) for i, node in enumerate(nodes) for j in node.neighbours])
    away = nx.single_source_shortest_path_length(graph, origin)
    nodes[origin].tell(estimator, one())
    links: Counter[tuple[int, int]] = Counter()
    for t in range(1, ttl + 3):
        links += carry(nodes)
        heard = {i for i in range(n) if (origin, estimator) in nodes[i].told}
        assert heard == {i for i in range(n) if away[i] <= min(t, ttl)}
    assert all(count == 1 for count in links.values()), "a message was forwarded twice over a link"
    assert not any(node.send() for node in nodes), "something is still under way beyond γ hops"


def test_asking_is_passed_on_and_asked_once() -> None:
    nodes = network("line", 4, 2)
    nodes[0].ask(0)
    (sent,) = nodes[0].send()
    assert sent == (1, Ask(0, 0, 1, 2))
    assert nodes[1].receive(0, sent[1])
    assert not nodes[1].receive(0, sent[1])
    ((receiver, passed),) = nodes[1].send()
    assert (receiver, passed) == (2, Ask(0, 0, 1, 1))
    assert nodes[2].receive(1, passed)
    assert nodes[2].send() == [], "its hops are used up"


def test_a_newer_telling_replaces_an_older_one_and_is_not_replaced_by_it() -> None:
    nodes = network("complete", 2, 1)
    nodes[0].tell(0, one())
    ((_, first),) = nodes[0].send()
    nodes[0].tell(0, one(4))
    ((_, second),) = nodes[0].send()
    assert nodes[1].receive(0, second)
    assert not nodes[1].receive(0, first)
    sums, releases = nodes[1].others(0)
    assert (sums.n, releases) == (5, {0: 2})
    np.testing.assert_allclose(sums.V, 2 * np.eye(DIM))


def one_arm(n_clients: int, rounds: int) -> fb.environments.Recorded:
    """Rounds with a single arm: what is observed does not depend on anybody's choices."""
    rng = np.random.default_rng(0)
    T = n_clients * rounds
    x = rng.standard_normal((T, 1, DIM))
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    means = rng.random((T, 1))
    return fb.environments.recorded(np.arange(T) % n_clients, x, means, means, rounds="all")


def finished(system: fb.System, env: fb.environments.Environment, horizon: int, seed: int = 0) -> Machines:
    """The machines after all rounds."""
    simulation = Simulation(system, env, horizon, seed, engine="plain")
    while not simulation.finished:
        simulation.advance()
    assert isinstance(simulation.learner, PlainLearner)
    return simulation.learner.machines


def test_complete_graph_with_one_hop_has_the_central_systems_statistics() -> None:
    """After a synchronisation every peer has the sum of all, as the coordinator's clients do, a round later."""
    N, rounds = 4, 17  # counts trigger after round 16: the 17th is when peers have heard
    env = one_arm(N, rounds)
    peers = finished(fb.feducb(epsilon=math.inf, topology="complete"), env, rounds)
    block = env.open(0).block(0, N * rounds)
    X, y = block.X[block.arms[:, 0]], block.rewards[:, 0]
    released = N * 16
    V, b = X[:released].T @ X[:released], X[:released].T @ y[:released]
    assert isinstance(peers, PeerLink)
    for i in range(N):
        model = peers.peers[i].estimators[0].model
        np.testing.assert_allclose(model.in_common().V, V, atol=1e-9)
        mine = slice(released + i, released + i + 1)
        np.testing.assert_allclose(model.in_common().b, b, atol=1e-9)
        np.testing.assert_allclose(model.pending().b, X[mine].T @ y[mine], atol=1e-9)
    central = finished(fb.feducb(epsilon=math.inf), env, 16)
    first = X[: released - N + 1]  # the first client to reach 16 synchronises at once: the others have 15 by then
    assert isinstance(central, Link)
    assert central.coordinator is not None
    np.testing.assert_allclose(central.coordinator.gathered().V, first.T @ first, atol=1e-9)


@pytest.mark.parametrize(
    "keywords",
    [
        {"topology": "complete", "epsilon": math.inf},
        {"topology": "line", "ttl": 2, "epsilon": 3.0},
        {"topology": "ring", "ttl": 2, "epsilon": (1.0, 2.0, 3.0, math.inf, 5.0)},
        {"topology": "line", "ttl": 2, "epsilon": math.inf, "cliques": True},
        {"topology": "line", "ttl": 3, "epsilon": math.inf, "subsample": False},
        {"topology": "star", "ttl": 2, "calibration": "published"},
    ],
)
def test_engines_agree(keywords: dict[str, object]) -> None:
    system = fb.feducb(**keywords)  # type: ignore[arg-type]
    env = fb.environments.feducb(n_clients=5, dim=DIM)
    fast, plain = (fb.simulate(system, env, 120, seed=2, engine=engine) for engine in ENGINES)
    assert np.array_equal(fast.arms, plain.arms)
    np.testing.assert_array_equal(fast.communication.upload_curve, plain.communication.upload_curve)
    assert fast.communication.uploads > 0


def test_a_line_is_no_worse_than_learning_alone() -> None:
    env = fb.environments.feducb(n_clients=6, dim=4)
    alone = np.mean([fb.simulate(fb.linucb(), env, 600, seed).regret[-1] for seed in range(3)])
    line = np.mean(
        [fb.simulate(fb.feducb(epsilon=math.inf, topology="line"), env, 600, seed).regret[-1] for seed in range(3)]
    )
    assert line <= alone


def test_a_peer_whose_budget_is_spent_stops_telling_and_goes_on_learning() -> None:
    private = fb.privacy.PrivateStatistics(epsilon=5.0, releases=2, contribution=200)
    system = fb.System(protocol=fb.protocols.Gossip("complete"), privacy=private)
    env = fb.environments.feducb(n_clients=3, dim=DIM)
    peers = finished(system, env, 200)
    assert isinstance(peers, PeerLink)
    assert peers.exhausted() == [0, 1, 2]
    assert all(stream.spent == 2 for stream in peers.streams().values())
    assert all(tell.sequence == 2 for peer in peers.peers for tell in peer.node.told.values())
    assert all(peer.observed == 200 for peer in peers.peers)


@pytest.mark.parametrize(
    ("topology", "n", "sentence"),
    [
        ("rign", 4, "did you mean 'ring'"),
        (np.zeros((3, 3)), 3, "not connected: agents \\[0\\] cannot reach agents \\[1\\]"),
        (np.ones((2, 3)), 3, "symmetric adjacency matrix"),
        (np.ones((4, 4)), 3, "nodes of the topology"),
    ],
)
def test_topologies_that_are_refused(topology: object, n: int, sentence: str) -> None:
    with pytest.raises(FedbanditError, match=sentence):
        neighbours_of(topology, n)


def test_what_is_passed_on_for_others_does_not_enter_a_peers_sums() -> None:
    """A line of three with 0 and 2 in a group: 1 relays and is not asked, 0 and 2 share."""
    groups = [frozenset({0, 2}), frozenset({1}), frozenset({0, 2})]
    nodes = [PeerNode(i, near, 2, DIM, groups[i]) for i, near in enumerate(neighbours_of("line", 3))]
    nodes[0].tell(0, one())
    nodes[0].ask(0)
    answers = []
    for _ in range(2):
        for sender, receiver, message in [(node.member, *sent) for node in nodes for sent in node.send()]:
            answers.append((receiver, type(message), nodes[receiver].receive(sender, message)))
    assert answers == [(1, Tell, False), (1, Ask, False), (2, Tell, True), (2, Ask, True)]
    assert nodes[1].others(0)[1] == {}
    assert nodes[2].others(0)[1] == {0: 1}


def test_peers_of_opposite_groups_do_not_mislead_each_other() -> None:
    """What a review found: gossip ignored groups, 971 of regret where 12 is right."""
    rng = np.random.default_rng(0)
    N, rounds = 6, 150
    who = np.arange(N * rounds) % N
    X = rng.standard_normal((who.size, 4, DIM)) / 3
    means = X @ np.ones(DIM) * np.where(who % 2 == 0, 1.0, -1.0)[:, None]
    env = fb.environments.recorded(who, X, means, means, rounds="all")
    gossip = fb.protocols.Gossip("ring", 2, batch=4)
    regret = {
        structure: fb.simulate(fb.System(protocol=gossip, structure=structure), env, rounds).regret[-1]
        for structure in (fb.structures.Everyone(), fb.structures.FixedGroups((0, 1) * 3))
    }
    apart, mixed = regret[fb.structures.FixedGroups((0, 1) * 3)], regret[fb.structures.Everyone()]
    assert 10 * apart < mixed


def test_a_message_lives_no_longer_than_the_diameter() -> None:
    env = fb.environments.feducb(n_clients=6, dim=DIM)
    for topology, longest in (("complete", 1), ("ring", 3), ("star", 2), ("line", 5)):
        fb.simulate(fb.feducb(topology=topology, ttl=longest), env, 2, engine="plain")
        with pytest.raises(FedbanditError, match=f"^ttl is {longest + 1}, but must be at most {longest}, the diameter"):
            fb.simulate(fb.feducb(topology=topology, ttl=longest + 1), env, 2, engine="plain")


def test_within_cliques_peers_hear_of_fewer() -> None:
    """On a line of six with γ = 1 the cliques are pairs: a peer's model has its own data and one other's."""
    N, rounds = 6, 40
    env = one_arm(N, rounds)
    peers = finished(fb.feducb(epsilon=math.inf, topology="line", cliques=True), env, rounds)
    assert isinstance(peers, PeerLink)
    heard = [sorted(peer.node.others(0)[1]) for peer in peers.peers]
    assert heard == [[1], [0], [3], [2], [5], [4]]


def test_without_sub_sampling_one_estimator_learns_in_every_round() -> None:
    env = fb.environments.feducb(n_clients=6, dim=DIM)
    whole = finished(fb.feducb(epsilon=math.inf, topology="line", ttl=5, subsample=False), env, 100)
    parts = finished(fb.feducb(epsilon=math.inf, topology="line", ttl=5), env, 100)
    assert isinstance(whole, PeerLink)
    assert isinstance(parts, PeerLink)
    assert [[one.model.n_own for one in peer.estimators] for peer in whole.peers] == [[100]] * 6
    assert [[one.model.n_own for one in peer.estimators] for peer in parts.peers] == [[20] * 5] * 6


def test_gossip_needs_rounds_in_which_all_act() -> None:
    env = fb.environments.homogeneous(n_clients=3, dim=2, n_arms=2)
    with pytest.raises(FedbanditError, match="rounds='all'"):
        fb.simulate(fb.feducb(topology="ring"), env, 10)


def test_a_peer_takes_no_message_from_strangers_nor_of_another_size() -> None:
    node = network("line", 3, 1)[0]
    with pytest.raises(FedbanditError, match="Peer 2 is not a neighbour of peer 0"):
        node.receive(2, Tell(2, 0, 1, 1, one()))
    with pytest.raises(FedbanditError, match="with 9 hops left"):
        node.receive(1, Tell(1, 0, 1, 9, one()))
    with pytest.raises(FedbanditError, match="does not take a"):
        node.receive(1, Join(1))
