"""Relays that pass secure sums on, against strangers, liars and answers that break off."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path

import pytest

from fedbandit.errors import FedbanditError
from fedbandit.machines.sums.messages import Step, SumMessage
from fedbandit.messages import Collect
from fedbandit.network.client.address import Address
from fedbandit.network.coordinator.bundles import AT_ONCE, exchange_many
from fedbandit.network.coordinator.config import FederationConfig, ServerConfig
from fedbandit.network.credentials import add_credentials, make_table, revoke_credential
from fedbandit.network.refusal import Refusal
from fedbandit.network.relay.bundles import Bundles
from fedbandit.network.relay.passing import Passing, make_app
from fedbandit.network.sums import (
    MOST_STEPS,
    Outcome,
    SentStep,
    pack_outcomes,
    pack_steps,
    unpack_outcomes,
    unpack_steps,
)
from tests.network.relay.passed import client_at, federation_of, passing, root_of, terms
from tests.network.relay.test_passing import status_of
from tests.network.servers import cut_off, get_json, running, served
from tests.network.test_sums import serve_users
from tests.waiting import eventually

STRANGER = SentStep("", "", "", b"")


def test_a_bundle_of_strangers_holds_nobody_up(tmp_path: Path) -> None:
    """Others have their turn meanwhile, again and again."""
    keys = tmp_path / "keys"
    keys.mkdir()
    make_table(keys)
    host = root_of(3, keys)
    turns = [0]

    async def others() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    async def attack() -> list[Outcome]:
        waiting = asyncio.create_task(others())
        outcomes = await exchange_many(host, host.federations["shops"], "relay", pack_steps([STRANGER] * MOST_STEPS))
        waiting.cancel()
        return outcomes

    assert {outcome.status for outcome in asyncio.run(attack())} == {401}
    assert turns[0] >= MOST_STEPS // AT_ONCE


def test_more_clients_than_a_bundle_takes_are_in_several() -> None:
    sizes: list[int] = []

    async def send(data: bytes) -> bytes:
        sizes.append(int.from_bytes(data[:4], "little"))
        return pack_outcomes([Outcome(200)] * sizes[-1])

    async def many() -> None:
        bundles = Bundles(send)
        running = asyncio.create_task(bundles.run())
        await asyncio.gather(*(bundles.post(SentStep("", f"c{i}", "", b"")) for i in range(2 * MOST_STEPS + 5)))
        running.cancel()

    asyncio.run(many())
    assert sizes == [MOST_STEPS, MOST_STEPS, 5]


@pytest.mark.parametrize("name", ["café", "München", " x"])
def test_whatever_name_a_coordinator_takes_a_relay_passes_on(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Any byte that HTTP allows: a stranger's is no fault of the relay's, with a traceback in its log."""
    host = root_of(3)
    with served(host) as above, passing(above) as (url, _):
        for base in (above, url):
            assert status_of(f"{base}/v1/shops/terms", headers={"X-Fedbandit-Name": name}) == 200
            assert status_of(f"{base}/v1/shops/terms", headers={"X-Fedbandit-Name": name, "User-Agent": "\xff"}) == 200
        with client_at(url, name, tmp_path) as client:
            eventually(lambda: client._connection.joined)
            assert client.problem is None
        assert list(federation_of(host).register.by_name) == [name.strip()]
    assert not [record for record in caplog.records if record.exc_info]


def test_a_header_that_cannot_be_sent_is_refused() -> None:
    async def ask() -> None:
        with passing("http://127.0.0.1:1") as (_, relay):
            await relay.ask("GET", "terms", {"X-Fedbandit-Name": "a\0b"})

    with pytest.raises(Refusal, match="A header has characters"):
        asyncio.run(ask())


