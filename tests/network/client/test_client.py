"""The embedded client against a real coordinator on loopback: offline, late rewards, restarts, scaling, TLS."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import re
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.cli.main import main
from fedbandit.environments import read_decision_log
from fedbandit.errors import FedbanditError
from fedbandit.network.certificates import init_keys
from fedbandit.network.client import client as client_module
from fedbandit.network.client.client import Client
from fedbandit.network.coordinator.config import FederationConfig, ServerConfig, on_a_network
from fedbandit.network.coordinator.host import Host
from fedbandit.network.credentials import add_credential, revoke_credential
from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import MemoryStore
from fedbandit.network.stores.sqlite import SQLiteStore
from tests.cli.command_line import refusal
from tests.network.servers import AGREEMENT, CONFIG, WORLD, Coordinator, get_json, known, make_host, served
from tests.waiting import eventually


def visit(client: Client, rng: np.random.Generator, visits: int) -> None:
    for _ in range(visits):
        arm = client.select(rng.uniform(-0.5, 0.5, (5, 3)))
        client.observe(float(rng.uniform(-1, 1)), arm)


def test_everything_arrives_once_and_clients_learn_from_each_other(tmp_path: Path) -> None:
    host = make_host()
    rng = np.random.default_rng(0)
    with served(host) as url:
        with (
            Client(url, federation="shops", name="a", state=tmp_path / "a.db", report=True) as a,
            Client(url, federation="shops", name="b") as b,
        ):
            visit(a, rng, 60)
            visit(b, rng, 40)
            assert a.flush()
            assert b.flush()
            records = host.federations["shops"].federation.register.by_number
            for client, record in zip((a, b), records, strict=True):
                status = client.status()
                assert record.observations + status["pending"] == status["observed"]
                assert status["outbox"] == 0
            assert known(a._durable) > 60, "nothing was learnt from the other client"
            eventually(lambda: get_json(f"{url}/api/overview")["federations"][0]["reward"] is not None)
        with Client(url, federation="shops", name="a", state=tmp_path / "a.db") as again:
            assert again.status()["observed"] == 60
            visit(again, rng, 10)
            assert again.flush()
        federation = host.federations["shops"].federation
        gathered = federation.machine.gathered()
        assert gathered.n == sum(record.observations for record in records)
        assert federation.refusals == {}
        assert np.trace(gathered.V) > 0
        assert np.isfinite(gathered.b).all()


def test_clients_ask_no_proxy_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was for the invitation, and not for the stream: behind a company's proxy not even a trial on loopback ran."""
    with socket.socket() as proxy:
        proxy.bind(("127.0.0.1", 0))  # listens to nobody
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        with served(make_host()) as url, Client(url, federation="shops", name="a", state=tmp_path / "a.db") as client:
            visit(client, np.random.default_rng(0), 3)
            assert client.flush()


