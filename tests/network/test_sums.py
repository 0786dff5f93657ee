"""Secure sums and a trusted coordinator on loopback: real clients, real HTTP."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.cli.main import main
from fedbandit.errors import FedbanditError
from fedbandit.machines.sums.messages import Step, SumMessage, decode_step
from fedbandit.messages import Collect, Contribution, Message, encode
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.client.sums import SumKeys
from fedbandit.network.coordinator.config import FederationConfig, ServerConfig
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.host import Host
from fedbandit.network.coordinator.ledger import claim_in_use, privacy_spent
from fedbandit.network.coordinator.overview import problems
from fedbandit.network.coordinator.rules import Rules
from fedbandit.network.coordinator.sums import SumDesk
from fedbandit.network.credentials import add_credentials
from fedbandit.network.envelope import Envelope, seal
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import MemoryStore, StoreError
from fedbandit.privacy.mechanism import epsilon_of
from fedbandit.privacy.published_total import PublishedTotal
from fedbandit.sums import Sums
from fedbandit.testing.crashing import CrashingStore
from tests.network.servers import served
from tests.waiting import eventually

N, D = 3, 2
WORLD = fb.World(n_clients=N, dim=D, horizon=3000)


def agreement(trust: str, **keywords: object) -> Agreement:
    return Agreement("feducb", {"trust": trust, "epsilon": 1.0, "own": "exact", **keywords}, WORLD)


def host_of(terms: Agreement) -> Host:
    return Host(ServerConfig({"shops": FederationConfig(terms)}, rate=1e6), MemoryStore())


def serve_users(clients: list[fb.Client], visits: int, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(visits):
        for client in clients:
            arm = client.select(rng.uniform(-0.5, 0.5, (3, D)))
            client.observe(float(rng.uniform(-1, 1)), arm)


@pytest.mark.parametrize("trust", ["sums", "coordinator"])
def test_totals_reach_everybody(trust: str, tmp_path: Path) -> None:
    host = host_of(agreement(trust))
    federation = host.federations["shops"].federation
    with served(host) as url, ExitStack() as stack:
        clients = [
            stack.enter_context(fb.Client(url, federation="shops", name=f"c{i}", state=tmp_path / f"c{i}.db"))
            for i in range(N)
        ]
        eventually(lambda: all(client.connected for client in clients))
        serve_users(clients, 4)
        eventually(lambda: all(client._durable.machine.version >= 1 for client in clients))
        assert all(client.guarantee.noise == "secure" for client in clients)
        assert all(client.guarantee.trust == trust for client in clients)
        subject = "Whoever sees all that is opened, " if trust == "sums" else "Everybody but the coordinator, "
        assert all(said.sentence().startswith(subject) for said in (clients[0].guarantee, claim_in_use(federation)))
        pool = federation.machine.pool
        assert pool is not None
        assert pool.total.epoch >= 1
        assert all(client.problem is None for client in clients)
        if trust == "sums":
            assert all(len(client.acquaintances) == N for client in clients)
            assert len({tuple(client.acquaintances.values()) for client in clients}) == 1
            assert (tmp_path / "c0.db.sums").stat().st_mode & 0o077 == 0
        assert int(federation.machine.gathered().n) >= N * 3
    again = Federation("shops", federation.agreement, host.store)
    assert again.machine.pool is not None
    assert again.machine.pool.total.epoch == pool.total.epoch
    assert (again.machine.gathered().V == federation.machine.gathered().V).all()


def test_a_coordinator_that_cannot_take_a_step_is_told_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody leaves the sum: every step, and what asks for steps, is refused once."""
    host, refused = host_of(agreement("sums")), set[bytes]()
    exchange = SumDesk.exchange

    def later(desk: SumDesk, name: str, body: bytes, at: float, session: str = "") -> list[SumMessage]:
        if body not in refused:
            refused.add(body)
            raise Refusal("unavailable", "The coordinator has more to do than it can; try again later.")
        return exchange(desk, name, body, at, session)

    monkeypatch.setattr(SumDesk, "exchange", later)
    with served(host) as url, ExitStack() as stack:
        clients = [
            stack.enter_context(fb.Client(url, federation="shops", name=f"c{i}", state=tmp_path / f"c{i}.db"))
            for i in range(N)
        ]
        eventually(lambda: all(client.connected for client in clients))
        serve_users(clients, 4)
        eventually(lambda: all(client._durable.machine.version >= 1 for client in clients))
        pool = host.federations["shops"].federation.machine.pool
        assert pool is not None
        assert pool.unopened == ""
        assert all(client.problem is None for client in clients)
        steps = {Step.KEYS, Step.SHARES, Step.MASKED, Step.AGREE, Step.UNMASK}
        assert {decode_step(body).step for body in refused if body} == steps


