"""Relays that pass secure sums on: one sum over all clients, wherever they are, and a relay that knows nothing."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

import fedbandit as fb
from fedbandit.network.certificates import init_keys
from fedbandit.network.coordinator.bundles import STEPS_OF_ONE
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.pacing import RateLimit
from fedbandit.network.credentials import add_credentials, make_table, revoke_credential
from fedbandit.network.invitation import Agreement
from fedbandit.network.refusal import Refusal
from fedbandit.network.relay.bundles import Bundles
from fedbandit.network.relay.passing import Passing
from fedbandit.network.sums import (
    MOST_STEPS,
    Outcome,
    SentStep,
    pack_outcomes,
    pack_steps,
    session_of,
    unpack_outcomes,
    unpack_steps,
)
from tests.cli.command_line import refusal
from tests.network.relay.passed import client_at, federation_of, passing, root_of
from tests.network.relay.processes import Relay
from tests.network.relay.test_service import root_of as any_root
from tests.network.servers import WORLD, Coordinator, get_json, make_host, running, served
from tests.network.test_sums import agreement, serve_users
from tests.waiting import eventually


def counted(federation: Federation, clients: list[fb.Client]) -> bool:
    """Whether what the coordinator has of each is all that each has contributed."""
    said = {client._durable.machine.member: client.status() for client in clients}
    found = federation.machine.members.n
    return all(found[i] == one["observed"] - one["pending"] > 0 for i, one in said.items())


def test_one_sum_over_all_clients_wherever_they_are(tmp_path: Path) -> None:
    """Below two relays, below a relay of a relay, and directly: what is claimed is what it is without relays."""
    host = root_of(6)
    federation = federation_of(host)
    with ExitStack() as stack:
        above = stack.enter_context(served(host))
        north, relay = stack.enter_context(passing(above))
        south, _ = stack.enter_context(passing(above))
        village, _ = stack.enter_context(passing(south))
        urls = [north, north, south, south, village, above]
        clients = [stack.enter_context(client_at(url, f"c{i}", tmp_path)) for i, url in enumerate(urls)]
        eventually(lambda: all(client.connected for client in clients))
        assert relay.streams == 2
        assert get_json(f"{north}/healthz") == {"status": "ok"}
        serve_users(clients, 4)
        eventually(lambda: all(client._durable.machine.version >= 1 for client in clients))
        pool = federation.machine.pool
        assert pool is not None
        eventually(lambda: counted(federation, clients))
        assert sorted(pool.included) == list(range(6))
        assert [client.problem for client in clients] == [None] * 6
        assert len({client.guarantee for client in clients}) == 1
        assert len(federation.register.by_name) == 6, "relays are no members"
        assert relay.streams == 2


class Measured(Passing):
    """Notes what goes up in bundles, and what comes down."""

    def __init__(self, *said: Any, **given: Any) -> None:
        super().__init__(*said, **given)
        self.answers: list[bytes] = []

    async def _send_bundle(self, data: bytes) -> bytes:
        answer = await super()._send_bundle(data)
        self.answers.append(answer)
        return answer


def test_what_all_are_told_comes_down_once(tmp_path: Path) -> None:
    """What clients get is what they get without a relay, to the byte; above the relay lists of all are there once."""
    host = root_of(5)
    federation = federation_of(host)
    with ExitStack() as stack:
        above = stack.enter_context(served(host))
        url, relay = stack.enter_context(passing(above, Measured))
        assert isinstance(relay, Measured)
        clients = [stack.enter_context(client_at(url, f"c{i}", tmp_path)) for i in range(5)]
        eventually(lambda: all(client.connected for client in clients))
        serve_users(clients, 4)
        eventually(lambda: all(client._durable.machine.version >= 1 for client in clients))
        eventually(lambda: counted(federation, clients))
        answers = list(relay.answers)
    rosters = [(a, o.steps[0].body) for a in answers for o in unpack_outcomes(a) if [s.step for s in o.steps] == [2]]
    assert len(rosters) >= 5
    assert all(answer.count(body) == 1 for answer, body in rosters)
    assert len({answer for answer, _ in rosters}) < len(rosters), "several are told in one answer"


def test_each_entry_of_a_bundle_is_let_in_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that is none, one of another federation, another's session: one refusal each, as for single requests."""
    keys = tmp_path / "keys"
    keys.mkdir()
    make_table(keys)
    tokens = add_credentials(keys, ["c0", "c1", "relay"], federation="shops")
    tokens |= add_credentials(keys, ["stranger"], federation="others")
    octets = {"Content-Type": "application/octet-stream"}
    host = root_of(3, keys)
    with served(host) as above, ExitStack() as stack:
        clients = [stack.enter_context(client_at(above, name, tmp_path, tokens[name])) for name in ("c0", "c1")]
        eventually(lambda: all(client.connected and client._connection.joined for client in clients))
        durable = [client._durable for client in clients]
        sessions = [session_of(one.incarnation, one.epoch, one.nonce) for one in durable]
        bearer = {name: f"Bearer {token}" for name, token in tokens.items()}
        entries = [
            SentStep(bearer["c0"], "", sessions[0], b""),
            SentStep(bearer["c1"], "", sessions[0], b""),
            SentStep("Bearer nonsense", "c0", sessions[0], b""),
            SentStep(bearer["stranger"], "", sessions[0], b""),
            SentStep(bearer["c1"], "", sessions[1], b"nonsense"),
            SentStep(bearer["c1"], "", sessions[1], bytes(2000)),
            SentStep(bearer["c1"], "", sessions[1], b""),
        ]

        def post(path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
            request = urllib.request.Request(f"{above}/v1/shops/{path}", body, headers | octets, method="POST")
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return answer.status, answer.read()
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.read()

        status, data = post("sums/many", {"Authorization": bearer["relay"]}, pack_steps(entries))
        outcomes = unpack_outcomes(data)
        assert (status, [one.status for one in outcomes]) == (200, [200, 409, 401, 403, 400, 413, 200])
        for entry, outcome in zip(entries, outcomes, strict=True):
            alone = {"Authorization": entry.authorization, "Fedbandit-Session": entry.session}
            code, said = post("sums", alone, entry.body)
            assert code == outcome.status
            assert (json.loads(said) if said else {}) == outcome.refusal
        assert post("sums/many", {}, pack_steps(entries))[0] == 401
        assert post("sums/many", {"Authorization": bearer["stranger"]}, pack_steps(entries))[0] == 403
        for wrong in (b"", b"nonsense", pack_steps(entries)[:-1], pack_steps(entries) + b"x"):
            assert post("sums/many", {"Authorization": bearer["relay"]}, wrong)[0] == 400
        moved = Refusal("elsewhere", "It has moved.", "http://b:1")
        monkeypatch.setattr(host.federations["shops"], "limit", lambda _: _raise(moved))
        status, data = post("sums/many", {"Authorization": bearer["relay"]}, pack_steps(entries))
        assert (status, json.loads(data)["owner"]) == (421, "http://b:1"), "the whole of it, for the relay to follow"


def test_a_bundle_of_nothing_but_steps_does_not_make_the_coordinator_deaf() -> None:
    """260,000 empty steps in one request, of any client, took four seconds in which nobody else was answered."""
    sent = {"Content-Type": "application/octet-stream", "X-Fedbandit-Name": "evil"}
    nothing = SentStep("", "", "", b"")
    with served(root_of(3)) as above, served(make_host()) as plain:
        most = pack_steps([nothing] * MOST_STEPS)
        assert status_of(f"{above}/v1/shops/sums/many", "POST", sent, most) == 200
        beyond = pack_steps([nothing] * (MOST_STEPS + 1))
        assert status_of(f"{above}/v1/shops/sums/many", "POST", sent, beyond) == 400
        assert status_of(f"{plain}/v1/shops/sums/many", "POST", sent, pack_steps([nothing])) == 400, "no secure sums"


def test_steps_of_a_bundle_count_for_who_sends_it() -> None:
    host = root_of(3)
    limits = host.federations["shops"].limits
    limits["evil"] = RateLimit(1e-9, burst=1.5 * MOST_STEPS / STEPS_OF_ONE)
    sent = {"Content-Type": "application/octet-stream", "X-Fedbandit-Name": "evil"}
    most = pack_steps([SentStep("", "", "", b"")] * MOST_STEPS)
    with served(host) as above:
        url = f"{above}/v1/shops/sums/many"
        assert [status_of(url, "POST", sent, most) for _ in range(2)] == [200, 429]
        assert status_of(url, "POST", sent | {"X-Fedbandit-Name": "other"}, most) == 200


def test_a_relay_sends_no_longer_bundles_than_are_taken() -> None:
    sizes = []

    async def send(data: bytes) -> bytes:
        sizes.append(len(unpack_steps(data)))
        return pack_outcomes([Outcome(200)] * sizes[-1])

    async def scenario() -> None:
        bundles = Bundles(send)
        running = asyncio.create_task(bundles.run())
        outcomes = await asyncio.gather(*[bundles.post(SentStep("", f"c{i}", "", b"")) for i in range(MOST_STEPS + 9)])
        assert outcomes == [Outcome(200)] * (MOST_STEPS + 9)
        running.cancel()

    asyncio.run(scenario())
    assert sizes == [MOST_STEPS, 9]


def _raise(refusal: Refusal) -> None:
    raise refusal


def status_of(url: str, method: str = "GET", headers: dict[str, str] | None = None, body: bytes | None = None) -> int:
    """The status that a request is answered with."""
    request = urllib.request.Request(url, headers=headers or {}, method=method, data=body)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_only_what_clients_ask_is_passed_on() -> None:
    """Also with an operator's token, and not for pages of other origins, which are not named above."""
    with served(root_of(3)) as above, passing(above) as (url, _):
        name = {"X-Fedbandit-Name": "c0"}
        assert status_of(f"{url}/v1/shops/terms", headers=name) == 200
        for method, path in (
            ("GET", "/api/backup"),
            ("GET", "/api/overview"),
            ("GET", "/metrics"),
            ("GET", "/"),
            ("GET", "/v1/shops/clients"),
            ("DELETE", "/v1/shops/clients/c0"),
            ("POST", "/v1/shops/quarantine"),
            ("POST", "/v1/shops/free"),
            ("GET", "/v1/others/terms"),
        ):
            assert status_of(url + path, method, name) == 404, path
        for wrong in ({"Origin": "https://elsewhere.example"}, {"Host": "rebound.example"}):
            assert status_of(f"{url}/v1/shops/terms", headers=name | wrong) == 403
        assert status_of(f"{url}/v1/shops/messages", "POST", name, b"x") == 400, "no bytes, by its content type"
        octets = name | {"Content-Type": "application/octet-stream"}
        long = octets | {"Authorization": 2000 * "x"}
        assert status_of(f"{url}/v1/shops/sums", "POST", long, b"x") == 400, "it would go with those of others"
        assert status_of(f"{url}/v1/shops/messages", "POST", octets, bytes(2**14 + 1)) == 413


def test_a_relay_that_is_killed_in_a_sum_has_nobody_contribute_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a process; SIGHUP is no end of it. Whoever is below is absent from that sum, and in the next with all."""
    monkeypatch.setattr("fedbandit.network.coordinator.sums.STEP_SECONDS", 2.0)
    host = root_of(5)
    federation, desk = federation_of(host), host.federations["shops"].sums
    with ExitStack() as stack:
        above = stack.enter_context(served(host))
        relay = Relay(tmp_path, above, adds=False)
        url = relay.start()
        stack.callback(lambda: relay.end(signal.SIGTERM))
        clients = [client_at(url if i < 2 else above, f"c{i}", tmp_path) for i in range(5)]
        given: list[tuple[int, int]] = []
        for i, client in enumerate(clients):
            stack.callback(client.close)

            def note(epoch: int, included: int, i: int = i, make: Any = client._durable.contribute) -> Any:
                given.append((i, epoch))
                return make(epoch, included)

            monkeypatch.setattr(client._durable, "contribute", note)
        eventually(lambda: all(client.connected for client in clients))
        assert relay.process is not None
        relay.process.send_signal(signal.SIGHUP)
        eventually(lambda: "nothing to reload" in (tmp_path / "relay.err").read_text())
        serve_users(clients, 4)
        eventually(lambda: desk.server is not None)
        relay.end(signal.SIGKILL)
        serve_users(clients[2:], 2, seed=1)
        assert relay.start() == url
        eventually(lambda: all(client.connected for client in clients))

        def all_of_it() -> bool:
            serve_users(clients, 1, seed=len(given))
            return counted(federation, clients) and min(client._durable.machine.version for client in clients) > 0

        eventually(all_of_it)
        epochs = [[epoch for i, epoch in given if i == k] for k in range(5)]
        assert all(a < b for each in epochs for a, b in itertools.pairwise(each)), "an epoch twice, or an older one"
        assert {client._address.url for client in clients[:2] if client._address} == {url}


def mover(owner: str, *, accepts: bool) -> Starlette:
    """A coordinator whose federation is another's: it says so before, or after it has accepted a stream."""
    told = {"error": "It is elsewhere.", "kind": "elsewhere", "owner": owner}

    async def stream(ws: WebSocket) -> None:
        if not accepts:
            await ws.send_denial_response(JSONResponse(told, 421))
            return
        await ws.accept("fedbandit.v1")
        await ws.send_text(json.dumps(told))
        await ws.close(1008)

    async def other(request: Request) -> Response:
        if request.url.path.endswith("/sums/many") and accepts:
            steps = unpack_steps(await request.body())
            return Response(pack_outcomes([Outcome(421, [], told) for _ in steps]))
        return JSONResponse(told, 421)

    routes = [WebSocketRoute("/v1/shops/stream", stream), Route("/{path:path}", other, methods=["GET", "POST"])]
    return Starlette(routes=routes)


@pytest.mark.parametrize("accepts", [False, True])
def test_where_the_federation_has_moved_is_not_told_to_clients(accepts: bool, tmp_path: Path) -> None:
    with ExitStack() as stack:
        owner = stack.enter_context(served(root_of(3)))
        moved = stack.enter_context(running(mover(owner, accepts=accepts)))
        url, relay = stack.enter_context(passing(moved))
        name = {"X-Fedbandit-Name": "c0"}
        octets = name | {"Content-Type": "application/octet-stream"}
        for path, body in (("terms", None), ("sums", b"")):
            relay.address.url = moved
            request = urllib.request.Request(f"{url}/v1/shops/{path}", body, octets)
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=30)
            with refused.value as answer:
                assert answer.code == 503
                assert set(json.loads(answer.read())) == {"error", "kind"}, "without the owner"
            assert relay.address.url == owner, "the relay has followed"
        client_at(url, "c0", tmp_path).close()  # which has its terms from now on

        relay.address.url = moved
        stream = url.replace("http", "ws", 1) + "/v1/shops/stream"
        if accepts:
            with connect(stream, additional_headers=name, subprotocols=["fedbandit.v1"]) as ws:  # type: ignore[list-item]
                told = json.loads(ws.recv())
                with pytest.raises(ConnectionClosed):
                    ws.recv()
            assert (told["kind"], "owner" in told) == ("unavailable", False)
        else:
            with pytest.raises(InvalidStatus) as denied:
                connect(stream, additional_headers=name)
            assert denied.value.response.status_code == 503
        assert relay.address.url == owner

        relay.address.url = moved
        client = stack.enter_context(client_at(url, "c0", tmp_path))
        eventually(lambda: client.connected and relay.address.url == owner)
        assert client._address is not None
        assert client._address.url == url


