"""`fb.LocalServer`: users, sentences, restarts, and systems that have no coordinator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.engine.plain import make_machines
from fedbandit.network.coordinator.config import FederationConfig, ServerConfig, on_a_network
from fedbandit.network.coordinator.host import Host
from fedbandit.network.stores import MemoryStore
from tests.cli.command_line import refusal, report
from tests.network.peer.peers import free_ports
from tests.network.servers import AGREEMENT, served

WORLD = fb.World(n_clients=6, dim=3, horizon=6000, server_of=(0, 0, 0, 1, 1, 1))
RNG = np.random.default_rng(0)


def make_host(system: str, **keywords: float) -> Host:
    agreement = on_a_network(fb.Agreement(system, keywords, WORLD))
    federations = {"f": FederationConfig(agreement), "shops": FederationConfig(AGREEMENT)}
    return Host(ServerConfig(federations, rate=1e6), MemoryStore())


def serve(server: fb.LocalServer, visits: int) -> None:
    for t in range(visits):
        user = server.users[t % len(server.users)]
        server.observe(float(RNG.uniform(-1, 1)), server.select(user, RNG.uniform(-0.5, 0.5, (4, 3))))


def test_local_servers_share_and_survive(tmp_path: Path) -> None:
    host = make_host("fclub-dc", upload=1.2, download=1.2)
    with served(host) as url:
        for k, name in enumerate(["north", "south"]):
            with fb.LocalServer(url, federation="f", name=name, state=tmp_path / name) as server:
                assert server.users == [3 * k, 3 * k + 1, 3 * k + 2]
                serve(server, 30)
                late = server.select(3 * k, np.eye(3))
                assert server.flush(30)
                assert server.problem is None
        with fb.LocalServer(url, federation="f", name="south", state=tmp_path / "south") as server:
            server.observe(0.5, late.id)
            assert server.status()["observed"] == 31
            assert server.clusters == [[3, 4, 5]]
            with pytest.raises(fb.FedbanditError, match="is not waiting for a reward"):
                server.observe(0.5, late.id)
            for wrong in (0, 6, -1, "anna", 3.0, True):
                with pytest.raises(fb.FedbanditError, match=r"not known to local server 1, whose users are 3 to 5\.$"):
                    server.select(wrong, np.eye(3))  # type: ignore[arg-type]
            with pytest.raises(fb.FedbanditError, match=r"reward is 2\.0"):
                server.observe(2.0, server.select(4, np.eye(3)))
        assert host.federations["f"].federation.machine.gathered().n >= 50


def test_a_state_of_another_federation_is_refused(tmp_path: Path) -> None:
    with served(make_host("fclub-dc")) as url:
        fb.LocalServer(url, federation="f", name="north", state=tmp_path / "north").close()
    with pytest.raises(
        fb.FedbanditError, match=r"The local server's state in .* belongs to the federation 'f', not to"
    ):
        fb.LocalServer(url, federation="g", name="north", state=tmp_path / "north")


def test_one_that_refuses_a_federation_leaves_no_state_and_keeps_no_place(tmp_path: Path) -> None:
    """Only if it made the file itself: with a file it is a member, which comes back."""
    host, state = make_host("fclub-dc"), tmp_path / "north"
    register = host.federations["f"].federation.register
    with served(host) as url:
        for _ in range(2):
            with pytest.raises(fb.FedbanditError, match="requires a proven claim"):
                fb.LocalServer(url, federation="f", name="north", state=state, require=fb.Require(epsilon=1.0))
            assert register.by_name == {}
        fb.LocalServer(url, federation="f", name="north", state=state).close()
        with pytest.raises(fb.FedbanditError, match="requires a proven claim"):
            fb.LocalServer(url, federation="f", name="north", state=state, require=fb.Require(epsilon=1.0))
        assert set(register.by_name) == {"north"}


def test_wrong_members_are_told_so() -> None:
    host = make_host("homo-dc")
    with served(host) as url:
        with pytest.raises(fb.FedbanditError, match=r"local servers: use fb\.LocalServer"):
            fb.Client(url, federation="f", name="a")
        with pytest.raises(fb.FedbanditError, match=r"clients: use fb\.Client"):
            fb.LocalServer(url, federation="shops", name="a")
        with pytest.raises(fb.FedbanditError, match="longest is 0"):
            fb.LocalServer(url, federation="f", name="a", longest=0.0)
        taken = {name: list(hosted.federation.register.by_name) for name, hosted in host.federations.items()}
        assert taken == {"f": [], "shops": []}, "who is refused keeps no place"
    with pytest.raises(fb.FedbanditError, match="needs url and federation, or agreement"):
        fb.LocalServer()
    with pytest.raises(fb.FedbanditError, match="has a coordinator"):
        fb.LocalServer(agreement=fb.Agreement("fclub-dc", {}, WORLD))


def test_a_local_server_goes_to_the_coordinator_that_takes_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agreement = on_a_network(fb.Agreement("fclub-dc", {"upload": 1.2, "download": 1.2}, WORLD))
    config = ServerConfig({"f": FederationConfig(agreement)}, rate=1e6, store=str(tmp_path / "store.db"))
    (port,) = free_ports(1)
    with served(Host(config)) as first:
        urls = [first, f"http://127.0.0.1:{port}"]
        server = fb.LocalServer(urls, federation="f", name="north", state=tmp_path / "north")
        serve(server, 30)
        assert server.flush(60)
    serve(server, 30)
    host = Host(config)
    with server, served(host, port):
        assert server.flush(60), server.problem
        assert host.federations["f"].federation.register.record("north").uploads == server.status()["uploads"]
        for command in ("client", "local-server"):  # which take several, too: here the first is down
            said = refusal(capsys, command, *urls, "--federation", "nowhere", "--name", "b")
            assert "There is no federation 'nowhere' here" in said


def test_the_command_serves_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with served(make_host("fclub-dc", upload=1.2, download=1.2)) as url:
        words = ["local-server", url, "--federation", "f", "--state", str(tmp_path / "north"), "--interactions", "20"]
        for times in (1, 2):  # the second time it goes on where it was
            told = report(capsys, *words, "--name", "north")
            assert (told["server"], told["interactions"], told["delivered"], told["problem"]) == (0, 60, True, None)
            assert told["uploads"] > 2 * times
        assert "use fb.Client" in refusal(capsys, "local-server", url, "--federation", "shops", "--name", "north")


@pytest.mark.parametrize("system", ["club", "sclub"])
def test_without_a_coordinator(system: str, tmp_path: Path) -> None:
    agreement = fb.Agreement(system, {}, WORLD)
    with fb.LocalServer(agreement=agreement, number=1, state=tmp_path / "s") as server:
        serve(server, 40)
        before = server.status() | {"connected": None}
    with fb.LocalServer(agreement=agreement, number=1, state=tmp_path / "s") as server:
        assert server.status() | {"connected": None} == before
        assert before["observed"] == 40
        assert server.clusters is not None
        assert sorted(user for cluster in server.clusters for user in cluster) == [3, 4, 5]
    with pytest.raises(fb.FedbanditError, match="is that of local server 1, not 0"):
        fb.LocalServer(agreement=agreement, state=tmp_path / "s")


@pytest.mark.parametrize("system", ["club", "sclub"])
def test_without_a_coordinator_it_is_the_simulator(system: str, tmp_path: Path) -> None:
    alphas = {"alpha_split": 0.3} if system == "club" else {"alpha_split": 0.3, "alpha_merge": 0.3}
    agreement = fb.Agreement(system, alphas, WORLD, seed=4)
    simulated = make_machines(agreement.build(), WORLD, agreement.seed, 100)
    rng = np.random.default_rng(0)
    opened = [fb.LocalServer(agreement=agreement, number=k, state=tmp_path / str(k)) for k in range(2)]
    for t in range(240):
        user, arms = int(rng.integers(6)), rng.uniform(-0.5, 0.5, (4, 3))
        theirs, ours = simulated.select(user, arms), opened[user // 3].select(user, arms)
        assert int(ours) == theirs.arm, f"interaction {t}, user {user}"
        reward = float(arms[ours][user % 2] + 0.01 * rng.standard_normal())
        simulated.observe(user, theirs.number, reward)
        opened[user // 3].observe(reward, ours)
        if t % 60 == 59:
            opened[0].close()
            opened[0] = fb.LocalServer(agreement=agreement, number=0, state=tmp_path / "0")
    found = [cluster for server in opened for cluster in server.clusters or []]
    assert found == simulated.groups()
    assert len(found) > 2
    for server in opened:
        server.close()


def test_private_local_servers_draw_secure_noise(tmp_path: Path) -> None:
    with served(make_host("cdp-fclub-dc", epsilon=5.0, delta=1e-4)) as url:
        with fb.LocalServer(url, federation="f", name="north", state=tmp_path / "n") as server:
            assert (server.guarantee.basis, server.guarantee.noise) == ("proven", "secure")
            assert server.guarantee.sentence().startswith("Whoever sees everything that leaves this local server can")
            assert server.clusters is None
            serve(server, 90)
            assert server.flush(30)
            spent = [each.stream.spent for each in server._durable.machine.exchanges.values() if each.stream]
            assert min(spent) > 0
        with fb.LocalServer(url, federation="f", name="north", state=tmp_path / "n") as server:
            again = [each.stream.spent for each in server._durable.machine.exchanges.values() if each.stream]
            assert again == spent
