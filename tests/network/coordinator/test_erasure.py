"""After an erasure everything is as if the client had never uploaded: sums, groups, shares, files. The ledger stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import fedbandit as fb
from fedbandit.messages import Download, Message, decode, encode
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.coordinator.config import FederationConfig, ServerConfig, on_a_network
from fedbandit.network.coordinator.erasure import compact, digest
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.host import Host
from fedbandit.network.coordinator.ledger import privacy_spent
from fedbandit.network.coordinator.rules import Rules
from fedbandit.network.coordinator.service import make_app
from fedbandit.network.credentials import add_credential, make_table
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import MemoryStore, StoreError, blocks, open_store
from fedbandit.sums import Sums
from tests.cli.command_line import refusal, report
from tests.network.in_process import send
from tests.network.servers import AGREEMENT, served

WORLD = fb.World(n_clients=4, dim=3, horizon=10_000)
RULES = Rules(erasure=True)
VICTIM = 3
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "everyone": ("async-linucb", {"gamma_upload": 1.2, "gamma_download": 1.2}),
    "groups": ("composed", {"protocol": "event-triggered", "structure": "fixed-groups(labels=(0, 1, 0, 1))"}),
    "synchronous": ("sync-linucb", {"threshold": 1.0}),
    "cliques": ("hetofedbandit", {"exploration": 30}),
    "asynchronous cliques": ("hetofedbandit-async", {"exploration": 30}),
    "clusters by evidence": ("clustered-linucb", {}),
}
TWO = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])


class Life:
    """A federation and its clients in one process: those of even and odd numbers prefer different arms."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        for i in range(4):
            federation.invite(f"client-{i}", 0.0)
        numbers = [iter(range(100 * i + 1, 100 * i + 99)) for i in range(4)]
        self.clients = [DurableClient(MemoryStore(), federation.agreement, i, numbers[i].__next__) for i in range(4)]
        self.rngs = [np.random.default_rng(i) for i in range(4)]
        self.downloads: dict[int, Download] = {}
        self.note: Callable[[int, bytes], None] = lambda _, __: None

    def join(self, *who: int) -> None:
        for i in who:
            self.deliver(send(self.federation, i, self.clients[i].greeting()))

    def act(self, *who: int, visits: int) -> None:
        for _ in range(visits):
            for i in who:
                X = self.rngs[i].uniform(-0.5, 0.5, (4, 3))
                choice = self.clients[i].select(X)
                reward = X[choice.arm] @ TWO[i % 2] + self.rngs[i].normal(0, 0.1)
                self.clients[i].observe(choice.number, float(np.clip(reward, -1, 1)))
                self.talk(i)
            self.tick()

    def tick(self) -> None:
        if self.federation.machine.clocked:
            self.deliver(self.federation.tick(0.0))

    def talk(self, i: int) -> None:
        while frames := self.clients[i].outgoing():
            self.note(i, frames[0].data)
            self.deliver(send(self.federation, i, frames[0].data))

    def deliver(self, messages: list[Message]) -> None:
        for message in messages:
            if isinstance(message, Download):
                self.downloads[message.member] = message
            self.clients[message.member].receive(decode(encode(message)))
            self.talk(message.member)


@pytest.mark.parametrize("kind", SYSTEMS)
def test_it_is_as_if_it_had_never_uploaded(kind: str) -> None:
    system, keywords = SYSTEMS[kind]
    agreement = on_a_network(Agreement(system, keywords, WORLD))
    found = []
    for uploads in (True, False):
        life = Life(Federation("f", agreement, MemoryStore(), rules=RULES))
        life.join(0, 1, 2)
        life.act(0, 1, 2, visits=20)
        if uploads:
            life.join(VICTIM)
            life.act(VICTIM, visits=20)
            assert life.federation.machine.members.n[VICTIM] > 0, "there is something to erase"
            answers, receipt = life.federation.erase("client-3", 0.0, "me")
            assert receipt["observations"] > 0
            life.deliver([answer for answer in answers if answer.member != VICTIM])
        else:
            for _ in range(20):
                life.tick()
        found.append(life)
    erased, never = (life.federation.machine for life in found)
    for name in ("V", "b", "n", "releases"):
        np.testing.assert_allclose(getattr(erased.members, name), getattr(never.members, name), atol=1e-9, err_msg=name)
    assert erased.groups() == never.groups()
    for i in range(3):
        assert_same(erased.share(i).sums, never.share(i).sums)
        apart = kind == "groups" and i % 2 != VICTIM % 2
        if i in found[0].downloads and not apart:  # whoever was sent anything of it was sent what is without it
            assert_same(found[0].downloads[i].sums, erased.share(i).sums)


