"""`fb.Peer`: what an application embeds, with keys, restarts, strangers and clean ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import ssl
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.cli.main import main
from fedbandit.errors import FedbanditError
from fedbandit.network.peer import peering
from fedbandit.network.peer.keys import PeerKeys, make_peer_keys
from tests.cli.command_line import refusal
from tests.network.peer.peers import free_ports
from tests.waiting import eventually

THETA = np.array([0.6, -0.3, 0.2])


def make(i: int, ports: list[int], **more: Any) -> fb.Peer:
    """One of two peers."""
    given = {"dim": 3, "epsilon": math.inf, "observations": 500, "round_seconds": 0.01, "patience": 20.0, **more}
    return fb.Peer(i, peers=2, listen=f"127.0.0.1:{ports[i]}", neighbours={1 - i: f"127.0.0.1:{ports[1 - i]}"}, **given)


def visit(peer: fb.Peer, rng: np.random.Generator, times: int) -> None:
    for _ in range(times):
        X = rng.uniform(-0.5, 0.5, (4, 3))
        arm = peer.select(X)
        peer.observe(float(X[arm] @ THETA), arm)


def test_two_applications_learn_from_each_other_and_survive_a_restart(tmp_path: Path) -> None:
    ports, rng = free_ports(2), np.random.default_rng(0)
    with make(0, ports, state=tmp_path / "0.db") as one:
        with make(1, ports, state=tmp_path / "1.db") as other:
            visit(one, rng, 120)
            visit(other, rng, 120)
            late = other.select(np.eye(3))
            eventually(lambda: one.status()["heard"].get(1, 0) >= 50 and other.status()["heard"].get(0, 0) >= 50)
            assert one.status()["connected"] == [1]
            visit(other, rng, 1)  # writes the choice that waits, too
            seen, rounds = other.status()["observed"], other.status()["rounds"]
        with make(1, ports, state=tmp_path / "1.db") as again:
            assert again.status()["observed"] == seen == 121
            again.observe(0.5, late)
            with pytest.raises(FedbanditError, match="not waiting"):
                again.observe(0.5, late)
            eventually(lambda: again.status()["rounds"] > rounds + 3)
            assert again.problem is None
            model = again.rounds.machine.estimators[0].model
            assert model.n > 200
    assert one.problem is None


def test_a_peer_without_its_state_is_refused_and_says_so(tmp_path: Path) -> None:
    ports, rng = free_ports(2), np.random.default_rng(0)
    with make(0, ports, state=tmp_path / "0.db") as one:
        with make(1, ports) as other:
            visit(other, rng, 40)
            eventually(lambda: one.status()["heard"].get(1, 0) > 0)
        with make(1, ports) as stranger:
            eventually(lambda: stranger.problem is not None)
            assert "lost its state" in str(stranger.problem)
        with make(1, ports, epsilon=1e9, observations=7) as stranger:
            eventually(lambda: stranger.problem is not None)
            assert "observations = 7, here it is another" in str(stranger.problem)


def test_certificates_say_which_peer_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["keys", "peers", "--keys", str(tmp_path / "keys"), "--host", "127.0.0.1,127.0.0.1"]
    assert main([*words, "--json"]) == 0
    folders = json.loads(capsys.readouterr().out)["peers"]
    assert [Path(folder).name for folder in folders] == ["peer-0", "peer-1"]
    assert (Path(folders[0]) / "peer-key.pem").stat().st_mode & 0o077 == 0
    assert "something in" in refusal(capsys, *words)
    assert "needs --host A,B" in refusal(capsys, "keys", "peers", "--keys", str(tmp_path / "more"))
    ports, rng = free_ports(2), np.random.default_rng(0)
    with make(0, ports, keys=folders[0]) as one:
        with make(1, ports, keys=folders[1]) as other:
            visit(other, rng, 40)
            eventually(lambda: one.status()["heard"].get(1, 0) > 0)
        with make(1, ports, keys=folders[0]) as thief:  # the key of another peer
            eventually(lambda: thief.problem is not None)
            assert "does not let anyone speak as peer-1" in str(thief.problem)
        others = make_peer_keys(tmp_path / "others", ["127.0.0.1", "127.0.0.1"])
        with make(1, ports, keys=others[1]) as stranger:
            eventually(lambda: stranger.problem is not None)
            assert "cannot be trusted" in str(stranger.problem)
    with pytest.raises(FedbanditError, match="cannot be used"):
        PeerKeys.read(tmp_path)


def test_strangers_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever says nothing, or nonsense, is disconnected; the peer goes on."""
    from websockets.asyncio.client import connect
    from websockets.exceptions import ConnectionClosed
    from websockets.typing import Subprotocol

    monkeypatch.setattr(peering, "GREETING", 0.3)
    ports = free_ports(2)

    async def say(text: str | bytes | None) -> str | None:
        offered = [Subprotocol("fedbandit.v1")]
        async with connect(f"ws://127.0.0.1:{ports[0]}{peering.PATH}", proxy=None, subprotocols=offered) as ws:
            with contextlib.suppress(ConnectionClosed):
                if text is not None:
                    await ws.send(text)
                return str(await ws.recv())
        return None

    with make(0, ports, patience=0.2) as one:
        eventually(lambda: one.status()["rounds"] > 0)
        assert asyncio.run(say(None)) is None
        for nonsense in (
            "{}",
            "[]",
            "nonsense",
            b"\x00",
            json.dumps({"member": 7, "agreement": {}, "incarnation": "1"}),
        ):
            assert "error" in json.loads(str(asyncio.run(say(nonsense))))
        before = one.status()["rounds"]
        eventually(lambda: one.status()["rounds"] > before)


def test_a_clean_end_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    ports, rng = free_ports(2), np.random.default_rng(0)
    with caplog.at_level(logging.INFO), make(0, ports) as one, make(1, ports) as other:
        visit(one, rng, 20)
        eventually(lambda: one.status()["connected"] == [1] and other.status()["connected"] == [0])
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.WARNING]


def test_a_closed_peer_and_bad_input_get_one_sentence() -> None:
    ports = free_ports(2)
    peer = make(0, ports)
    with peer:
        arm = peer.select(np.eye(3))
        for reward in (None, "1", float("nan"), 7.0):
            with pytest.raises(FedbanditError, match="reward is"):
                peer.observe(reward, arm)  # type: ignore[arg-type]
        with pytest.raises(FedbanditError, match="array of numbers"):
            peer.select("abc")
        peer.forget(arm)
        with pytest.raises(FedbanditError, match="not waiting"):
            peer.observe(0.5, arm)
    with pytest.raises(FedbanditError, match="has been closed"):
        peer.select(np.eye(3))
    for wrong, sentence in (
        ({"listen": "0.0.0.0:0"}, "keys are required"),
        ({"neighbours": {}}, "at least one peer"),
        ({"neighbours": {0: "127.0.0.1:1"}}, "another number"),
        ({"listen": "nowhere"}, "not an address"),
    ):
        given: dict[str, Any] = {"listen": "127.0.0.1:0", "neighbours": {1: "127.0.0.1:1"}, **wrong}
        with pytest.raises(FedbanditError, match=sentence):
            fb.Peer(0, peers=2, dim=3, epsilon=math.inf, **given)


def test_the_client_side_asks_for_a_certificate(tmp_path: Path) -> None:
    (mine, _) = make_peer_keys(tmp_path / "keys", ["127.0.0.1", "127.0.0.1"])
    assert PeerKeys.read(mine).listen.verify_mode == ssl.CERT_REQUIRED