def certified_keys(folder: Path, states: list[Path]) -> list[Path]:
    """An authority, and a certificate for each client, as people make them."""
    keys, out = str(folder / "keys"), []
    assert main(["keys", "init", "--keys", keys, "--authority", str(folder / "offline")]) == 0
    for state in states:
        key = SumKeys(state).identity.public.hex()
        out.append(state.with_suffix(".cert"))
        words = ["--federation", "shops", "--key", key, "--authority", str(folder / "offline"), "--out", str(out[-1])]
        assert main(["keys", "certify", state.stem, "--keys", keys, *words]) == 0
    return out


def test_certified_clients_share_and_one_without_a_certificate_is_absent(tmp_path: Path) -> None:
    """The coordinator refuses its keys, says so on the live page, and opens the sum of the others."""
    states = [tmp_path / f"c{i}.db" for i in range(5)]
    certificates = certified_keys(tmp_path, states)
    terms = replace(agreement("sums"), world=replace(WORLD, n_clients=5))
    rules = Rules(certified=True)
    folder = tmp_path / "keys"
    tokens = add_credentials(folder, [state.stem for state in states], federation="shops")
    host = Host(ServerConfig({"shops": FederationConfig(terms, rules=rules)}, rate=1e6, keys=folder), MemoryStore())
    federation = host.federations["shops"].federation
    ca = str(folder / "ca.pem")
    with served(host) as url, ExitStack() as stack:
        clients = [
            stack.enter_context(
                fb.Client(
                    url,
                    federation="shops",
                    token=tokens[state.stem],
                    state=state,
                    ca=ca,
                    certificate=None if i == 4 else certificates[i],
                )
            )
            for i, state in enumerate(states)
        ]
        eventually(lambda: all(client.connected for client in clients))
        serve_users(clients, 4)
        eventually(lambda: bool(federation.refusals["sum"]))
        eventually(lambda: all(client._durable.machine.version >= 1 for client in clients[:4]))
        assert "not certified by the federation's authority" in str(clients[4].problem)
        assert all(len(client.acquaintances) == 4 for client in clients[:4])
        assert any(
            "Refused lately (sum): c4: they did not keep to" in p
            for p in problems(host.federations["shops"], time.time())
        )
        assert federation.machine.pool is not None
        assert clients[4]._durable.machine.member not in federation.machine.pool.included