def assert_same(one: Sums, other: Sums) -> None:
    assert one.n == other.n
    np.testing.assert_allclose(one.V, other.V, atol=1e-9)
    np.testing.assert_allclose(one.b, other.b, atol=1e-9)


def test_a_federation_goes_on_after_it(store_url: str) -> None:
    store = open_store(store_url)
    life = Life(Federation("f", AGREEMENT, store, rules=RULES))
    life.join(0, 1, 2, 3)
    life.act(0, 1, 2, 3, visits=15)
    others = sum(client.machine.observed - client.machine.pending for client in life.clients[:3])
    _, receipt = life.federation.erase("client-3", 0.0, "me")
    compact(life.federation)
    assert receipt["remaining"] == others == life.federation.machine.gathered().n
    assert receipt["digest"] == digest(receipt)
    again = Federation("f", AGREEMENT, store, rules=RULES)
    np.testing.assert_allclose(again.machine.gathered().V, life.federation.machine.gathered().V, atol=1e-12)
    life.federation = again
    with pytest.raises(AssertionError, match="uses a state that was given up"):
        life.join(3)
    life.clients[3] = DurableClient(MemoryStore(), AGREEMENT, 3, iter(range(900, 999)).__next__)
    life.join(0, 1, 2, 3)
    life.act(0, 1, 2, 3, visits=10)
    everything = sum(client.machine.observed - client.machine.pending for client in life.clients)
    assert again.machine.gathered().n == everything
    again.erase("client-3", 0.0)  # and once more
    assert again.machine.gathered().n == everything - life.clients[3].machine.observed + life.clients[3].machine.pending
    store.close()


