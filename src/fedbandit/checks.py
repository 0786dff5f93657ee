"""Public conformance checks: what any part, environment or system must do, whoever wrote it.

`run(thing)` runs those that apply, and prints their names; `checks_for(thing)` gives them, each a function without
arguments that raises AssertionError with a sentence. The project's own tests run them on every part and preset; run
them on yours:

>>> import fedbandit as fb
>>> run(fb.linucb())
repeats_itself
loses_no_observation
pulls_what_is_offered
engines_agree
bytes_agree
5 checks passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np

from fedbandit.engine.plain import PlainLearner
from fedbandit.engine.simulation import Simulation, simulate, which_engine
from fedbandit.environments import Collaborative, Homogeneous, Synthetic, recorded
from fedbandit.environments import checks as environments
from fedbandit.environments.block import world_of
from fedbandit.errors import FedbanditError, check_call, shown
from fedbandit.machines.link import Link
from fedbandit.model import Part, RidgeModel
from fedbandit.parts import name_of
from fedbandit.policies import Policy, Uniform
from fedbandit.privacy import Privacy
from fedbandit.privacy.privacy import Releases
from fedbandit.protocols import (
    CountTriggered,
    EventTriggered,
    MessageProtocol,
    Never,
    Scheduled,
    ServerQueue,
    Synchronous,
)
from fedbandit.sharing import FoundGroups
from fedbandit.streams import Draw, Purpose, generator, policy_key
from fedbandit.structures import Alone, EvidenceClusters, GlobalLocal, Laplacian, OnGraph, Structure
from fedbandit.structures.action_model import ActionModel
from fedbandit.sums import Sums
from fedbandit.system import System
from fedbandit.types import Array
from fedbandit.world import World

CLIENTS, HORIZON = 4, 240
MEMBERWISE = EventTriggered(2.0, 2.0), CountTriggered(1.5, 1.5), Synchronous(1.0), ServerQueue(), Scheduled()
"""The protocols whose coordinators know their members one by one, and find groups."""


def run(thing: Any) -> None:
    """Run the checks of a part, environment or system, printing their names; a failure says which.

    A class stands for `thing()`, and that of a synthetic environment for one with few clients. Systems in which a part
    is not tried, as they refuse it, are printed with the sentence.
    """
    if isinstance(thing, type):
        given = {"n_clients": 2 * CLIENTS, "dim": 3, "n_arms": 5} if issubclass(thing, Synthetic) else {}
        check_call(thing.__name__, thing, (), given)
        thing = thing(**given)
    for name, sentence in _tried_with(thing)[1]:
        print(f"not tried [{name}]: {sentence}", flush=True)
    checks = list(checks_for(thing))
    if not checks:
        raise FedbanditError(f"No check applies to {shown(thing)}; give a part, an environment, or a system.")
    for name, check in checks:
        print(name, flush=True)
        try:
            check()
        except Exception as error:
            raise AssertionError(f"{name}: {error}") from error
    print(f"{len(checks)} checks passed.")


def checks_for(thing: Any) -> Iterator[tuple[str, Callable[[], None]]]:
    """Names and checks for a system, an environment, or a part, which is tried in the systems of `systems_with`."""
    if hasattr(thing, "open"):
        for required in environments.CHECKS:
            yield required.__name__, partial(required, thing)
    if isinstance(thing, System):
        for rule in (repeats_itself, loses_no_observation, pulls_what_is_offered, engines_agree, bytes_agree):
            yield rule.__name__, partial(rule, thing)
    if isinstance(thing, Policy):
        yield policy_beats_uniform.__name__, partial(policy_beats_uniform, thing)
        yield propensities_are_those_of_choices.__name__, partial(propensities_are_those_of_choices, thing)
        yield policy_knows_actions.__name__, partial(policy_knows_actions, thing)
        yield policy_remembers_nothing.__name__, partial(policy_remembers_nothing, thing)
    if isinstance(thing, Structure) and thing.separate:
        yield structure_places_everyone.__name__, partial(structure_places_everyone, thing)
        yield found_groups_are_used.__name__, partial(found_groups_are_used, thing)
    if isinstance(thing, Privacy):
        yield privacy_says_what_it_claims.__name__, partial(privacy_says_what_it_claims, thing)
        yield a_claim_has_noise.__name__, partial(a_claim_has_noise, thing)
    for system in systems_with(thing):
        for name, check in checks_for(system):
            yield f"{name} [{system.name}]", check


def systems_with(part: Any) -> list[System]:
    """The plainest systems that can hold a part, named after the other parts."""
    return _tried_with(part)[0]


def _tried_with(part: Any) -> tuple[list[System], list[tuple[str, str]]]:
    """These systems; and the names of those that refuse the part, with the sentence."""
    makes: dict[str, Callable[..., System]] = {}
    if isinstance(part, Policy):
        makes = {
            "alone": partial(System, part),
            "shared": partial(System, part, EventTriggered(2.0, 2.0)),
            "two parts": partial(System, part, EventTriggered(2.0, 2.0), GlobalLocal(d_global=2)),
            "graph": partial(System, part, structure=Laplacian()),
        }
    elif isinstance(part, MessageProtocol):
        makes = {
            "everyone": partial(System, protocol=part),
            "clusters": partial(System, protocol=part, structure=EvidenceClusters(recluster=1.3)),
        }
    elif isinstance(part, Structure):
        speaking = MEMBERWISE if part.separate and part.by_member else (EventTriggered(2.0, 2.0), Synchronous(1.0))
        makes = {
            name_of(type(protocol)): partial(System, protocol=protocol, structure=part)
            for protocol in (*speaking, Never())
        }
    elif isinstance(part, Privacy):
        makes = {
            "counted": partial(System, protocol=CountTriggered(1.5, 1.5), privacy=part),
            "alone": partial(System, protocol=CountTriggered(1.5, 1.5), structure=Alone(), privacy=part),
            "graph": partial(System, structure=Laplacian(), privacy=part),
        }
    systems, refused = [], []
    for name, make in makes.items():
        try:
            systems.append(make(name=name))
        except FedbanditError as error:
            refused.append((name, str(error)))
    return systems, refused


def small_world(system: System, **options: Any) -> Homogeneous | Collaborative:
    """The environment that the checks run a system on: with a graph of users, or rounds in which all act, if needed."""
    rounds: Any = "all" if system.protocol.says == "gossip" else "one"
    kind = Collaborative if isinstance(system.structure, OnGraph) else Homogeneous
    return kind(n_clients=CLIENTS, dim=3, n_arms=5, rounds=rounds, **options)


def horizon_of(system: System) -> int:
    """Rounds that make HORIZON interactions."""
    return HORIZON // CLIENTS if system.protocol.says == "gossip" else HORIZON


def repeats_itself(system: System) -> None:
    """The same arguments give the same arms, rewards and messages; another seed gives others."""
    first, again, other = (
        simulate(system, small_world(system), horizon_of(system), seed, engine="plain") for seed in (1, 1, 2)
    )
    assert np.array_equal(first.arms, again.arms), "two runs with one seed pulled different arms"
    assert np.array_equal(first.communication.message_curve, again.communication.message_curve)
    assert not np.array_equal(first.reward, other.reward), "another seed gave the same rewards"


def pulls_what_is_offered(system: System) -> None:
    """Every arm is one that was offered, also when rounds offer different numbers of arms."""
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 6, size=HORIZON)
    arms = [rng.standard_normal((k, 3)) / 3 for k in counts]
    payoffs = [x @ np.ones(3) for x in arms]
    graph = np.full((CLIENTS, CLIENTS), 1 / CLIENTS) if isinstance(system.structure, OnGraph) else None
    everybody = system.protocol.says == "gossip"
    clients = np.arange(HORIZON) % CLIENTS if everybody else rng.integers(0, CLIENTS, HORIZON)
    rounds: Any = "all" if everybody else "one"
    env = recorded(clients, arms, payoffs, payoffs, n_clients=CLIENTS, bound=3.0, rounds=rounds, graph=graph)
    result = simulate(system, env, horizon_of(system), engine="plain")
    assert ((result.arms.ravel() >= 0) & (result.arms.ravel() < counts)).all(), "an arm was pulled that was not offered"
    assert (np.diff(result.regret) >= -1e-12).all(), "cumulative regret fell"


def loses_no_observation(system: System) -> None:
    """Applied + pending = observed, under delays too."""
    everybody = system.protocol.says == "gossip"
    late = small_world(system, delay=(0, 7), arrivals="uniform" if everybody else "skewed")
    for env in (small_world(system), late):
        simulation = Simulation(system, env, horizon_of(system), 0, engine="plain")
        while not simulation.finished:
            simulation.advance()
        assert isinstance(simulation.learner, PlainLearner)
        tally = simulation.learner.machines.tally()
        if tally is not None:
            observed, applied, pending = tally
            assert applied + pending == observed, f"{observed} observed, but {applied} applied and {pending} pending"
            assert observed <= HORIZON, "more was observed than happened"


def engines_agree(system: System) -> None:
    """On a system that the fast engine takes, both pull the same arms and send the same messages, under delays too."""
    everybody = system.protocol.says == "gossip"
    late = small_world(system, delay=(0, 5), arrivals="uniform" if everybody else "skewed")
    for env in (small_world(system), late):
        world = world_of(env, horizon_of(system), 3)
        try:
            which_engine("fast", system.told(world), world)
        except FedbanditError:
            return  # it does not take this system
        fast, plain = (simulate(system, env, horizon_of(system), 3, engine=engine) for engine in ("fast", "plain"))
        differ = np.flatnonzero(fast.arms.ravel() != plain.arms.ravel())
        assert differ.size == 0, f"the engines pulled different arms, first in interaction {differ[0]}"
        for curve in ("upload_curve", "download_curve"):
            one, other = (getattr(result.communication, curve) for result in (fast, plain))
            differ = np.flatnonzero(one != other)
            assert differ.size == 0, f"the engines' {curve}s differ, first in round {differ[0]}"
        assert fast.communication.control_messages == plain.communication.control_messages, "control messages differ"
        assert fast.clusters == plain.clusters, "the engines found different clusters"


def bytes_agree(system: System) -> None:
    """Machines that exchange bytes pull the same arms as machines that exchange messages."""
    if system.protocol.says in ("nothing", "gossip") or not system.structure.separate:
        return  # nothing crosses a link of clients and a coordinator
    arms = [Linked(system, encoded=encoded)() for encoded in (False, True)]
    assert arms[0] == arms[1], "encoded messages lead to other arms"


class Linked:
    """Clients and a coordinator, joined by a link; called, they run on a small world, and the arms are returned."""

    def __init__(self, system: System, *, encoded: bool) -> None:
        self.env = small_world(system)
        self.world = world_of(self.env, HORIZON, 3)
        self.link = Link(system, self.world, 3, encoded=encoded)

    def __call__(self) -> list[int]:
        block, link, arms = self.env.open(3).block(0, self.world.horizon), self.link, []
        for s, i in enumerate(block.clients.tolist()):
            choice, a, _ = link.select(i, block.X[block.arms[s]])
            link.observe(i, choice, float(block.means[s, a] + block.noise[s]))
            if link.next_wake(s) == s + 1:
                link.end_round(s + 1)
            arms.append(a)
        return arms


def propensities_are_those_of_choices(policy: Policy) -> None:
    """The probabilities that a policy names are those with which it chooses."""
    rng = np.random.default_rng(0)
    policy = policy.told(World(n_clients=1, dim=3, horizon=100))
    model, offered, K, times = RidgeModel(3, 1.0), rng.standard_normal((4, 3)) / 2, 4, 1000
    for x in rng.standard_normal((20, 3)) / 2:
        model.observe(x, float(x[0]) + 0.1 * float(rng.standard_normal()))
    draws = [Draw(policy_key(0), client, step=0) for client in range(times)]
    named = policy.propensities(model, offered, Draw(policy_key(0), times, step=0))
    assert named.shape == (K,), f"propensities have the shape {named.shape}, and {K} arms were offered"
    assert named.min() >= 0, "a propensity is negative"
    assert abs(named.sum() - 1) < 1e-9, f"propensities sum to {named.sum()}"
    seen = np.bincount([policy.choose(model, offered, draw) for draw in draws], minlength=K) / times
    apart = float(np.abs(seen - named).max())
    allowed = {"none": 0.0, "known": 5 * 0.5 / times**0.5, "unknown": 5 * 0.5 * (1 / times + 1 / 200) ** 0.5}
    assert apart <= allowed[policy.randomness], (
        f"randomness is {policy.randomness!r}, but arms are chosen with {seen} where propensities are {named}"
    )


def policy_beats_uniform(policy: Policy) -> None:
    """On one client's easy problem, a policy that learns earns more than random arms."""
    if policy.only_explores:
        return
    env = Homogeneous(n_clients=1, dim=3, n_arms=5)
    learned = simulate(System(policy), env, 400, 0, engine="plain").reward[-1]
    random = simulate(System(Uniform()), env, 400, 0, engine="plain").reward[-1]
    assert learned > random, f"the policy earned {learned:.1f}, random arms {random:.1f}"