def test_certificates_that_do_not_fit_are_refused_before_anything_leaves(tmp_path: Path) -> None:
    states = [tmp_path / "c0.db", tmp_path / "c1.db"]
    mine, others = certified_keys(tmp_path, states)
    ca = str(tmp_path / "keys" / "ca.pem")
    assert main(["keys", "init", "--keys", str(tmp_path / "other")]) == 0
    elsewhere, damaged = tmp_path / "elsewhere.cert", tmp_path / "damaged.cert"
    key = SumKeys(states[0]).identity.public.hex()
    words = ["--federation", "hospitals", "--key", key, "--authority", str(tmp_path / "offline")]
    assert main(["keys", "certify", "c0", "--keys", str(tmp_path / "keys"), *words, "--out", str(elsewhere)]) == 0
    damaged.write_text(mine.read_text()[:-20])
    forged = json.loads(mine.read_text())
    forged["signature"] = 64 * "00"
    (tmp_path / "forged.cert").write_text(json.dumps(forged))
    with served(host_of(agreement("sums"))) as url:
        for certificate, authority, sentence in (
            (others, ca, "The certificate is for the key"),
            (elsewhere, ca, "is for 'hospitals', not for 'shops'"),
            (mine, str(tmp_path / "other" / "ca.pem"), "not signed by the authority"),
            (tmp_path / "forged.cert", ca, "not signed by the authority"),
            (damaged, ca, "cannot be read"),
            (mine, None, "needs ca="),
        ):
            with pytest.raises(FedbanditError, match=sentence):
                fb.Client(url, federation="shops", name="c0", state=states[0], ca=authority, certificate=certificate)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["sum-key"], "needs --state FILE"),
        (["certify", "c0"], "needs --federation NAME"),
        (["certify", "c0", "--federation", "shops", "--key", "12", "--out", "c0.cert"], "--key is '12', but must be"),
        (["certify", "c0", "--federation", "shops", "--key", 64 * "0", "--out", "c0.cert"], "cannot be used"),
    ],
)
def test_what_cannot_be_certified(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keys", *words, "--keys", str(tmp_path / "none")]) == 2
    assert sentence in capsys.readouterr().err


def test_certified_is_for_secure_sums_and_needs_an_authority() -> None:
    with pytest.raises(FedbanditError, match="those of secure sums"):
        FederationConfig(agreement("coordinator"), rules=Rules(certified=True))
    with pytest.raises(FedbanditError, match=r"needs keys in \[server\]"):
        ServerConfig({"shops": FederationConfig(agreement("sums"), rules=Rules(certified=True))})


def test_one_that_is_gone_does_not_hold_up_a_trusted_coordinator_and_noise_is_drawn_once() -> None:
    """What was published is in the store with its noise: a restart publishes the same numbers, and nothing anew."""
    store = MemoryStore()
    federation = Federation("f", agreement("coordinator"), store, patience=1)
    clients = []
    for i in range(N):
        record = federation.invite(f"c{i}", 0.0)
        clients.append(DurableClient(MemoryStore(), federation.agreement, record.member, lambda: 7))
        federation.receive([(f"c{i}", clients[-1].greeting() or b"")], 0.0)
    rng = np.random.default_rng(0)
    for _ in range(5):
        for i, client in enumerate(clients):
            choice = client.select(rng.uniform(-0.5, 0.5, (3, D)))
            client.observe(choice.number, 0.5)
            queue = [(f"c{i}", frame.data) for frame in client.outgoing()]
            while queue:
                name, data = queue.pop()
                (answers,) = federation.receive([(name, data)], 0.0)
                assert not isinstance(answers, Refusal), answers
                for message in answers:
                    clients[message.member].receive(message)
                    queue += [(f"c{message.member}", f.data) for f in clients[message.member].outgoing()]
    pool = federation.machine.pool
    assert pool is not None
    assert isinstance(pool.total, PublishedTotal)
    assert pool.total.epoch >= 1
    again = Federation("f", federation.agreement, store)
    assert (again.machine.gathered().V == federation.machine.gathered().V).all()
    assert again.machine.pool is not None
    assert again.machine.pool.total.epoch == pool.total.epoch, "the ledger is in the store"
    record, mechanism = federation.register.by_number[0], pool.total.stream.mechanism
    once = privacy_spent(federation, record)
    assert once["spent"] == pytest.approx(epsilon_of(mechanism, releases=pool.total.epoch), rel=1e-6)
    while pool.total.epoch < mechanism.n_max:  # the others go on; what this client has told is in it each time
        pool.total.add(Sums(np.eye(D), np.ones(D), 1))
        assert pool.total.publish() is not None
    later = privacy_spent(federation, record)
    assert later["releases"] == once["releases"]
    assert later["spent"] == pytest.approx(1.0, rel=1e-6)
    record.past = [(5, 0.0)]  # another life of it, in the same total with the same noise
    assert privacy_spent(federation, record)["spent"] == pytest.approx(epsilon_of(mechanism, records=2), rel=1e-6)


def test_the_page_has_the_planned_weight_once_a_client_is_in_a_sum() -> None:
    """One contribution may be a record's whole weight, so that their number tells nothing."""
    federation = Federation("f", agreement("sums"), MemoryStore())
    record = federation.invite("c0", 0.0)
    assert privacy_spent(federation, record)["spent"] == 0.0
    record.releases = 1
    assert privacy_spent(federation, record)["spent"] == pytest.approx(1.0, rel=1e-6)


def test_what_a_trusted_coordinator_could_not_write_is_not_acknowledged_when_it_comes_again() -> None:
    """A total that is published is written as a snapshot, with its noise. While that fails, nobody is told anything."""

    class FullStore(MemoryStore):
        full = False

        def replace(self, journal: str, snapshot: bytes, *, durable: bool = True) -> None:
            if self.full:
                raise StoreError("The disk is full.")
            super().replace(journal, snapshot, durable=durable)

    store = FullStore()
    federation = Federation("f", agreement("coordinator"), store, patience=1)
    clients, rng, failed = [], np.random.default_rng(0), 0
    for i in range(N):
        record = federation.invite(f"c{i}", 0.0)
        clients.append(DurableClient(MemoryStore(), federation.agreement, record.member, lambda: 7))
        federation.receive([(f"c{i}", clients[-1].greeting() or b"")], 0.0)
    for _ in range(5):
        for i, client in enumerate(clients):
            choice = client.select(rng.uniform(-0.5, 0.5, (3, D)))
            client.observe(choice.number, 0.5)
            queue = [(f"c{i}", frame.data) for frame in client.outgoing()]
            while queue:
                name, data = queue.pop()
                store.full = True
                (answers,) = federation.receive([(name, data)], 0.0)
                if isinstance(answers, Refusal):
                    (again,) = federation.receive([(name, data)], 0.0)
                    assert isinstance(again, Refusal), "acknowledged, but not in the store"
                    assert again.kind == "unavailable"
                    failed += 1
                    store.full = False
                    (answers,) = federation.receive([(name, data)], 0.0)
                assert not isinstance(answers, Refusal), answers
                store.full = False
                stored = Federation("f", federation.agreement, store.copy())
                assert stored.machine.applied == federation.machine.applied
                for message in answers:
                    clients[message.member].receive(message)
                    queue += [(f"c{message.member}", f.data) for f in clients[message.member].outgoing()]
    assert failed > 0


def test_what_is_not_masked_is_refused() -> None:
    federation = Federation("f", agreement("sums"), MemoryStore())
    record = federation.invite("c0", 0.0)
    client = DurableClient(MemoryStore(), federation.agreement, record.member, lambda: 7)
    federation.receive([("c0", client.greeting() or b"")], 0.0)
    bare = encode(Contribution(record.member, 1, 1, np.zeros(5, dtype=np.uint64), np.zeros((0, 5), dtype=np.uint64)))
    envelope = Envelope(client.incarnation, client.epoch, client.nonce, 0, client.chain, client.terms)
    (outcome,) = federation.receive([("c0", seal(envelope, bare))], 0.0)
    assert isinstance(outcome, Refusal)
    assert "does not take a Contribution" in str(outcome)


def test_steps_of_no_sum_are_refused_with_a_sentence() -> None:
    with served(host_of(agreement("sums"))) as url:
        for body, sentence in ((b"nonsense", "has not joined"), (b"", "has not joined")):
            headers = {"X-Fedbandit-Name": "c0", "Content-Type": "application/octet-stream"}
            urllib.request.urlopen(
                urllib.request.Request(f"{url}/v1/shops/invitation", headers=headers), timeout=10
            ).close()
            request = urllib.request.Request(f"{url}/v1/shops/sums", data=body, headers=headers, method="POST")
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=10)
            with refused.value as answer:
                assert sentence in answer.read().decode()


