"""Public conformance checks: what any part or system must do, whoever wrote it.

`checks_for(thing)` gives the checks that apply; each is a function without arguments that raises AssertionError with a
sentence. The project's own tests run them on every part and preset they can find; run them on yours:

>>> import fedbandit as fb
>>> for name, check in checks_for(fb.linucb()):
...     check()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from fedbandit.engine.fast.clusters import ClustersLearner
from fedbandit.engine.fast.outcome import draw_reward
from fedbandit.engine.fast.packed import unpacked
from fedbandit.engine.fast.peer_exchange import PeerExchange
from fedbandit.engine.fast.rows import RowsLearner
from fedbandit.engine.fast.statistics import N_OWN, N_PENDING, N, base_of
from fedbandit.engine.simulation import Simulation, simulate
from fedbandit.environments import Collaborative, Homogeneous, recorded
from fedbandit.environments.block import Environment, world_of
from fedbandit.machines.link import Link
from fedbandit.machines.peer import PeerMachine
from fedbandit.messages import Tell, decode, encode
from fedbandit.policies import Policy, Uniform
from fedbandit.privacy import Privacy
from fedbandit.protocols import MessageProtocol
from fedbandit.structures import Everyone, EvidenceClusters, Structure
from fedbandit.system import System
from fedbandit.world import World

CLIENTS, HORIZON = 4, 240


def checks_for(thing: Any) -> Iterator[tuple[str, Callable[[], None]]]:
    """Names and checks for a system, or for a part, which is tried in the plainest system that can hold it."""
    checks: dict[Any, tuple[Callable[[Any], None], ...]] = {
        System: (
            repeats_itself,
            loses_no_observation,
            pulls_what_is_offered,
            machines_agree,
            fused_or_not_agrees,
        ),
        Policy: (policy_beats_uniform,),
        MessageProtocol: (protocol_counts_nothing_twice,),
        Structure: (structure_places_everyone,),
        Privacy: (privacy_says_what_it_claims,),
    }
    for kind, functions in checks.items():
        if isinstance(thing, kind):
            for function in functions:
                yield function.__name__, partial(function, thing)


def small_world(system: System, **options: Any) -> Homogeneous | Collaborative:
    """The environment that the checks run a system on: with a graph of users, or rounds in which all act, if needed."""
    rounds: Any = "all" if system.protocol.says == "gossip" else "one"
    kind = Collaborative if needs_graph(system) else Homogeneous
    return kind(n_clients=CLIENTS, dim=3, n_arms=5, rounds=rounds, **options)


def needs_graph(system: System) -> bool:
    """Whether the system learns on a graph that the world has to know."""
    return getattr(system.structure, "needs_graph", False) and getattr(system.structure, "graph", None) is None


def horizon_of(system: System) -> int:
    """Rounds that make HORIZON interactions."""
    return HORIZON // CLIENTS if system.protocol.says == "gossip" else HORIZON


def repeats_itself(system: System) -> None:
    """The same arguments give the same arms, rewards and messages; another seed gives others."""
    first, again, other = (simulate(system, small_world(system), horizon_of(system), seed) for seed in (1, 1, 2))
    assert np.array_equal(first.arms, again.arms), "two runs with one seed pulled different arms"
    assert np.array_equal(first.communication.message_curve, again.communication.message_curve)
    assert not np.array_equal(first.reward, other.reward), "another seed gave the same rewards"


def pulls_what_is_offered(system: System) -> None:
    """Every arm is one that was offered, also when rounds offer different numbers of arms."""
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 6, size=HORIZON)
    arms = [rng.standard_normal((k, 3)) / 3 for k in counts]
    payoffs = [x @ np.ones(3) for x in arms]
    graph = np.full((CLIENTS, CLIENTS), 1 / CLIENTS) if needs_graph(system) else None
    everybody = system.protocol.says == "gossip"
    clients = np.arange(HORIZON) % CLIENTS if everybody else rng.integers(0, CLIENTS, HORIZON)
    rounds: Any = "all" if everybody else "one"
    env = recorded(clients, arms, payoffs, payoffs, n_clients=CLIENTS, rounds=rounds, graph=graph)
    result = simulate(system, env, horizon_of(system))
    assert ((result.arms.ravel() >= 0) & (result.arms.ravel() < counts)).all(), "an arm was pulled that was not offered"
    assert (np.diff(result.regret) >= -1e-12).all(), "cumulative regret fell"


def loses_no_observation(system: System) -> None:
    """Uploaded + pending = observed, for counts and for V, under delays too."""
    everybody = system.protocol.says == "gossip"
    late = small_world(system, delay=(0, 7), arrivals="uniform" if everybody else "skewed")
    for env in (small_world(system), late):
        simulation = Simulation(system, env, horizon_of(system), 0)
        while not simulation.finished:
            simulation.advance()
        learner = simulation.learner
        if isinstance(learner, ClustersLearner):
            _clusters_lose_nothing(learner)
        if not isinstance(learner, RowsLearner):
            continue  # its model is not made of rows that are uploaded
        learner.settle()
        taken = learner.rows[: learner.seats.taken[0]]
        own, pending = taken[:, N_OWN].sum(), taken[:, N_PENDING].sum()
        applied = applied_by(learner)
        if applied is not None:
            assert applied + pending == own, f"{own:g} observed, but {applied:g} uploaded and {pending:g} pending"
        if learner.rules.speaks and system.privacy.perturbs != "statistics":
            trace = sum(np.trace(unpacked(base_of(row, env.dim), env.dim)) for row in learner.hub.pool)
            assert trace <= own * env.bound**2 + 1e-9, "the coordinator's V is larger than its observations can be"
        assert own <= HORIZON, "more was observed than happened"


def applied_by(learner: RowsLearner) -> int | None:
    """Observations that have reached a coordinator or peers; None if there is nobody to send them to."""
    if isinstance(learner.exchange, PeerExchange):
        own = ((i, tell) for i, node in enumerate(learner.exchange.nodes) for tell in node.told.values())
        return sum(tell.sums.n for i, tell in own if tell.member == i)
    if learner.members is not None:
        return int(learner.members.members.n.sum())
    return int(learner.hub.pool[:, N].sum()) if learner.rules.speaks else None


def _clusters_lose_nothing(learner: ClustersLearner) -> None:
    own = learner.own[:, N].sum()
    leaders = np.unique(learner.groups.row_of)
    if learner.rules.speaks:
        applied, pending = learner.hub.pool[:, N].sum(), learner.rows[leaders, N_PENDING].sum()
        assert applied + pending == own, f"{own:g} observed, but {applied:g} uploaded and {pending:g} pending"
    else:
        used = learner.rows[leaders, N].sum()
        assert used == own, f"{own:g} observed, but clusters have {used:g}"
    assert own <= HORIZON, "more was observed than happened"


def machines_agree(system: System) -> None:
    """Separate client machines and a coordinator, joined by a link, pull the same arms and send the same messages."""
    env = small_world(system)
    if system.protocol.says == "gossip":
        result = simulate(system, env, horizon_of(system), seed=3)
        arms, told = run_peers(system, env, horizon_of(system), seed=3)
        assert np.array_equal(result.arms.ravel(), arms), "peers pulled other arms than the simulator"
        assert result.communication.uploads == told, "peers told another number of times"
        return
    if not system.structure.separate:
        return  # clients share models, all of them or those of a local server: none is a machine of its own
    result = simulate(system, env, HORIZON, seed=3)
    arms, uploads, downloads = run_machines(system, env, HORIZON, seed=3)
    assert np.array_equal(result.arms, arms), "machines pulled other arms than the simulator"
    assert np.array_equal(result.communication.upload_curve, np.cumsum(uploads)), "uploads differ"
    assert np.array_equal(result.communication.download_curve, np.cumsum(downloads)), "downloads differ"


def run_machines(
    system: System, env: Environment, horizon: int, seed: int
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Arms, uploads and downloads of each interaction when machines on a link do what `simulate` does."""
    world = world_of(env, horizon, seed)
    link = Link(system, world, seed)
    block = env.open(seed).block(0, world.horizon)
    arms, uploads, downloads = (np.zeros(world.horizon, dtype=np.int64) for _ in range(3))
    for s, i in enumerate(block.clients):
        before = link.counts["Upload"], link.counts["Download"]
        link.greet(int(i))
        client = link.clients[i]
        offered = block.arms[s, : block.counts[s]]
        choice = client.select(block.X[offered])
        link.say(client.observe(choice.number, draw_reward(block, s, choice.arm)))
        arms[s] = choice.arm
        if (s + 1) % world.per_round == 0:
            link.end_round((s + 1) // world.per_round)
        uploads[s] = link.counts["Upload"] - before[0]
        downloads[s] = link.counts["Download"] - before[1]
    counted = system.structure.layout(world).counted  # what stays in the house is no message
    return arms, counted * uploads, counted * downloads


def run_peers(system: System, env: Environment, horizon: int, seed: int) -> tuple[np.ndarray[Any, Any], int]:
    """Arms of each interaction, and how often statistics were sent, when peers do what `simulate` does."""
    world = world_of(env, horizon)
    peers = [PeerMachine(i, system, world, seed) for i in range(world.n_clients)]
    block = env.open(seed).block(0, world.horizon)
    arms, told = np.zeros(world.horizon, dtype=np.int64), 0
    for s, i in enumerate(block.clients):
        choice = peers[i].select(block.X[block.arms[s, : block.counts[s]]])
        peers[i].observe(choice.number, draw_reward(block, s, choice.arm))
        arms[s] = choice.arm
        if (s + 1) % world.per_round == 0:
            for sender, receiver, message in [(peer.member, *sent) for peer in peers for sent in peer.send()]:
                told += isinstance(message, Tell)
                peers[receiver].receive(sender, decode(encode(message)))
            for peer in peers:
                peer.end_round()
    return arms, told


def fused_or_not_agrees(system: System) -> None:
    """An exchange that is compiled into the loop does what the coordinator machine does."""
    simulations = [Simulation(system, small_world(system), horizon_of(system), 5, fuse=fuse) for fuse in (True, False)]
    for simulation in simulations:
        while not simulation.finished:
            simulation.advance()
    fused, separate = (simulation.result() for simulation in simulations)
    assert np.array_equal(fused.arms, separate.arms), "the compiled exchange leads to other arms"
    assert np.array_equal(fused.communication.message_curve, separate.communication.message_curve)


def policy_beats_uniform(policy: Policy) -> None:
    """On one client's easy problem, a policy that learns earns more than random arms."""
    if isinstance(policy, Uniform):
        return
    env = Homogeneous(n_clients=1, dim=3, n_arms=5)
    learned = simulate(System(policy), env, 400, 0).reward[-1]
    random = simulate(System(Uniform()), env, 400, 0).reward[-1]
    assert learned > random, f"the policy earned {learned:.1f}, random arms {random:.1f}"


def protocol_counts_nothing_twice(protocol: MessageProtocol) -> None:
    """A system with this protocol loses no observation, and machines agree with the simulator on it."""
    alone = getattr(protocol, "one_by_one", False)
    system = System(protocol=protocol, structure=EvidenceClusters() if alone else Everyone())
    loses_no_observation(system)
    machines_agree(system)
    fused_or_not_agrees(system)


def structure_places_everyone(structure: Structure) -> None:
    """Every user has a row, and every row a group."""
    layout = structure.layout(World(CLIENTS, 3, HORIZON))
    row_of = np.arange(CLIENTS) if layout.row_of is None else layout.row_of
    assert row_of.shape == (CLIENTS,), "not every user has a row"
    assert ((row_of >= 0) & (row_of < layout.n_rows)).all(), "a user has a row that does not exist"
    assert layout.group_of.size in (1, layout.n_rows), "not every row has a group"
    assert set(layout.group_of.tolist()) == set(range(layout.n_groups)), "a group is empty or does not exist"


def privacy_says_what_it_claims(privacy: Privacy) -> None:
    """A mechanism that claims something says what, against whom and how much; one that does not claims nothing."""
    claim = privacy.guarantee()
    if claim.basis == "none":
        assert claim.protects == "nothing"
        assert privacy.site == "nowhere", "noise is drawn, but nothing is claimed"
    else:
        assert claim.epsilon > 0
        assert 0 <= claim.delta < 1
        assert claim.neighbours, "the neighbouring relation is missing"
