"""A running coordinator takes another configuration, or says why not and goes on."""

from __future__ import annotations

import asyncio
import dataclasses
import logging

import pytest

import fedbandit as fb
from fedbandit.network.coordinator.config import FederationConfig
from fedbandit.network.coordinator.overview import overview
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