def test_the_example_in_the_docstring_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A formatter once took its indentation: it is fenced now, and run here."""
    examples = {
        "module": re.findall(r"```python\n(.*?)```", client_module.__doc__ or "", re.DOTALL),
        "async": re.findall(r"```python\n(.*?)```", inspect.getdoc(fb.AsyncClient) or "", re.DOTALL),
    }
    monkeypatch.chdir(tmp_path)
    with served(make_host()) as url:
        names: dict[str, Any] = {"fb": fb, "arms": np.eye(3), "reward": 0.5, "token": None, "url": url}
        (example,) = examples["module"]
        exec(example.replace("https://host:8765", url), names)
        assert names["client"].status()["observed"] == 1
        (example,) = examples["async"]
        exec("async def use():\n" + textwrap.indent(example, "    ") + "    return client\n", names)
        assert asyncio.run(names["use"]()).status()["observed"] == 2


def test_nothing_is_flushed_before_the_coordinator_has_answered(tmp_path: Path) -> None:
    """It may have been restored from a backup, and ask for everything again."""
    path = tmp_path / "a.db"
    with served(make_host()) as url, Client(url, federation="shops", name="a", state=path) as client:
        visit(client, np.random.default_rng(0), 20)
        assert client.flush()
        uploaded = client.status()["observed"] - client.status()["pending"]
    with Client(url, federation="shops", name="a", state=path) as client:
        assert client.status()["outbox"] == 0
        assert not client.flush(0.05)
        restored = make_host()
        with served(restored, port=int(url.rpartition(":")[2])):
            assert client.flush(60.0)
            assert restored.federations["shops"].federation.machine.gathered().n == uploaded


def test_offline_for_days_then_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "a.db"
    with served(make_host()) as url:
        Client(url, federation="shops", name="a", state=path).close()
    with Client(url, federation="shops", name="a", state=path) as client:  # nobody is there
        visit(client, rng, 50)
        arm = client.select(np.eye(3))
        assert not client.connected
        assert client.problem is None
        assert client.status()["outbox"] > 0
    with Client(url, federation="shops", name="a", state=path) as client:
        client.observe(0.5, arm.id)  # a reward that comes after a restart
        with pytest.raises(FedbanditError, match="not waiting"):
            client.observe(0.5, arm.id)
        assert client.status()["observed"] == 51
    with pytest.raises(FedbanditError, match="no answer from"):
        Client(url, federation="shops", name="new", timeout=0.5)


def test_late_rewards_forgotten_choices_and_bad_ones() -> None:
    with served(make_host()) as url, Client(url, federation="shops", name="a") as client:
        first, second = client.select(np.eye(3)), client.select(np.eye(3) / 2)
        assert int(first) == 0
        assert re.fullmatch("[0-9a-f]{16}", first.id)
        assert first.id != second.id
        client.forget(second)
        client.observe(0.25, first)
        for wrong, sentence in ((second.id, "not waiting"), ("12345", "not waiting"), ("?", "must be what select")):
            with pytest.raises(FedbanditError, match=sentence):
                client.observe(0.5, wrong)
        with pytest.raises(FedbanditError, match="within ±1,"):
            client.observe(1000.0, client.select(np.eye(3)).id)
        with pytest.raises(FedbanditError, match="shape of arms"):
            client.select(np.eye(2))


def test_a_warm_start_from_past_logs() -> None:
    rng = np.random.default_rng(0)
    theta = np.array([0.6, -0.3, 0.2])
    X = rng.standard_normal((300, 3)) / 4
    host = make_host()
    with served(host) as url, Client(url, federation="shops", name="a") as client:
        client.learn(X, X @ theta)
        np.testing.assert_allclose(client.theta, theta, atol=0.01)
        assert client.status()["observed"] == 300
        assert client.flush()
        assert host.federations["shops"].federation.machine.gathered().n == 300 - client.status()["pending"]


def test_the_asyncio_form() -> None:
    async def use(url: str) -> dict[str, Any]:
        async with fb.AsyncClient(url, federation="shops", name="a") as client:
            for _ in range(20):
                arm = client.select(np.eye(3))
                await client.observe(0.5, arm.id)
            await client.learn(np.eye(3), np.zeros(3))
            assert await client.flush()
            return client.status()

    with served(make_host()) as url:
        assert asyncio.run(use(url))["observed"] == 23
    with pytest.raises(FedbanditError, match="async with"):
        fb.AsyncClient("http://127.0.0.1:1", federation="f").select(np.eye(3))


def test_the_asyncio_form_is_the_same() -> None:
    """Whatever a client has, with the same arguments; what waits is awaited."""
    of_parts = {"called", "start", "wake", "write"}  # called by connections and gateways
    awaited = {"observe", "redeem", "learn", "flush", "erase", "close"}
    names = {name for name in dir(Client) if not name.startswith("_")} - of_parts
    assert awaited < names
    for name in names:
        ours, theirs = inspect.getattr_static(Client, name), inspect.getattr_static(fb.AsyncClient, name, None)
        assert type(theirs) is type(ours), name
        if isinstance(ours, property):
            ours, theirs = ours.fget, theirs.fget
        assert inspect.signature(theirs) == inspect.signature(ours), name
        assert inspect.iscoroutinefunction(theirs) == (name in awaited), name

    async def use(url: str) -> None:
        async with fb.AsyncClient(url, federation="shops", name="a", choice_key="k" * 16) as client:
            X = np.eye(3)
            assert client.rank(X).propensities.sum() == pytest.approx(1.0)
            arm = client.select(X, explore=1.0)
            assert await client.redeem(0.5, arm, X[arm])
            assert not await client.redeem(0.5, arm, X[arm])
            await client.observe(0.5, client.export(client.select(X)))
            assert (client.theta.shape, client.given, client.alone, client.features) == ((3,), 3, False, None)
            assert (client.acquaintances, client.agreement) == ({}, AGREEMENT)
            assert await client.flush()
            assert client.connected
            with pytest.raises(FedbanditError, match="erasure = true"):
                await client.erase()
            await client.close()
            with pytest.raises(FedbanditError, match="has been closed"):
                client.select(X)

    with served(make_host()) as url:
        asyncio.run(use(url))


def test_a_copied_state_is_refused_and_says_so(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with served(make_host()) as url:
        with Client(url, federation="shops", name="a", state=tmp_path / "a.db") as client:
            visit(client, rng, 20)
            assert client.flush()
        (tmp_path / "copy.db").write_bytes((tmp_path / "a.db").read_bytes())
        with Client(url, federation="shops", name="a", state=tmp_path / "a.db") as client:
            visit(client, rng, 40)
            assert client.flush()
            with Client(url, federation="shops", name="a", state=tmp_path / "copy.db") as copy:
                visit(copy, rng, 30)
                eventually(lambda: copy.problem is not None)
                assert "copy" in (copy.problem or "")
            with pytest.raises(FedbanditError, match="another process has it open"):
                Client(url, federation="shops", name="a", state=tmp_path / "a.db")


def test_a_state_of_another_federation_is_refused(tmp_path: Path) -> None:
    """The other one has the same terms, and would take the uploads."""
    config = ServerConfig({name: FederationConfig(AGREEMENT) for name in ("shops", "trial")}, rate=1e6)
    with served(Host(config, MemoryStore())) as url:
        with Client(url, federation="shops", name="a", state=tmp_path / "a.db") as client:
            visit(client, np.random.default_rng(0), 10)
        with pytest.raises(FedbanditError, match=r"a\.db' belongs to the federation 'shops', not to 'trial'"):
            Client(url, federation="trial", name="a", state=tmp_path / "a.db")
        with Client(url, federation="shops", name="a", state=tmp_path / "a.db") as client:
            assert client.status()["observed"] == 10


def test_a_full_disk_is_no_reason_to_stop(tmp_path: Path) -> None:
    with served(make_host()) as url, Client(url, federation="shops", name="a", state=tmp_path / "a.db") as client:
        store = client._store
        assert isinstance(store, SQLiteStore)
        with client._locked():
            (pages,) = store._db.execute("PRAGMA page_count").fetchone()
            store._db.execute(f"PRAGMA max_page_count = {pages}")
        rng = np.random.default_rng(0)
        visit(client, rng, 300)
        assert "disk is full" in (client.problem or "")
        assert client.status()["observed"] == 300
        with client._locked():
            store._db.execute("PRAGMA max_page_count = 1000000")
        visit(client, rng, 1)
        assert client.flush()
        eventually(lambda: client.status()["outbox"] == 0)
        assert client.status()["observed"] == 301


FULL = """
import resource, signal, sys
from pathlib import Path
import numpy as np
import fedbandit as fb
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
def full(most):
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft if most is None else most, hard))
url, folder = sys.argv[1], Path(sys.argv[2])
full(0)
try:
    fb.Client(url, federation="shops", state=folder / "n.db")
