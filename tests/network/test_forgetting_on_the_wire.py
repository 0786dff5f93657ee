"""Models that forget, on a network: dated uploads, whatever the network does, and the simulator's arms and messages."""

from __future__ import annotations

import itertools
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.engine.learner import draw_reward
from fedbandit.environments.block import world_of
from fedbandit.errors import FedbanditError
from fedbandit.messages import Download, decode, encode
from fedbandit.model import RidgeModel
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.clock import now
from fedbandit.network.coordinator.config import FederationConfig, ServerConfig, load_config, on_a_network, seconds_of
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.host import Host
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.network.resolved import accept, client_terms, invitation
from fedbandit.network.stores import MemoryStore, StoreError
from fedbandit.structures.time_blocks import AdaptiveWindow
from fedbandit.testing.faulty import NONE, Faults, FaultyNetwork
from tests.network.servers import served

WORLD = fb.World(n_clients=4, dim=2, horizon=10_000)
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "fading": ("async-linucb", {"gamma_upload": 1.2, "gamma_download": 1.3, "discount": 0.99}),
    "fading, all at once": ("sync-linucb", {"threshold": 0.5, "discount": 0.99}),
    "sliding": ("async-linucb", {"gamma_upload": 1.2, "gamma_download": 1.3, "window": 60}),
    "adaptive": ("async-linucb", {"gamma_upload": 1.2, "gamma_download": 1.3, "window": "adaptive"}),
}


def agreement_of(name: str, world: fb.World = WORLD, seed: int = 0, period: float = 1.0) -> Agreement:
    system, keywords = SYSTEMS[name]
    agreement = Agreement(system, keywords, world, seed, 3.0, period=period)
    on_a_network(agreement)
    return agreement  # with the rounds of the simulation


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("restores", [False, True])
def test_invariants_hold_under_faults(name: str, restores: bool) -> None:
    faults = Faults(backup=0.02, restore=0.01) if restores else None
    network = FaultyNetwork(agreement_of(name, period=20.0), 7, faults)
    for step in range(1200):
        network.step()
        if step % 100 == 0:
            network.check()
    assert network.crashes > 0
    assert (network.restored > 0) == restores
    network.drain()
    network.check()
    network.check_all()


@pytest.mark.parametrize("name", SYSTEMS)
def test_without_faults_it_is_the_simulation(name: str) -> None:
    env = fb.environments.homogeneous(n_clients=3, dim=3, n_arms=5, rewards="gaussian", drift=(100,))
    agreement = agreement_of(name, world_of(env, 200), seed=3)
    result = fb.simulate(agreement.build(), env, 200, seed=3, engine="plain")
    network, block = FaultyNetwork(agreement, 0, NONE), env.open(3).block(0, 200)
    names, joined, arms = list(network.nodes), set[int](), []
    for s, i in enumerate(block.clients.tolist()):
        network.time, node = s, network.nodes[names[i]]
        if s % 40 == 39:  # a restart changes nothing
            node.live = None
            network.restart(node)
            network.restart_coordinator()
        if i not in joined or s % 40 == 39:
            joined.add(i)
            network.say(node)
            while network.deliver():
                pass
        assert node.live is not None
        choice = node.live.select(block.X[block.arms[s, : block.counts[s]]])
        network.oracle.note_observation(node)
        node.live.observe(choice.number, draw_reward(block, s, choice.arm))
        network.oracle.note_uploads(node)
        arms.append(choice.arm)
        network.speak(node)
        while network.deliver():
            pass
    assert arms == result.arms.tolist()
    assert network.coordinator is not None
    records = network.coordinator.register.by_number
    if name != "fading, all at once":  # whoever has not joined is not called on a network
        assert sum(record.uploads for record in records) == result.communication.uploads
        assert sum(record.downloads for record in records) == result.communication.downloads