def test_a_relay_whose_token_has_ended_is_not_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of clients with their own tokens are answered, but not the bundles in which their steps are."""
    monkeypatch.setattr("fedbandit.network.relay.passing.ASK_SECONDS", 0.1)
    keys = tmp_path / "keys"
    keys.mkdir()
    make_table(keys)
    tokens = add_credentials(keys, ["c0", "relay"], federation="shops")
    with served(root_of(3, keys)) as above:
        address = Address(above, "shops", tokens["relay"], None, None)
        relay = Passing(address, "shops", ServerConfig({"shops": FederationConfig(terms(3))}), 2**14, keys=False)
        with running(make_app(relay)) as url:
            mine = {"Authorization": f"Bearer {tokens['c0']}"}
            assert get_json(f"{url}/healthz") == {"status": "ok"}
            revoke_credential(keys, "relay")
            eventually(lambda: status_of(f"{url}/healthz") == 503)
            assert status_of(f"{url}/v1/shops/terms", headers=mine) == 200
            assert status_of(f"{url}/healthz") == 503, "whatever clients ask"
            address.headers["Authorization"] = f"Bearer {add_credentials(keys, ['again'], federation='shops')['again']}"
            eventually(lambda: status_of(f"{url}/healthz") == 200)


def test_an_answer_that_is_cut_off_is_no_end_of_sums(tmp_path: Path) -> None:
    """A relay or a coordinator was killed while it answered: the client leaves that sum, and is in the next."""
    host = root_of(3)
    with served(host) as above, cut_off() as broken:
        clients = [client_at(above, f"c{i}", tmp_path) for i in range(3)]
        try:
            eventually(lambda: all(client.connected for client in clients))
            talk, address = clients[0]._sums, clients[0]._address
            assert talk is not None
            assert address is not None
            with pytest.raises(FedbanditError, match="There is no answer from"):
                Address(broken, "shops", None, "c0", None).terms(1.0)
            talk.address = Address(broken, "shops", None, "c0", None)
            clients[0]._durable.called = Collect(clients[0]._durable.machine.member, 1, 0)
            eventually(lambda: talk.problem)
            assert talk.problem is not None
            assert "cannot be reached" in talk.problem
            talk.address = address
            serve_users(clients, 4)
            eventually(lambda: all(client._durable.machine.version >= 1 for client in clients))
            assert talk.problem is None
        finally:
            for client in clients:
                client.close()


@pytest.mark.parametrize(
    "outcome",
    [Outcome(99, [], {"error": "x"}), Outcome(302, [], {"error": "x"}), Outcome(409, [], ["x"])],  # type: ignore[arg-type]
)
def test_answers_of_a_liar_above_are_refused(outcome: Outcome) -> None:
    with pytest.raises(FedbanditError, match="An answer to a bundle of steps has status"):
        unpack_outcomes(pack_outcomes([outcome]))
    told = [Outcome(200, [SumMessage(1, 7, Step.ROSTER, b"keys")]), Outcome(409, [], {"error": "x"})]
    assert unpack_outcomes(pack_outcomes(told)) == told


def test_a_bundle_that_is_replayed_changes_nothing(tmp_path: Path) -> None:
    """Each step again, in the same sum and in the next one, in another's name, and of another member."""
    host = root_of(3)
    federation, desk = federation_of(host), host.federations["shops"].sums
    sent: list[bytes] = []

    class Recording(Passing):
        async def _send_bundle(self, data: bytes) -> bytes:
            sent.append(data)
            return await super()._send_bundle(data)

    def post(above: str, data: bytes) -> list[Outcome]:
        headers = {"X-Fedbandit-Name": "relay", "Content-Type": "application/octet-stream"}
        request = urllib.request.Request(f"{above}/v1/shops/sums/many", data, headers, method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return unpack_outcomes(answer.read())

    with served(host) as above, passing(above, Recording) as (url, _):
        clients = [client_at(url, f"c{i}", tmp_path) for i in range(3)]
        try:
            eventually(lambda: all(client.connected for client in clients))
            serve_users(clients, 4)
            eventually(lambda: all(client._durable.machine.version >= 1 for client in clients))
            eventually(lambda: desk.server is None)
            pool = federation.machine.pool
            assert pool is not None
            before, counts = pool.total.epoch, federation.machine.members.n.copy()
            state = federation.state()
            bundles = [data for data in sent if any(step.body for step in unpack_steps(data))]
            assert bundles
            said = [outcome for data in bundles for outcome in post(above, data)]
            assert {outcome.status for outcome in said if outcome.refusal} == {409}
            assert {outcome.refusal["kind"] for outcome in said if outcome.refusal} == {"sum"}
            assert all("is over, or has not begun" in o.refusal["error"] for o in said if o.refusal)
            assert not [step for outcome in said for step in outcome.steps]
            assert (pool.total.epoch, federation.machine.members.n.tolist()) == (before, counts.tolist())
            assert json.dumps(state.header["machine"], default=str) == json.dumps(
                federation.state().header["machine"], default=str
            )
        finally:
            for client in clients:
                client.close()