class Flipping(Passing):
    """Planted: a relay that changes one byte of each step of a sum."""

    at = 20
    """The first after the header: of a client's keys, at the beginning."""

    async def _send_bundle(self, data: bytes) -> bytes:
        changed = [step._replace(body=self._flipped(step.body)) for step in unpack_steps(data)]
        return await super()._send_bundle(pack_steps(changed))

    def _flipped(self, body: bytes) -> bytes:
        changed = bytearray(body)
        if body:
            changed[self.at] ^= 1
        return bytes(changed)


class FlippingLast(Flipping):
    """Planted: of keys it is a certificate's byte, which nobody looks at here; of shares the last recipient's."""

    at = -1


@pytest.mark.parametrize("kind", [Flipping, FlippingLast])
def test_a_relay_that_changes_steps_has_no_wrong_sum_opened(
    kind: type[Flipping], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys do not fit their signature: its client is left out, the others' sum is opened. Or shares do not decrypt: who
    is sent one leaves. It can keep sums from being opened, as a coordinator can, and somebody says so.
    """
    monkeypatch.setattr("fedbandit.network.coordinator.sums.STEP_SECONDS", 2.0)
    host = root_of(5)
    federation = federation_of(host)
    pool = federation.machine.pool
    assert pool is not None
    with ExitStack() as stack:
        above = stack.enter_context(served(host))
        url, _ = stack.enter_context(passing(above, kind))
        clients = [stack.enter_context(client_at(above if i else url, f"c{i}", tmp_path)) for i in range(5)]
        liar = clients[0]._durable.machine.member
        eventually(lambda: all(client.connected for client in clients))
        serve_users(clients, 4)
        eventually(lambda: any(client._sums is not None and client._sums.problem for client in clients))
        if kind is Flipping:
            eventually(lambda: all(client._durable.machine.version >= 1 for client in clients[1:]))
            eventually(lambda: counted(federation, clients[1:]))
        else:
            eventually(lambda: pool.unopened or pool.included)
    assert liar not in pool.included


def test_a_token_that_is_revoked_above_ends_the_stream_below(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    make_table(keys)
    tokens = add_credentials(keys, ["c0", "c1"], federation="shops")
    with served(root_of(3, keys)) as above, passing(above) as (url, relay):
        with client_at(url, "c0", tmp_path, tokens["c0"]) as gone, client_at(url, "c1", tmp_path, tokens["c1"]) as kept:
            eventually(lambda: gone.connected and kept.connected)
            revoke_credential(keys, "c0")
            eventually(lambda: not gone.connected and gone.problem)
            assert relay.streams == 1
            assert kept.connected
        assert status_of(f"{url}/v1/shops/terms", headers={"Authorization": "Bearer nonsense"}) == 401


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        (Agreement("hetofedbandit", {}, WORLD), "HomogeneityCliques needs each member's statistics"),
        (agreement("coordinator"), "trust='coordinator' is refused: one coordinator is trusted"),
    ],
)
def test_what_no_relay_can_do_is_refused_and_takes_no_place(
    terms: Agreement, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host = any_root(terms)
    with served(host) as url:
        said = refusal(capsys, "relay", "--upstream", url, "--federation", "shops", "--store", str(tmp_path / "r.db"))
        assert sentence in said
        assert not federation_of(host).register.by_name
    assert not (tmp_path / "r.db").exists()


def test_flags_of_relays_that_add_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--federation", "shops", "--port", "0"]
    with served(root_of(3)) as url:
        store = ["--store", str(tmp_path / "relay.db")]
        for flag in (["--forward", "trigger"], ["--seconds", "1"], ["--rate", "10"], store):
            said = refusal(capsys, "relay", "--upstream", url, *words, *flag)
            assert f"{flag[0]} is for relays that add up" in said
    assert not list(tmp_path.iterdir()), "no file of a name either"
    with served(any_root(Agreement("async-linucb", {}, WORLD))) as url:
        assert "--store FILE is needed" in refusal(capsys, "relay", "--upstream", url, *words)


def test_a_relay_says_when_nobody_answers_above(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedbandit.network.relay.passing.QUIET_SECONDS", 0.5)
    monkeypatch.setattr("fedbandit.network.relay.passing.ASK_SECONDS", 0.1)
    with ExitStack() as stack:
        with served(root_of(3)) as above:
            url, _ = stack.enter_context(passing(above))
            eventually(lambda: status_of(f"{url}/healthz") == 200)
        eventually(lambda: status_of(f"{url}/healthz") == 503)
        assert status_of(f"{url}/v1/shops/terms", headers={"X-Fedbandit-Name": "c0"}) == 503


CONFIG = """
[server]
port = 0
keys = "{keys}"

[federations.shops]
system = "feducb"
clients = 3
dim = 2
horizon = 3000
keywords = {{trust = "sums", epsilon = 1.0, own = "exact"}}
"""


def test_tls_below_and_above(tmp_path: Path) -> None:
    """As processes: the relay has a certificate of the clients' authority, and believes the root by that authority."""
    keys = tmp_path / "keys"
    init_keys(keys, ["127.0.0.1"])
    tokens = add_credentials(keys, ["c0", "c1", "c2", "relay"], federation="shops")
    (tmp_path / "token").write_text(tokens["relay"])
    root = Coordinator(tmp_path, "root.db")
    root.config.write_text(CONFIG.format(keys=keys).replace("[server]", f'[server]\nstore = "{tmp_path / "root.db"}"'))
    ca = str(keys / "ca.pem")
    with ExitStack() as stack:
        above = root.launch()
        stack.callback(root.stop)
        words = ("--token-file", str(tmp_path / "token"), "--ca", ca, "--keys", str(keys))
        relay = Relay(tmp_path, above, words=words, adds=False)
        url = relay.start()
        stack.callback(lambda: relay.end(signal.SIGTERM))
        assert url.startswith("https://")
        clients = [
            stack.enter_context(
                fb.Client(url, federation="shops", token=tokens[f"c{i}"], ca=ca, state=tmp_path / f"c{i}.db")
            )
            for i in range(3)
        ]
        eventually(lambda: all(client.connected for client in clients))
        serve_users(clients, 4)
        eventually(lambda: all(client._durable.machine.version >= 1 for client in clients))
        assert [client.problem for client in clients] == [None] * 3