@pytest.mark.parametrize("snapshots", ["whole", "in blocks"])
def test_the_bytes_are_gone(
    snapshots: str,
    store_url: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if snapshots == "in blocks":
        monkeypatch.setattr(blocks, "BLOCK", 1024)
        monkeypatch.setattr(blocks, "LONG", 1024)
    store = open_store(store_url)
    life = Life(Federation("f", AGREEMENT, store, rules=RULES))
    life.join(0, 3)
    life.act(0, 3, visits=5)
    frames: list[bytes] = []
    life.note = lambda i, frame: frames.append(frame) if i == 3 else None
    life.act(3, visits=40)
    uploads = [frame[-72:] for frame in frames if len(frame) > 150]  # V and b, as they were sent
    assert uploads

    def in_files() -> int:
        if isinstance(store.where, str) and store.where == "PostgreSQL":
            import psycopg

            with psycopg.connect(store_url, autocommit=True) as db:
                db.execute("CHECKPOINT")
                (oid,) = db.execute("SELECT oid FROM pg_database WHERE datname = current_database()").fetchone()  # type: ignore[misc]
            cluster = request.getfixturevalue("postgres").folder / "data"
            folders = [cluster / "base" / str(oid), cluster / "pg_wal"]  # segments are not recycled there
        else:
            folders = [tmp_path]
        data = [path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()]
        return sum(any(upload in one for one in data) for upload in uploads)

    assert in_files() > 0
    V, _, _ = life.federation.machine.contributions.sums_of(3)  # type: ignore[union-attr]
    life.federation.journal.snapshot(life.federation.state())
    sent, uploads = uploads, [V.tobytes()[:48]]
    assert in_files() == 1 or snapshots == "whole", "PostgreSQL compresses whole ones"
    uploads += sent
    life.federation.erase("client-3", 0.0)
    compact(life.federation)
    assert in_files() == 0
    assert Federation("f", AGREEMENT, store, rules=RULES).machine.gathered().n > 0
    store.close()


def test_the_ledger_stays() -> None:
    privacy = {"noises": "statistics", "epsilon": 1.0, "delta": 1e-6}
    agreement = Agreement("count-linucb", {"privacy": privacy}, fb.World(n_clients=4, dim=3, horizon=400))
    life = Life(Federation("f", agreement, MemoryStore(), rules=RULES))
    life.join(0, 1, 2, 3)
    life.act(0, 1, 2, 3, visits=30)
    record = life.federation.register.by_name["client-3"]
    before = privacy_spent(life.federation, record)
    assert before["spent"] > 0
    life.federation.erase("client-3", 0.0)
    assert privacy_spent(life.federation, record) == before


def test_what_cannot_be_erased_is_said() -> None:
    with pytest.raises(fb.FedbanditError, match="erasure needs retract"):
        Rules(erasure=True, retract=False)
    life = Life(Federation("f", AGREEMENT, MemoryStore()))
    life.join(0)
    life.act(0, visits=10)
    with pytest.raises(Refusal, match="was not told erasure = true"):
        life.federation.erase("client-0", 0.0)
    store = MemoryStore()
    life = Life(Federation("f", AGREEMENT, store, rules=Rules(retract=False)))
    life.join(0)
    life.act(0, visits=10)
    late = Federation("f", AGREEMENT, store, rules=RULES)
    with pytest.raises(Refusal, match="uploaded before its sums were kept"):
        late.erase("client-0", 0.0)
    with pytest.raises(Refusal, match="not a member"):
        late.erase("nobody", 0.0)
    buffers = on_a_network(Agreement("hetofedbandit", {"exploration": 5, "shares": "buffers"}, WORLD))
    with pytest.raises(fb.FedbanditError, match="members keep sums of what they were given of others"):
        FederationConfig(buffers, rules=RULES)
    sums = Agreement("feducb", {"trust": "sums"}, WORLD)
    with pytest.raises(fb.FedbanditError, match="erasure is refused: only sums over clients are known"):
        FederationConfig(sums, rules=RULES)


def test_a_store_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    life = Life(Federation("f", AGREEMENT, store, rules=RULES))
    life.join(0, 3)
    life.act(0, 3, visits=10)
    n = life.federation.machine.gathered().n

    def fail(*_: object, **__: object) -> None:
        raise StoreError("full")

    monkeypatch.setattr(store, "replace", fail)
    with pytest.raises(StoreError):
        life.federation.erase("client-3", 0.0)
    monkeypatch.undo()
    life.join(0)
    assert life.federation.machine.gathered().n == n
    life.federation.erase("client-3", 0.0)
    assert life.federation.machine.gathered().n < n


def test_who_may(tmp_path: Path) -> None:
    make_table(tmp_path)
    tokens = {name: add_credential(tmp_path, name) for name in ("one", "two")}
    tokens["boss"] = add_credential(tmp_path, "boss", "admin")
    config = ServerConfig({"shops": FederationConfig(AGREEMENT, rules=RULES)}, keys=tmp_path)
    with TestClient(make_app(Host(config, MemoryStore())), base_url="http://127.0.0.1") as http:

        def ask(who: str, whom: str) -> tuple[int, dict[str, Any]]:
            headers = {"authorization": f"Bearer {tokens[who]}"}
            answer = http.delete(f"/v1/shops/clients/{whom}", headers=headers)
            return answer.status_code, answer.json()

        for name in ("one", "two"):
            http.get("/v1/shops/invitation", headers={"authorization": f"Bearer {tokens[name]}"})
        assert ask("one", "two")[0] == 403
        assert ask("one", "one")[1]["client"] == "one"
        assert ask("boss", "two")[1]["by"] == "boss"
        assert [ask("one", "one")[0] for _ in range(6)] == [200] * 3 + [429] * 3, "each writes the whole store anew"
        assert [ask("boss", "one")[0] for _ in range(3)] == [200] * 3
        assert ask("boss", "three") == (403, {"error": "Client 'three' is not a member; it must ask for an invitation "
                                                       "first.", "kind": "identity"})  # fmt: skip


def test_an_administrator_erases_a_client(capsys: pytest.CaptureFixture[str]) -> None:
    federations = {"shops": FederationConfig(AGREEMENT, rules=RULES), "kept": FederationConfig(AGREEMENT)}
    with served(Host(ServerConfig(federations, rate=1e6), MemoryStore())) as url:
        with fb.Client(url, federation="shops", name="c") as client:
            while client.status()["uploads"] == 0:
                client.observe(0.5, client.select(np.eye(3)))
            assert client.flush(30)
        receipt = report(capsys, "erase", "shops", "c", "--url", url)
        assert (receipt["client"], receipt["remaining"], receipt["digest"]) == ("c", 0, digest(receipt))
        assert receipt["observations"] > 0
        assert "not a member" in refusal(capsys, "erase", "shops", "nobody", "--url", url)
        fb.Client(url, federation="kept", name="c").close()
        assert "was not told erasure = true" in refusal(capsys, "erase", "kept", "c", "--url", url)
        assert "There is no federation 'none'" in refusal(capsys, "erase", "none", "c", "--url", url)


def test_a_client_erases_itself(tmp_path: Path) -> None:
    host = Host(ServerConfig({"shops": FederationConfig(AGREEMENT, rules=RULES)}, rate=1e6), MemoryStore())
    rng = np.random.default_rng(0)
    with served(host) as url:
        for _ in range(2):
            client = fb.Client(url, federation="shops", name="c", state=tmp_path / "c.db")
            while client.status()["uploads"] == 0:
                arm = client.select(rng.uniform(-0.5, 0.5, (4, 3)))
                client.observe(0.5, arm)
            assert client.flush(30)
            receipt = client.erase()
            assert receipt["observations"] > 0
            assert not (tmp_path / "c.db").exists()
            assert host.federations["shops"].federation.machine.gathered().n == 0
            with pytest.raises(fb.FedbanditError, match="closed"):
                client.select(np.eye(3))