class Unstacked(ActionModel):
    """A model with one θ for each action, seen part by part."""

    def stacks(self, contexts: Array) -> Sequence[tuple[Part, Array]]:
        """Nothing is stacked."""
        return self.parts(contexts)


def policy_knows_actions(policy: Policy) -> None:
    """It chooses with a model that has one θ for each action; the same arms where its parts come stacked."""
    rng, policy = np.random.default_rng(0), policy.told(World(n_clients=1, dim=3, horizon=100, actions=5))
    stacked, unstacked = ActionModel(5, 3, 0.1), Unstacked(5, 3, 0.1)
    for step in range(40):
        offered = np.column_stack([rng.integers(5, size=4), rng.standard_normal((4, 3)) / 2])
        if step % 2:
            offered[:, 0] = rng.permutation(5)[:4]
        a, other = (policy.choose(model, offered, Draw(policy_key(0), 0, step=step)) for model in (stacked, unstacked))
        assert 0 <= a < len(offered), f"arm {a} was chosen of {len(offered)}"
        assert a == other, f"arm {a} was chosen with stacked parts, {other} with one part after another"
        y = float(rng.standard_normal())
        for model in (stacked, unstacked):
            model.observe(offered[a], y)


def policy_remembers_nothing(policy: Policy) -> None:
    """It chooses by model, contexts and draw alone: all clients share one policy, and ask in any order."""
    rng, policy = np.random.default_rng(0), policy.told(World(n_clients=2, dim=3, horizon=100))
    models, asked = (RidgeModel(3, 1.0), RidgeModel(3, 1.0)), range(60)
    for model, sign in zip(models, (1.0, -1.0), strict=True):
        for x in rng.standard_normal((10, 3)) / 2:
            model.observe(x, sign * float(x[0]))
    offered = rng.standard_normal((60, 4, 3)) / 2

    def answers(order: Sequence[int]) -> dict[int, int]:
        return {k: policy.choose(models[k % 2], offered[k], Draw(policy_key(0), k % 2, step=k // 2)) for k in order}

    first = answers(asked)
    for order in (asked[::2], asked[::-1]):  # one of the clients alone, then both
        other = [k for k, a in answers(order).items() if a != first[k]]
        assert not other, (
            f"asked again with the same model, contexts and draw, it chose another arm ({len(other)} times of "
            f"{len(order)}): keep nothing in the policy, but in what `model` says (model.n …)"
        )


def found_groups_are_used(structure: Structure) -> None:
    """Groups that are to be found while running are looked for, and somebody is sent something."""
    sent: list[int] = []
    for protocol in MEMBERWISE:
        try:
            system = System(protocol=protocol, structure=structure)
        except FedbanditError:
            continue  # a pair that makes no sense, as the sentence says
        linked = Linked(system, encoded=False)
        assert linked.link.coordinator is not None
        sharing = linked.link.coordinator.sharing
        if not isinstance(sharing, FoundGroups):
            return
        with patch.object(sharing, "find", wraps=sharing.find) as find:
            linked()
        where = f"under {type(protocol).__name__}"
        assert find.called, f"groups were never looked for {where} in {HORIZON} rounds: see next_wake and regroup"
        sent.append(linked.link.downloads)
    assert any(sent), "nobody was ever sent anything"


def structure_places_everyone(structure: Structure) -> None:
    """Every client has a model and is in a group."""
    world = World(CLIENTS, 3, HORIZON, graph=np.full((CLIENTS, CLIENTS), 1 / CLIENTS), d_global=2)
    groups = structure.sharing(world, 0.1).groups()
    missing = set(range(CLIENTS)) - {i for group in groups for i in group}
    assert not missing, f"client {min(missing)} is in no group"
    for i in range(CLIENTS):
        scores = structure.model(world, i, 0.1).means(np.eye(3))
        assert scores.shape == (3,), f"the model of client {i} has {scores.shape} means for three contexts"


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


def _released(stream: Releases) -> Sums:
    """What leaves in place of some statistics: of one client, or of all users of a graph at once."""
    one, graph = (Sums(np.eye(d) / 4, np.ones(d) / 4, 3) for d in (3, 3 * CLIENTS))
    try:
        return stream.release(one)
    except FedbanditError:  # of another shape
        return stream.release(graph)


def a_claim_has_noise(privacy: Privacy) -> None:
    """A mechanism that claims something finite noises rewards, releases or totals: two seeds release other sums."""
    systems = systems_with(privacy)
    worlds = [world_of(small_world(system), horizon_of(system)) for system in systems]
    settled = [system.told(world).privacy for system, world in zip(systems, worlds, strict=True)]
    for part in settled or [privacy.told(World(CLIENTS, 3, HORIZON), 20)]:
        claim = part.guarantee()
        if not claim.private or claim.epsilon == np.inf or part.reward_rule.scale > 0:
            continue
        streams = [part.stream(0, partial(generator, seed, Purpose.NOISE, 0)) for seed in (0, 1)]
        noised = part.total(partial(generator, 0, Purpose.NOISE, CLIENTS)) is not None
        if streams[0] is not None and streams[1] is not None:
            one, other = _released(streams[0]), _released(streams[1])
            noised |= not (np.array_equal(one.V, other.V) and np.array_equal(one.b, other.b))
        assert noised, (
            f"ε = {claim.epsilon:g} is claimed, but nothing is noised: give it a reward_rule with a scale, a stream "
            "whose releases are random, or a total"
        )