def contributes_twice(kind: type[DurableClient]) -> bool:
    """The attack: have a client contribute, crash before anything leaves it, and call it to the same epoch again."""
    terms, store = agreement("sums"), CrashingStore()
    client = kind(store, terms, 0, lambda: 7)
    for _ in range(3):
        client.observe(client.select([[0.5, 0.0]]).number, 0.5)
    client.contribute(1, 0)
    return kind(store, terms, 0, lambda: 8).contribute(1, 0) is not None


class SendsFirst(DurableClient):
    """Planted: what goes into a sum may leave before it is stored."""

    def contribute(self, epoch: int, included: int) -> Message | None:
        made = self.machine.receive(Collect(self.machine.member, epoch, included))
        return made[0] if made else None


def test_a_crash_has_nobody_contribute_twice_to_an_epoch() -> None:
    assert not contributes_twice(DurableClient)
    assert contributes_twice(SendsFirst), "planted: the same data would leave with other noise"


def test_a_flipped_bit_in_the_file_of_keys_is_no_other_key(tmp_path: Path) -> None:
    keys, path = SumKeys(tmp_path / "a.db"), tmp_path / "a.db.sums"
    keys.acquaintances.known = {1: bytes(range(32))}
    keys.keep()
    whole, refused = path.read_bytes(), 0
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 7]) + whole[at + 1 :])
        try:
            again = SumKeys(tmp_path / "a.db")
        except FedbanditError:
            refused += 1
        else:
            assert again.identity.public == keys.identity.public
            assert again.acquaintances.known == keys.acquaintances.known
    assert refused > len(whole) / 2
    kept = {key: value for key, value in json.loads(whole).items() if key != "digest"}
    path.write_text(json.dumps(kept))  # as earlier versions wrote it
    assert SumKeys(tmp_path / "a.db").identity.public == keys.identity.public
