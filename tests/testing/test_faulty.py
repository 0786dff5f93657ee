"""Nothing is lost and nothing counts twice, whatever the network does and whoever crashes.

`FEDBANDIT_STEPS` is how many steps are injected, 100,000 if it is not set; `make soak` does a million.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.engine.fast.outcome import draw_reward
from fedbandit.environments.block import world_of
from fedbandit.messages import Collect, Message
from fedbandit.network.client.durable import Member
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.invitation import Terms, on_a_network
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import MemoryStore
from fedbandit.testing.faulty import NONE, Crash, FaultyNetwork, copied

STEPS = int(os.environ.get("FEDBANDIT_STEPS", "100000"))
WORLD = fb.World(n_clients=4, dim=2, horizon=10_000)
SYSTEMS: list[tuple[str, dict[str, Any]]] = [
    ("async-linucb", {"gamma_upload": 1.2, "gamma_download": 1.3}),
    ("async-linucb", {"gamma_upload": 1.1, "gamma_download": 1.1, "warm_join": True}),
    ("count-linucb", {"factor_upload": 1.2, "factor_download": 1.1}),
    ("sync-linucb", {"threshold": 0.5}),
    ("hetofedbandit", {"exploration": 5, "threshold": 1.0}),
    ("hetofedbandit-e", {"threshold": 2.0}),
    ("hetofedbandit-async", {"gamma_upload": 1.5, "gamma_download": 1.5}),
    ("clustered-linucb", {}),
    ("count-linucb", {"privacy": {"noises": "statistics", "epsilon": 3.0}}),
    ("feducb", {"epsilon": 3.0}),
    ("async-linucb-am", {"d_global": 1, "gamma_upload": 1.2, "gamma_download": 1.2}),
]
RUN = 2500
"""Steps with one seed."""


@pytest.mark.parametrize(("system", "keywords"), SYSTEMS)
@pytest.mark.parametrize("part", range(4))
def test_invariants_hold_under_faults(system: str, keywords: dict[str, Any], part: int) -> None:
    runs = max(1, round(STEPS / (len(SYSTEMS) * 4 * RUN)))
    for seed in range(part * runs, (part + 1) * runs):
        network = FaultyNetwork(on_a_network(Terms(system, keywords, WORLD)), seed)
        for step in range(-(-STEPS // (len(SYSTEMS) * 4 * runs))):
            network.step()
            if step % 100 == 0:
                network.check()
        network.check()
        assert network.crashes > 0
        network.drain()
        network.check()
        for node in network.nodes.values():
            assert node.live is not None
            assert not node.live.machine.outbox, f"seed {seed}: {node.name} still has uploads that nobody acknowledges"


def exploring(federation: Federation) -> bool:
    """Whether clients explore."""
    return federation.machine.exploring


def test_a_run_is_repeated_by_its_seed() -> None:
    def run(seed: int) -> tuple[int, int, list[float]]:
        network = FaultyNetwork(Terms(*SYSTEMS[0], WORLD), seed)
        for _ in range(600):
            network.step()
        rows = [float(node.live.machine.model.theta.sum()) for node in network.nodes.values() if node.live is not None]
        return network.crashes, network.refusals, rows

    assert run(3) == run(3)
    assert run(3) != run(4)


@pytest.mark.parametrize(("system", "keywords"), SYSTEMS[:3])
def test_copied_clients_cannot_count_twice(system: str, keywords: dict[str, Any]) -> None:
    heard = 0
    for seed in range(6):
        network = FaultyNetwork(on_a_network(Terms(system, keywords, WORLD)), seed)
        originals = list(network.nodes.values())
        for step in range(1500):
            network.step()
            if step % 300 == 150:
                copied(network, network.random.choice(originals))
        if network.coordinator is None:
            network.restart_coordinator()
        assert network.coordinator is not None
        V, _, n = network.coordinator.machine.gathered()
        assert n == len(network._applied), "an observation counts twice, or not at all"
        np.testing.assert_allclose(V, network._pool[0], atol=1e-7)
        heard += network.refusals
    assert heard > 0, "no copy was ever refused"


@pytest.mark.parametrize(("system", "keywords"), SYSTEMS)
def test_without_faults_it_is_the_simulation(system: str, keywords: dict[str, Any]) -> None:
    clustered = system in ("hetofedbandit", "hetofedbandit-e", "hetofedbandit-async", "clustered-linucb")
    env = fb.environments.clustered(
        n_clients=4, n_clusters=2, gap=1.0, dim=3, n_arms=5, rewards="gaussian", rounds="all" if clustered else "one"
    )
    horizon = 50 if clustered else 200
    world = world_of(env, horizon)
    terms = Terms(system, keywords, world, seed=3)
    plain = fb.simulate(terms.build(), env, horizon, 3, engine="plain")
    network = FaultyNetwork(terms, 0, NONE)
    block = env.open(3).block(0, 200)
    chosen = np.zeros(200, dtype=np.int64)
    names, joined = list(network.nodes), set()

    def settle() -> None:
        network.time += 1
        while network.deliver():
            pass

    if terms.build().protocol.join == "member":
        for node in network.nodes.values():
            network.say(node)
            settle()
    for s, i in enumerate(block.clients):
        node = network.nodes[names[i]]
        if i not in joined:
            joined.add(i)
            network.say(node)
            settle()
        assert node.live is not None
        choice = node.live.select(block.X[block.arms[s, : block.counts[s]]])
        network.note_observation(node)
        node.live.observe(choice.number, draw_reward(block, s, choice.arm))
        network._account(node)
        chosen[s] = choice.arm
        network.speak(node)
        settle()
        if clustered and s % 4 == 3:
            network.tick()
            settle()
    assert np.array_equal(chosen, plain.arms.ravel())
    assert network.coordinator is not None
    seats = network.coordinator.register.by_member
    assert sum(seat.uploads for seat in seats) == plain.communication.uploads
    assert sum(seat.downloads for seat in seats) == plain.communication.downloads


def test_a_check_that_cannot_fail_is_none() -> None:
    network = FaultyNetwork(Terms(*SYSTEMS[0], WORLD), 0)
    for _ in range(400):
        network.step()
    if network.coordinator is None:
        network.restart_coordinator()
    assert network.coordinator is not None
    network.check()
    machine = network.coordinator.machine
    machine.members.n[0] += 1
    with pytest.raises(AssertionError, match="observations applied"):
        network.check()
    network.coordinator_store.fuse = "before"
    with pytest.raises(Crash):
        network.coordinator_store.append("x", [b""])


def test_rounds_pass_and_survive_crashes() -> None:
    network = FaultyNetwork(on_a_network(Terms("hetofedbandit", {"exploration": 3}, WORLD)), 0, NONE)
    assert network.coordinator is not None
    network.tick()
    assert network.coordinator.rounds == 0, "no round passes before anybody is here"
    for node in network.nodes.values():
        network.say(node)
    while network.deliver():
        pass
    for _ in range(2):
        network.tick()
    network.restart_coordinator()
    assert network.coordinator.rounds == 0, "nothing happened since, so nothing was written"
    for _ in range(3):
        network.tick()
    assert network.coordinator.rounds == 3
    assert network.coordinator.machine.awaits() == [0, 1, 2, 3], "the exploration is over: everybody is called"
    network.restart_coordinator()
    assert network.coordinator.rounds == 3
    assert network.coordinator.machine.awaits() == [0, 1, 2, 3]


def test_nobody_waits_for_ever() -> None:
    """Two of four seats are never taken, a third goes away: the fourth goes on; whoever comes back is heard."""
    federation = Federation("f", on_a_network(Terms("hetofedbandit", {"exploration": 2}, WORLD)), MemoryStore(), 3)
    members = [Member(MemoryStore(), federation.terms, i, iter(range(10 * i + 1, 99)).__next__) for i in range(3)]

    def tell(i: int, frame: bytes | None) -> list[Message]:
        assert frame is not None
        (answers,) = federation.receive([(f"client-{i}", frame)], 0.0)
        assert not isinstance(answers, Refusal), answers
        return answers

    for i in range(2):
        federation.invite(f"client-{i}", 0.0)
        tell(i, members[i].greeting())
    calls = [message for _ in range(2) for message in federation.tick(0.0)]
    assert [message.member for message in calls if isinstance(message, Collect)] == [0, 1], "the two who have joined"
    members[0].receive(calls[0])
    for frame in members[0].outgoing():
        tell(0, frame)
    assert federation.machine.awaits() == [1]
    assert exploring(federation)
    for _ in range(3):
        assert federation.rounds == 2, "a round does not end while somebody is awaited"
        federation.tick(0.0)
    assert not federation.machine.awaits()
    assert not exploring(federation), "after so many rounds it goes on without the one who is silent"
    federation.tick(0.0)
    assert federation.rounds == 3
    # The one who was silent comes back, with the answer to the old call under way; the third comes for the first time.
    members[1].receive(calls[1])
    federation.invite("client-2", 0.0)
    for i in (1, 2):
        for message in tell(i, members[i].greeting()):
            members[i].receive(message)
        for frame in members[i].outgoing():
            tell(i, frame)
        assert not members[i].machine.exploring
        assert federation.machine.applied[i] == 1
    assert all(seat.is_here for seat in federation.register.by_member)


def test_a_client_in_quarantine_is_not_awaited() -> None:
    federation = Federation("f", on_a_network(Terms("sync-linucb", {"threshold": 0.1}, WORLD)), MemoryStore(), 1000)
    members = [Member(MemoryStore(), federation.terms, i, iter(range(10 * i + 1, 99)).__next__) for i in range(2)]
    for i, member in enumerate(members):
        federation.invite(f"client-{i}", 0.0)
        federation.receive([(f"client-{i}", member.greeting() or b"")], 0.0)
    choice = members[0].select(np.eye(2))
    members[0].observe(choice.number, 1.0)
    for frame in members[0].outgoing():
        federation.receive([("client-0", frame)], 0.0)
    assert federation.machine.awaits() == [0, 1]
    federation.quarantine("client-1", "it lies", 0.0)
    federation.tick(0.0)
    assert federation.machine.awaits() == [0]


def test_clocks_may_jump() -> None:
    """Times are shown, never decided by: with a clock that jumps everything is as with one that does not."""

    def run(times: list[float]) -> tuple[int, int]:
        federation = Federation("f", on_a_network(Terms("clustered-linucb", {}, WORLD)), MemoryStore())
        member = Member(MemoryStore(), federation.terms, 0, iter(range(1, 9)).__next__)
        federation.invite("client-0", times[0])
        federation.receive([("client-0", member.greeting() or b"")], times[0])
        for at in times:
            choice = member.select(np.eye(2))
            member.observe(choice.number, 1.0)
            for message in federation.tick(at):
                member.receive(message)
            for frame in member.outgoing():
                (answers,) = federation.receive([("client-0", frame)], at)
                assert not isinstance(answers, Refusal), answers
                for message in answers:
                    member.receive(message)
        again = Federation("f", federation.terms, federation.store)
        assert again.machine.gathered().n == federation.machine.gathered().n
        return federation.rounds, federation.machine.gathered().n

    steady = run([1e9 + i for i in range(40)])
    assert steady == run([1e9 + (-1) ** i * 10.0 ** (i % 12) for i in range(40)])
    assert steady[1] > 20


def test_whoever_has_lost_its_state_is_told_that_calls_have_begun() -> None:
    """A new life of a member begins by exploring; it is called, and what its former life sent stays."""
    federation = Federation("f", on_a_network(Terms("hetofedbandit", {"exploration": 1}, WORLD)), MemoryStore())
    federation.invite("client-0", 0.0)

    def live(entropy: int) -> Member:
        member = Member(MemoryStore(), federation.terms, 0, lambda: entropy)
        choice = member.select(np.eye(2))
        member.observe(choice.number, 1.0)
        (answers,) = federation.receive([("client-0", member.greeting() or b"")], 0.0)
        assert not isinstance(answers, Refusal), answers
        for message in [*answers, *federation.tick(0.0)]:
            member.receive(message)
        assert not member.machine.exploring
        for frame in member.outgoing():
            (answers,) = federation.receive([("client-0", frame)], 0.0)
            assert not isinstance(answers, Refusal), answers
        return member

    live(11)
    assert federation.machine.gathered().n == 1
    live(22)
    assert federation.machine.gathered().n == 2