except fb.FedbanditError as error:
    assert "cannot be written: File too large" in str(error), error
else:
    raise SystemExit("opened on a full disk")
full(None)
(folder / "m.db.name").touch()  # as an earlier version left it
for name in ("n.db", "m.db"):
    for _ in range(2):  # the same name again, or the state would be another's
        fb.Client(url, federation="shops", state=folder / name).close()
with fb.Client(url, federation="shops", name="a", state=folder / "a.db", decisions=folder / "log") as client:
    arm = client.select(np.eye(3))
    assert client.flush()
    full(1)
    other = client.select(np.eye(3))
    assert "The log of decisions lacks some" in client.problem, client.problem
    client.observe(1.0, arm)
    assert client.status()["observed"] == 1
    try:
        client.observe(1.0, arm)
    except fb.FedbanditError as error:
        assert "not waiting" in str(error)
    else:
        raise SystemExit("learnt twice")
    assert client.redeem(1.0, other, np.eye(3)[0])
    client.learn(np.eye(3), np.ones(3))
    assert client.status()["observed"] == 5
    assert client.flush(1.0) is False
    full(None)
    client.observe(0.5, client.select(np.eye(3)))
    assert client.flush()
with fb.Client(url, federation="shops", name="a", state=folder / "a.db") as client:
    assert client.status()["observed"] == 6