@pytest.mark.parametrize("name", ["fading", "adaptive"])
def test_clients_over_http_are_the_simulation(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    env = fb.environments.homogeneous(n_clients=3, dim=3, n_arms=5, rewards="gaussian", drift=(40,))
    agreement = agreement_of(name, world_of(env, 80), seed=3)
    result = fb.simulate(agreement.build(), env, 80, seed=3, engine="plain")
    block, now, arms = env.open(3).block(0, 80), [0.0], []
    host = Host(ServerConfig({"shops": FederationConfig(agreement)}, rate=1e6), MemoryStore())
    federation = host.federations["shops"].federation
    clients: dict[int, fb.Client] = {}
    simulated = SimpleNamespace(now=lambda: now[0], hear=lambda _: False, held_up=False, go_on_from=lambda _: None)
    monkeypatch.setattr("fedbandit.network.client.client.ClientClock", lambda _: simulated)

    def settled() -> bool:
        machine = federation.machine
        sent = all(
            not c.status()["outbox"] and c.status()["version"] == machine.sent[c.status()["member"]]
            for c in clients.values()
        )
        return sent and all(bool(machine.joined[c.status()["member"]]) for c in clients.values())

    with served(host) as url:
        for s, i in enumerate(block.clients.tolist()):
            now[0] = float(s)
            if i not in clients:
                clients[i] = fb.Client(url, federation="shops", name=f"shop-{i}")
            while not settled():
                time.sleep(0.002)
            arm = clients[i].select(block.X[block.arms[s, : block.counts[s]]])
            clients[i].observe(draw_reward(block, s, int(arm)), arm)
            arms.append(int(arm))
            while not settled():
                time.sleep(0.002)
        for client in clients.values():
            client.close()
    assert arms == result.arms.tolist()
    records = federation.register.present
    assert sum(record.uploads for record in records) == result.communication.uploads
    assert sum(record.downloads for record in records) == result.communication.downloads


class Life:
    """Two clients with clocks of their own, and a coordinator."""

    def __init__(self, agreement: Agreement) -> None:
        self.federation = Federation("f", agreement, MemoryStore())
        self.clocks = [0.0, 0.0]
        self.clients = []
        for i in range(2):
            self.federation.invite(f"client-{i}", 0.0)
            numbers = iter(range(50 * i + 1, 9999))
            self.clients.append(
                DurableClient(MemoryStore(), agreement, i, numbers.__next__, clock=partial(self.now, i))
            )

    def now(self, i: int) -> float:
        return self.clocks[i]

    def weight(self, i: int) -> float:
        """What the observations of a client's model amount to: each has a context of norm one."""
        model = self.clients[i].machine.model
        assert isinstance(model, RidgeModel)
        return float(np.trace(model.V))

    def visit(self, i: int) -> None:
        choice = self.clients[i].select([[1.0, 0.0], [0.0, 1.0]])
        self.clients[i].observe(choice.number, 0.5)

    def talk(self, i: int, at: float) -> list[Refusal]:
        refused = []
        frames = [greeting] if (greeting := self.clients[i].greeting()) else []
        while frames:
            (outcome,) = self.federation.receive([(f"client-{i}", frames[0])], at)
            if isinstance(outcome, Refusal):
                refused.append(outcome)
                break
            for message in outcome:
                self.clients[message.member].receive(decode(encode(message)))
            frames = [frame.data for frame in self.clients[i].outgoing()]
        return refused


def test_a_client_that_was_offline_discounts_its_own_and_is_discounted() -> None:
    life = Life(on_a_network(Agreement("async-linucb", {"gamma_upload": 1.0, "gamma_download": 1.0, "discount": 0.5},
                                       fb.World(n_clients=2, dim=2, horizon=100), period=86_400.0)))  # fmt: skip
    day = 86_400.0
    life.visit(0)  # on day 0, offline
    assert life.weight(0) == 1.0
    life.clocks = [0.0, 2 * day]
    life.talk(1, 2 * day)
    life.visit(1)
    assert not life.talk(1, 2 * day)
    life.clocks[0] = 2 * day
    assert not life.talk(0, 2 * day)  # the upload is one of day 0
    total = life.federation.machine.gathered()
    assert (np.trace(total.V), total.n, life.federation.machine.members.round) == (1.25, 2, 2)
    life.clocks[0] = 3 * day
    life.clients[0].select([[1.0, 0.0]])
    life.clocks[0] = 1 * day  # a clock that was set back stands still
    life.clients[0].select([[1.0, 0.0]])
    assert life.weight(0) == pytest.approx(0.625)


def test_a_clock_that_is_ahead_waits_and_harms_nobody() -> None:
    life = Life(agreement_of("fading", fb.World(n_clients=2, dim=2, horizon=100), period=3600.0))
    life.clocks[0] = 50 * 3600.0
    life.visit(0)
    (refusal,) = life.talk(0, 3600.0)
    assert "statistics of round 50, but it is round 1 here; its clock is ahead" in str(refusal)
    assert life.federation.machine.members.round == 0
    assert not life.talk(0, 49 * 3600.0)
    assert life.federation.machine.gathered().n == 1


@pytest.mark.parametrize("name", ["fading", "sliding", "adaptive"])
@pytest.mark.parametrize("ahead", [5, 87_600])
def test_a_clock_that_was_ahead_locks_nobody_out(name: str, ahead: int) -> None:
    """It was ahead for long, offline, and is put right: what was learnt then is of today, and the rest comes back."""
    hour = 3600.0
    life = Life(agreement_of(name, fb.World(n_clients=2, dim=2, horizon=1000), period=hour))
    for _ in range(20):
        life.visit(0)
    assert not life.talk(0, 0.0)
    life.visit(0)
    life.clocks[0] = ahead * hour
    for _ in range(20):
        life.visit(0)
    life.clocks[0] = ahead * hour + 2 * hour
    for _ in range(5):
        life.visit(0)
    refusals = life.talk(0, hour)  # the clock is still wrong, so nothing is known
    assert "its clock is ahead" in str(refusals[0])
    waits = life.clients[0].machine.pending
    life.clocks[0] = hour
    life.clients[0].hear_time(hour)
    assert not life.talk(0, hour)
    client, machine = life.clients[0], life.clients[0].machine
    assert (machine.now, machine.outbox, client.asking) == (1, {}, None)
    total = life.federation.machine.gathered()
    assert total.n == 46 - waits
    assert life.federation.machine.members.round <= 1
    assert life.weight(0) >= 40  # what was forgotten too early has come back
    before = machine.model.theta
    again = DurableClient(client.store, client.agreement, 0, iter(range(10_000, 20_000)).__next__, clock=lambda: hour)
    np.testing.assert_allclose(again.machine.model.theta, before)
    life.clients[0] = again
    for _ in range(30):
        life.visit(0)
    assert not life.talk(0, hour)
    assert life.federation.machine.gathered().n == 76 - again.machine.pending
    assert again.statement() is None, "what has faded of it is not all"


class FullStore(MemoryStore):
    """A store that takes no snapshots while it is full."""

    full = False

    def replace(self, journal: str, snapshot: bytes, *, durable: bool = True) -> None:
        if self.full:
            raise StoreError("The disk is full.")
        super().replace(journal, snapshot, durable=durable)


def test_what_is_made_anew_is_on_disk_before_it_is_sent() -> None:
    hour = 3600.0
    life = Life(agreement_of("sliding", fb.World(n_clients=2, dim=2, horizon=1000), period=hour))
    store = FullStore()
    life.clients[0] = DurableClient(
        store, life.federation.agreement, 0, itertools.count(1).__next__, clock=partial(life.now, 0)
    )
    life.clocks[0] = 500 * hour
    life.visit(0)
    assert life.talk(0, 0.0)
    life.clocks[0] = 0.0
    life.clients[0].hear_time(0.0)
    store.full = True
    with pytest.raises(StoreError):
        life.talk(0, 0.0)
    with pytest.raises(StoreError):
        life.clients[0].outgoing()
    assert life.federation.machine.gathered().n == 0
    store.full = False
    assert not life.talk(0, 0.0)
    assert life.federation.machine.gathered().n == 1


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_client_that_was_ahead_and_has_nothing_goes_back(name: str) -> None:
    life = Life(agreement_of(name, fb.World(n_clients=2, dim=2, horizon=1000), period=1.0))
    life.clocks[0] = 500.0
    choice = life.clients[0].select([[1.0, 0.0]])
    life.clocks[0] = 0.0
    life.clients[0].hear_time(0.0)
    assert not life.talk(0, 0.0)
    assert life.clients[0].machine.now == 0
    life.clients[0].observe(choice.number, 0.5)
    assert not life.talk(0, 0.0)
    assert life.weight(0) == 1.0


class Wall:
    """The system's clock, seconds ahead. A coordinator that runs is not led by it at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead, right = 0.0, time.time
        monkeypatch.setattr(time, "time", lambda: right() + self.ahead)


def test_a_clock_that_is_ahead_for_an_instant_locks_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agreement, years = agreement_of("fading", period=3600.0), 10 * 365 * 86_400.0
    wall = Wall(monkeypatch)
    now()  # the coordinator's clock has started
    with served(Host(ServerConfig({"shops": FederationConfig(agreement)}, rate=1e6), MemoryStore())) as url:
        open_one = partial(fb.Client, url, federation="shops", name="a", state=tmp_path / "a.db")

        def ahead(client: fb.Client) -> int:
            return client._durable.machine.now - agreement.round_at(now())

        def visit(client: fb.Client, times: int = 20) -> None:
            for _ in range(times):
                client.observe(0.8, client.select(np.eye(2)))

        with open_one() as client:
            visit(client)
            assert client.flush()
            theta = client.theta
            wall.ahead = years
            client.select(np.eye(2))
            wall.ahead = 0.0
            np.testing.assert_array_equal(client.theta, theta)
            visit(client)
            assert client.flush()
            assert (ahead(client), client.problem) == (0, None)
        wall.ahead = years  # while the device starts, and on
        with open_one() as client:
            client.select(np.eye(2))
            assert ahead(client) == 0
            assert client.flush()
            visit(client)
            assert client.flush()
            assert 0 <= ahead(client) <= 1
        with open_one(name="b", state=tmp_path / "b.db") as client:  # a first start
            visit(client)
            assert client.flush()
            assert 0 <= ahead(client) <= 1
        wall.ahead = 0.0
        with open_one() as client:  # a file that an earlier version took ten years ahead
            durable = client._durable
            with durable.lock:
                durable.machine.at(durable.machine.now + 87_600)
                durable.journal.defer()
            visit(client)
            waits = durable.machine.pending
            assert waits < 20
        with open_one() as client:
            assert client.flush()
            assert 0 <= ahead(client) <= 1
            assert client.theta.max() > 0.5
            visit(client)
            assert client.flush()
            assert client.problem is None


def test_what_an_invitation_says_and_who_cannot_take_part() -> None:
    for name, kind in (("fading", "fading"), ("sliding", "sliding"), ("adaptive", "adaptive")):
        agreement = agreement_of(name, period=60.0)
        terms = client_terms(agreement, 0)
        assert "forgetting" in terms["capabilities"]
        assert terms["forgetting"]["kind"] == kind
        assert terms["forgetting"]["period"] == 60.0
        said = invitation(agreement, "f", 0, "a")
        assert accept(said)[0] == agreement
        assert Agreement.of_json(agreement.as_json()) == agreement
    old = {**said, "client": {**said["client"], "capabilities": [*said["client"]["capabilities"], "dreaming"]}}
    with pytest.raises(FedbanditError, match="clients that can do dreaming"):
        accept(old)
    plain = Agreement("async-linucb", {}, WORLD)
    assert "period" not in plain.as_json()
    assert "forgetting" not in client_terms(plain, 0)


CONFIG = """
[server]
port = 0
[federations.shops]
system = "async-linucb"
clients = 4
dim = 3
horizon = 10000
period = "1d"
keywords = {window = "adaptive"}
"""


def test_periods_are_asked_for_and_read(tmp_path: Path) -> None:
    assert (seconds_of("1d"), seconds_of("30m"), seconds_of(5)) == (86_400.0, 1800.0, 5.0)
    for keywords, period, sentence in (
        ({"discount": 0.9}, None, "say how long a round is, such as period = '1d'"),
        ({}, 60.0, "period is given, but async-linucb forgets nothing"),
        ({"discount": "changes:3"}, 60.0, "needs the number of rounds"),
    ):
        with pytest.raises(FedbanditError, match=sentence):
            on_a_network(Agreement("async-linucb", keywords, WORLD, period=period))
    for name in SYSTEMS:
        agreed = on_a_network(agreement_of(name))
        forgetting = agreed.build().forgetting(agreed.world)
        assert name != "adaptive" or (isinstance(forgetting, AdaptiveWindow) and forgetting.length == 1)
    config = tmp_path / "federation.toml"
    config.write_text(CONFIG)
    agreed = load_config(config).federations["shops"].agreement
    assert (agreed.period, agreed.build().window) == (86_400.0, "adaptive")
    for wrong in ("1x", "d", "", 0.1, None, "-1d"):
        with pytest.raises(FedbanditError, match="period is"):
            seconds_of(wrong)
    with pytest.raises(FedbanditError, match="say how long a round is"):
        fb.Client(None, agreement=Agreement("linucb", {"discount": 0.9}, fb.World(n_clients=1, dim=2, horizon=9)))
    with pytest.raises(FedbanditError, match="cannot change while it runs"):
        agreement_of("fading").require_sound_change(agreement_of("fading", period=2.0), ())


def test_undated_statistics_are_refused() -> None:
    life = Life(agreement_of("fading", fb.World(n_clients=2, dim=2, horizon=100)))
    life.visit(0)
    upload = next(iter(life.clients[0].machine.outbox.values()))
    assert upload.round == 0
    (fault,) = life.federation.limits.faults([fb.messages.Upload(0, 1, upload.sums, 0.0)])
    assert "not dated" in str(fault)
    assert isinstance(decode(encode(Download(0, 1, 0, upload.sums, round=4))), Download)
