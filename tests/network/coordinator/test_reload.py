"""A running coordinator takes another configuration, or says why not and goes on."""

from __future__ import annotations

import asyncio
import dataclasses
import logging

import pytest

import fedbandit as fb
from fedbandit.network.coordinator.config import FederationConfig
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.overview import overview
from fedbandit.network.coordinator.owners import Failure
from fedbandit.network.coordinator.recorded import FAILS
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import Owner, StoreError
from tests.network.servers import AGREEMENT, make_host


def test_reload() -> None:
    async def run() -> None:
        host = make_host()
        await host.open()
        first = host.federations["shops"].federation
        first.invite("c", 0.0)
        longer = dataclasses.replace(AGREEMENT, world=dataclasses.replace(AGREEMENT.world, horizon=20_000))
        more = {"shops": FederationConfig(longer), "cafes": FederationConfig(AGREEMENT)}
        config = dataclasses.replace(host.config, federations=more)
        assert await host.owners.reload(config) == ["shops", "cafes"]
        again = host.federations["shops"].federation
        assert again.digest == longer.digest != first.digest
        assert "c" in again.register.by_name
        with pytest.raises(fb.FedbanditError, match=r"port of \[server\] has changed"):
            await host.owners.reload(dataclasses.replace(config, port=1))
        other = dataclasses.replace(AGREEMENT, world=dataclasses.replace(AGREEMENT.world, dim=5))
        with pytest.raises(fb.FedbanditError, match="dim"):
            await host.owners.reload(dataclasses.replace(config, federations={"shops": FederationConfig(other)}))
        assert host.federations["shops"].federation is again
        while "cafes" not in host.federations:
            await asyncio.sleep(0.05)
        await host.owners.reload(dataclasses.replace(config, federations={"shops": more["shops"]}))
        assert list(host.federations) == ["shops"]
        assert host.owners.all_work()
        await host.close()

    asyncio.run(run())


def test_a_reload_that_is_refused_lets_go_of_nothing_and_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    """Clients stay connected: what a federation would refuse is found before it ends."""

    async def run() -> None:
        host = make_host()
        await host.open()
        hosted = host.federations["shops"]
        for name in "abc":
            hosted.federation.invite(name, 0.0)
        fewer = dataclasses.replace(AGREEMENT, world=dataclasses.replace(AGREEMENT.world, n_clients=2))
        config = dataclasses.replace(host.config, federations={"shops": FederationConfig(fewer)})
        await host.owners.reload_from(lambda: config)
        assert host.federations["shops"] is hosted
        assert "not the owner any more" not in [record.message for record in caplog.records]
        (shown,) = overview(host)["problems"]
        assert "clients is 2, but the federation has 4 places" in shown
        await host.owners.reload_from(lambda: host.config)
        assert overview(host)["problems"] == []
        await host.close()

    with caplog.at_level(logging.INFO, "fedbandit"):
        asyncio.run(run())


def test_who_waits_for_its_turn_during_a_reload_changes_nothing_behind_the_new_federation() -> None:
    """A request that found the old federation must not write into the journal that the new one has read."""

    async def run() -> None:
        host = make_host()
        await host.open()
        old = host.federations["shops"]
        old.federation.invite("c", 0.0)
        longer = dataclasses.replace(AGREEMENT, world=dataclasses.replace(AGREEMENT.world, horizon=20_000))
        config = dataclasses.replace(host.config, federations={"shops": FederationConfig(longer)})
        async with old.paused():
            reload = asyncio.create_task(host.owners.reload(config))
            await asyncio.sleep(0.05)
            late = asyncio.create_task(old.do(old.federation.quarantine, "c", "too late", 1.0, "admin"))
            await asyncio.sleep(0.05)
        with pytest.raises(Refusal) as refused:
            await late
        assert refused.value.kind == "elsewhere"
        await reload
        new = host.federations["shops"].federation
        assert new.register.record("c").quarantined == ""
        stored = Federation("shops", longer, host.store)
        assert stored.register.record("c").quarantined == "", "the store and the memory are one"
        await host.close()

    asyncio.run(run())


def test_a_reload_changes_rates_of_federations_that_stay_and_refuses_what_cannot_change() -> None:
    async def run() -> None:
        host = make_host()
        await host.open()
        hosted = host.federations["shops"]
        hosted.limit("c")
        assert await host.owners.reload(dataclasses.replace(host.config, rate=2.0, connections_per_client=1)) == []
        assert host.federations["shops"] is hosted
        hosted.limit("c")
        hosted.limit("c")
        with pytest.raises(Refusal, match="more than 2 messages a second"):
            hosted.limit("c")
        hosted.streams["c"] = 1
        with pytest.raises(Refusal, match="1 streams open"):
            hosted.limit_streams("c")
        elsewhere = ("https://a.example",)
        changed = dataclasses.replace(host.config, hosts=elsewhere), dataclasses.replace(host.config, origins=elsewhere)
        for key, config in zip(("hosts", "origins"), changed, strict=True):
            with pytest.raises(fb.FedbanditError, match=rf"{key} of \[server\] has changed"):
                await host.owners.reload(config)
        await host.close()

    asyncio.run(run())


def test_a_reload_that_has_happened_is_taken_whatever_else_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    """Which names the store has beside is looked up after it; and what others owned is followed where it was."""

    async def run() -> None:
        host = make_host()
        await host.open()
        names = host.store.names
        host.store.claim = lambda *_: None  # type: ignore[method-assign]
        longer = dataclasses.replace(AGREEMENT, world=dataclasses.replace(AGREEMENT.world, horizon=20_000))
        config = dataclasses.replace(host.config, federations={"shops": FederationConfig(longer)})
        before = host.config.federations["shops"].digest
        await host.owners.step_down("shops")  # as if another coordinator had it
        host.store.owner = lambda _: Owner("http://other", "another", 1)  # type: ignore[assignment, method-assign]

        def fail() -> list[str]:
            raise StoreError("The store cannot be read.")

        host.store.names = fail  # type: ignore[method-assign]
        await host.owners.reload_from(lambda: config)
        assert host.config is config
        assert host.owners.not_taken == ""
        assert host.owners._followed["shops"] == before
        assert [record.message for record in caplog.records].count(FAILS) == 1
        host.store.names = names  # type: ignore[method-assign]
        await host.close()

    with caplog.at_level(logging.WARNING, "fedbandit"):
        asyncio.run(run())


def test_what_is_known_of_owners_changes_in_the_event_loop_alone() -> None:
    """A federation is claimed in a thread, while the loop may be going through what is known, for metrics say."""

    async def run() -> None:
        host = make_host()
        owners = host.owners
        del host.federations["shops"]
        known = owners.elsewhere, owners.stale, owners.failed
        for one, value in zip(known, ("http://other", "reload", Failure("a fault", 0.0, 0.0)), strict=True):
            one["shops"] = value  # type: ignore[index]
        await asyncio.to_thread(owners._take, "shops")
        assert [list(one) for one in known] == [["shops"]] * 3
        assert host.federations == {}
        await owners._try("shops")
        assert [list(one) for one in known] == [[]] * 3
        assert list(host.federations) == ["shops"]
        await host.close()

    asyncio.run(run())