"""


def test_whatever_a_full_disk_stops_nothing_is_learnt_twice_or_raised(tmp_path: Path) -> None:
    with served(make_host()) as url:
        subprocess.run([sys.executable, "-c", FULL, url, str(tmp_path)], check=True, timeout=120)
    log = read_decision_log(tmp_path / "log")
    assert log.rewards.tolist() == [0.5]


def test_a_copy_of_a_state_is_a_problem_that_names_the_file(tmp_path: Path) -> None:
    with served(make_host()) as url:
        for state in ("a.db", "a.db", "copy.db"):
            with Client(url, federation="shops", name="a", state=tmp_path / state) as client:
                if state == "copy.db":
                    eventually(lambda: client.problem is not None)
                    assert "in use elsewhere" in (client.problem or "")
                    assert f"The state is {str(tmp_path / 'copy.db')!r}." in (client.problem or "")
                else:
                    assert client.flush()
            if not (tmp_path / "copy.db").exists():
                shutil.copy(tmp_path / "a.db", tmp_path / "copy.db")


def test_tls_tokens_and_revocation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = tmp_path / "keys"
    init_keys(keys, ["127.0.0.1", "localhost"])
    token = add_credential(keys, "a", "client")
    text = CONFIG.format(port=0, store="s.db").replace("[server]", '[server]\nkeys = "keys"')
    coordinator = Coordinator(tmp_path, "s.db")
    coordinator.config.write_text(text)
    words = [sys.executable, "-m", "fedbandit", "serve", "--config", str(coordinator.config), "--json"]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["address"]
            assert url.startswith("https://127.0.0.1:")
            ca = str(keys / "ca.pem")
            with Client(url, federation="shops", token=token, ca=ca, state=tmp_path / "a.db") as client:
                visit(client, np.random.default_rng(0), 30)
                assert client.flush()
                revoke_credential(keys, "a")
                eventually(lambda: client.problem is not None)  # though it says nothing
                assert "revoked" in (client.problem or "")
            with Client(url, federation="shops", token=token, state=tmp_path / "a.db") as stranger:  # without the ca
                eventually(lambda: stranger.problem is not None)
                assert "cannot be trusted" in (stranger.problem or "")
            with pytest.raises(FedbanditError, match=r"certificate|CERTIFICATE"):
                Client(url, federation="shops", token=token)
            with pytest.raises(FedbanditError, match="revoked"):
                Client(url, federation="shops", token=token, ca=ca)
        finally:
            process.terminate()
    with pytest.raises(FedbanditError, match="use https"):
        Client("http://example.org", federation="shops", token=token)
    assert main(["keys", "add-client", "c", "--keys", str(keys), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["token"].startswith("fb-")
    assert "already; revoke it first" in refusal(capsys, "keys", "add-client", "c", "--keys", str(keys))
    assert main(["keys", "revoke", "c", "--keys", str(keys)]) == 0
    capsys.readouterr()
    assert "no valid token" in refusal(capsys, "keys", "revoke", "c", "--keys", str(keys))
    assert "needs a NAME" in refusal(capsys, "keys", "revoke", "--keys", str(keys))
    assert "already" in refusal(capsys, "keys", "init", "--keys", str(keys))


def test_a_client_that_is_not_opened_needs_neither_asyncio_nor_tls() -> None:
    """They are a tenth of what it would take to import it."""
    script = "import sys, fedbandit as fb; fb.Client; assert not {'asyncio', 'ssl', 'http', 'numba'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_client_is_imported_only_when_used() -> None:
    code = "import sys, fedbandit; sys.exit(bool({'asyncio', 'sqlite3', 'numba', 'websockets'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def host_of(agreement: Agreement, **settings: Any) -> Host:
    config = FederationConfig(on_a_network(agreement), **settings)
    return Host(ServerConfig({"shops": config}, rate=1e6), MemoryStore())


def test_clusters_form_on_a_network() -> None:
    world = fb.World(n_clients=5, dim=3, horizon=2000)
    host = host_of(Agreement("clustered-linucb", {}, world), round_seconds=0.05, patience=20)
    rng = np.random.default_rng(0)
    thetas = [np.array([1.0, 0, 0]), np.array([0, -1.0, 0])]
    with served(host) as url, contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(Client(url, federation="shops", name=f"shop-{i}")) for i in range(4)
        ]  # and one record that nobody takes
        deadline = time.monotonic() + 60
        clusters: list[list[str]] = []
        while time.monotonic() < deadline:
            for i, client in enumerate(clients):
                X = rng.uniform(-0.5, 0.5, (5, 3))
                arm = client.select(X)
                client.observe(float(X[arm] @ thetas[i % 2]) + float(rng.normal(0, 0.01)), arm.id)
            time.sleep(0.01)
            found = get_json(f"{url}/api/overview")["federations"][0]
            clusters = sorted(sorted(group) for group in found["clusters"] or [])
            if clusters == [["shop-0", "shop-2"], ["shop-1", "shop-3"]] and found["totals"]["downloads"] > 8:
                break
        assert clusters == [["shop-0", "shop-2"], ["shop-1", "shop-3"]]
        assert found["rounds"] > 0
        assert all(client.problem is None for client in clients)


def test_a_private_client_draws_secure_noise_and_its_ledger_survives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opendp", reason="OpenDP is not installed")
    agreement = Agreement("count-linucb", {"privacy": {"noises": "statistics", "epsilon": 2.0}}, WORLD)
    host = host_of(agreement)
    rng = np.random.default_rng(0)
    state = tmp_path / "client.db"

    with served(host) as url:
        with pytest.raises(fb.FedbanditError, match="keeps private"):
            Client(url, federation="shops", name="a", report=True)
        with Client(url, federation="shops", name="a", state=state) as client:
            assert client.guarantee.noise == "secure"
            assert "secure" in str(client.guarantee)
            visit(client, rng, 60)
            assert client.flush()
            before = client.status()["uploads"]
            stream = client._durable.machine.stream
            assert stream is not None
            assert stream.spent == before > 0
        with Client(url, federation="shops", name="a", state=state) as client:
            stream = client._durable.machine.stream
            assert stream is not None
            assert stream.spent == before, "the ledger goes on"
            visit(client, rng, 60)
            assert client.flush()
            assert stream.spent > before
            (seen,) = get_json(f"{url}/v1/shops/clients")["clients"]
            assert seen["privacy"]["releases"] == stream.spent
            assert 0 < seen["privacy"]["spent"] <= seen["privacy"]["epsilon"] == 2.0
            assert seen["privacy"]["spent"] == pytest.approx(stream.spent_epsilon)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "opendp", None)
        with pytest.raises(fb.FedbanditError, match=r"pip install 'fedbandit\[secure\]'"):
            Client(url, federation="shops", name="b")


def test_choices_have_propensities_and_a_log_that_stays_here(tmp_path: Path) -> None:
    """Deploy, log, evaluate: what a client decided is what `fedbandit replay` reads."""
    rng = np.random.default_rng(0)
    shares: dict[float, set[float]] = {0.0: set(), 0.5: set()}
    with served(make_host()) as url, Client(url, federation="shops", name="a", decisions=tmp_path / "log") as client:
        for t in range(400):
            explore = 0.5 if t % 2 else 0.0
            arm = client.select(rng.uniform(-0.5, 0.5, (4, 3)), explore=explore)
            shares[explore].add(round(arm.propensity, 6))
            client.observe(float(rng.uniform(0, 1)), arm)
        with pytest.raises(FedbanditError, match=r"explore is 1\.5, but must be a probability"):
            client.select(rng.uniform(-0.5, 0.5, (4, 3)), explore=1.5)
    assert shares == {0.0: {1.0}, 0.5: {0.125, 0.625}}, "UCB takes one arm for sure; half of the time it is mixed"
    log = fb.environments.read_decision_log(tmp_path / "log")
    assert log.n_decisions == 400
    assert log.client_names == ("a",)
    found = fb.evaluation.evaluate_frozen(fb.uniform(), log)
    assert "no choice" in found.warnings[0]
