"""A relay and the coordinators above it, as processes: TLS between them, and a federation that moves to another one."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.network.certificates import init_keys
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.credentials import add_credentials
from fedbandit.network.stores import open_store
from tests.cli.command_line import refusal
from tests.network.relay.processes import Relay, upstream
from tests.network.servers import AGREEMENT, Coordinator
from tests.network.test_coordinators import Service, health
from tests.waiting import eventually


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """What ends with the test."""
    with ExitStack() as kept:
        yield kept


def ended(relay: Relay) -> None:
    """Let a relay's process end, if it is there."""
    if relay.process is not None:
        relay.end(signal.SIGTERM)


def forwarded(url: str) -> int:
    """How many uploads of a relay the coordinator above has acknowledged; 0 while some wait."""
    shown = upstream(url)
    return 0 if shown["pending"] or shown["waiting"] else int(shown["forwards"])


def test_tls_above_with_a_token_and_an_authority(
    tmp_path: Path, stack: ExitStack, capsys: pytest.CaptureFixture[str]
) -> None:
    """A relay believes the coordinator above that its authority has certified, and no other, at the start or later."""
    keys, other = tmp_path / "keys", tmp_path / "other"
    init_keys(keys, ["127.0.0.1"])
    init_keys(other, ["127.0.0.1"])
    tokens = add_credentials(keys, ["north", "outside"], federation="shops")
    token = tmp_path / "north.token"
    token.write_text(tokens["north"])
    root = Coordinator(tmp_path, str(tmp_path / "root.db"), f'keys = "{keys}"')
    above = root.start()
    stack.callback(root.stop)
    assert above.startswith("https://")
    words = ["relay", "--upstream", above, "--federation", "shops", "--store", str(tmp_path / "relay.db")]
    words += ["--port", "0"]
    for ca in ([], ["--ca", str(other / "ca.pem")]):
        said = refusal(capsys, *words, "--token-file", str(token), *ca)
        assert ("pass ca= or --ca" if not ca else "has not signed its certificate") in said
    assert "cannot be read" in refusal(capsys, *words, "--ca", str(tmp_path / "none.pem"))
    assert "There is no token" in refusal(capsys, *words, "--ca", str(keys / "ca.pem"))
    plain = above.replace("https", "http", 1).replace("127.0.0.1", "192.0.2.1")
    assert "is not sent to" in refusal(capsys, "relay", "--upstream", plain, *words[3:], "--token-file", str(token))
    assert not (tmp_path / "relay.db").exists(), "what is refused leaves nothing"

    relay = Relay(tmp_path, above, words=("--token-file", str(token), "--ca", str(keys / "ca.pem")))
    url = relay.start()
    stack.callback(lambda: ended(relay))
    below = Service([url], "below", tmp_path)
    stack.callback(below.client.close)
    below.act()
    eventually(lambda: forwarded(url))
    went = upstream(url)
    assert (went["connected"], went["problem"], went["url"]) == (True, None, above)
    outside = fb.Client(above, federation="shops", token=tokens["outside"], ca=str(keys / "ca.pem"))
    stack.callback(outside.close)
    rng = np.random.default_rng(1)
    while upstream(url)["others"] == 0:
        outside.observe(float(rng.uniform(-1, 1)), outside.select(rng.uniform(-0.5, 0.5, (4, 3))))

    # An impostor in the place of the coordinator: nothing goes up, and the relay says why.
    root.stop()
    root.more = f'keys = "{other}"'
    assert root.start() == above
    eventually(lambda: "certificate" in str(upstream(url)["problem"]))
    below.act()
    eventually(lambda: upstream(url)["waiting"] > 0)
    assert not upstream(url)["connected"]
    root.stop()
    root.more = f'keys = "{keys}"'
    assert root.start() == above
    eventually(lambda: forwarded(url) > went["forwards"])
    eventually(lambda: upstream(url)["problem"] is None)
    root.stop()
    with closing(open_store(tmp_path / "root.db")) as store:
        federation = Federation("shops", AGREEMENT, store)
        assert federation.register.record("north").observations == below.n - below.client.status()["pending"] > 0


def test_a_relay_follows_a_federation_that_moves(tmp_path: Path, postgres_url: str, stack: ExitStack) -> None:
    """The first coordinator that it asks is not the owner (421); then the owner is killed, stopped, and restarted."""
    pytest.importorskip("psycopg")
    pair = []
    for name in "ab":
        (tmp_path / name).mkdir()
        pair.append(Coordinator(tmp_path / name, postgres_url, "lease = 1"))
        stack.callback(pair[-1].kill)
    a, b = pair
    one, two = a.start(), b.start()
    assert health(two)["status"] == "standby"

    relay = Relay(tmp_path, two)  # it knows only the one that is not the owner
    url = relay.start()
    stack.callback(lambda: ended(relay))
    below = Service([url], "below", tmp_path)
    stack.callback(below.client.close)
    went = 0

    def goes_up() -> int:
        below.act(1)
        eventually(lambda: forwarded(url) > went)
        return forwarded(url)

    went = goes_up()
    assert upstream(url)["url"] == one, "it went where it was told to"
    relay.end(signal.SIGKILL)
    assert relay.start() == url
    went = goes_up()
    assert upstream(url)["url"] == one

    a.kill()
    went = goes_up()
    assert upstream(url)["url"] == two
    assert a.start() == one

    assert b.process is not None
    os.kill(b.process.pid, signal.SIGSTOP)  # its connections stay open
    try:
        eventually(lambda: health(one)["status"] == "ok")
    finally:
        os.kill(b.process.pid, signal.SIGCONT)
    went = goes_up()  # two ends the stream, and says where the federation is
    eventually(lambda: upstream(url)["url"] == one)

    a.stop()  # in order, as in a rolling restart
    went = goes_up()
    assert upstream(url)["url"] == two
    assert upstream(url)["problem"] is None
    b.stop()
    ended(relay)
    with closing(open_store(postgres_url)) as store:
        federation = Federation("shops", AGREEMENT, store)
    (record,) = federation.register.by_number  # one member, however often it had to ask
    pending = below.client._durable.machine.model.pending()
    assert federation.machine.gathered().n == record.observations == below.n - pending.n > 0
    np.testing.assert_allclose(federation.machine.gathered().V, below.V - pending.V, atol=1e-9)
