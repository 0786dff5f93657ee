"""A root, a relay and clients as processes: `kill -9` of the relay at any point, and nothing is lost or counts twice.

`FEDBANDIT_KILLS` is how often, twice if it is not set.
"""

from __future__ import annotations

import random
import signal
import time
from contextlib import closing
from pathlib import Path

import numpy as np

import fedbandit as fb
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.relay.federation import RelayFederation
from fedbandit.network.stores import open_store
from tests.network.relay.processes import Relay, upstream
from tests.network.servers import AGREEMENT, Coordinator
from tests.network.test_kill import KILLS
from tests.waiting import eventually


def test_a_relay_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    draw, rng = random.Random(1), np.random.default_rng(0)
    root = Coordinator(tmp_path, "root.db")
    relay = Relay(tmp_path, above := root.start())
    url, V, n = relay.start(), np.zeros((3, 3)), 0
    clients = [fb.Client(url, federation="shops", name=f"c{i}", state=tmp_path / f"c{i}.db") for i in range(2)]
    outside = fb.Client(above, federation="shops", name="outside")
    try:
        assert relay.process is not None
        relay.process.send_signal(signal.SIGHUP)
        eventually(lambda: "nothing to reload" in (tmp_path / "relay.err").read_text())
        for _ in range(KILLS):
            for _ in range(40):
                for client in (*clients, outside):
                    X = rng.uniform(-0.5, 0.5, (5, 3))
                    arm = client.select(X)
                    client.observe(float(rng.uniform(-1, 1)), arm.id)
                    V, n = V + np.outer(X[int(arm)], X[int(arm)]), n + 1
            time.sleep(draw.uniform(0.0, 0.3))
            relay.end(signal.SIGKILL)
            assert relay.start() == url
        for client in (*clients, outside):
            assert client.flush(60), client.problem
        for client in (*clients, outside):  # what was observed and not uploaded yet
            pending = client._durable.machine.model.pending()
            V, n = V - pending.V, n - pending.n
        sent = [client.status()["observed"] - client.status()["pending"] for client in clients]

        def forwarded() -> bool:
            shown = upstream(url)
            return bool(shown["pending"] == 0 == shown["waiting"] and shown["others"] > 0)

        eventually(forwarded)
    finally:
        for client in (*clients, outside):
            client.close()
        relay.end(signal.SIGTERM)
        root.kill()
    with closing(open_store(tmp_path / "root.db")) as store, closing(open_store(tmp_path / "relay.db")) as below:
        total = Federation("shops", AGREEMENT, store).machine.gathered()
        machine = RelayFederation("shops", AGREEMENT, below, 0, lambda: 7).relaying
    assert total.n == n
    np.testing.assert_allclose(total.V, V, atol=1e-9)
    assert machine.below.n == sum(sent)
    assert 0 < machine.others.n <= total.n - machine.below.n
