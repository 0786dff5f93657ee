"""Rewards reach their own choice: ids, tokens, threads, workers, forks and closed clients."""

from __future__ import annotations

import base64
import hmac
import itertools
import os
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit.errors import FedbanditError
from fedbandit.network.client.choices import Exported, not_waiting, sign, verify
from fedbandit.network.client.client import Client
from fedbandit.network.client.durable import _GONE, _REDEEMED, _REWARD, DurableClient
from fedbandit.network.coordinator.config import FederationConfig, ServerConfig
from fedbandit.network.coordinator.host import Host
from fedbandit.network.invitation import Agreement, Schema
from fedbandit.network.stores import MemoryStore
from fedbandit.state import pack_entry
from tests.network.client.test_client import host_of
from tests.network.servers import WORLD, make_host, served

KEY, MEANING = b"sixteen bytes or more", bytes(range(16))


@given(st.integers(0, 2**62), st.lists(st.floats(-1, 1), min_size=3, max_size=3))
def test_a_token_says_what_was_signed(number: int, x: list[float]) -> None:
    token = sign(KEY, MEANING, Exported(number, np.array(x)))
    back = verify(KEY, MEANING, token, 3)
    assert (back.number, back.x.tolist()) == (number, x)


def test_a_token_that_was_changed_or_is_of_another_federation_is_refused() -> None:
    token = sign(KEY, MEANING, Exported(7, np.ones(3)))
    data = bytearray(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    for k in range(len(data)):
        data[k] ^= 1
        with pytest.raises(FedbanditError, match="another key, or was changed"):
            verify(KEY, MEANING, base64.urlsafe_b64encode(data).rstrip(b"=").decode(), 3)
        data[k] ^= 1
    for key, meaning, dim, sentence in (
        (KEY + b"!", MEANING, 3, "another key"),
        (KEY, bytes(16), 3, "of another federation"),
        (KEY, MEANING, 4, "contexts of length 4"),
    ):
        with pytest.raises(FedbanditError, match=sentence):
            verify(key, meaning, token, dim)
    with pytest.raises(FedbanditError, match="not one that export made"):
        verify(KEY, MEANING, "§" * 40, 3)
    for said, sentence in (
        (b"", "no token"),
        (b"FD" + bytes(26), "no token"),
        (b"FC\x01" + bytes(49), "format 1, of another version"),
        (b"FC\x02\x00" + MEANING + b"\xff" * 8 + bytes(24), "ffffffffffffffff, which no client makes"),
    ):
        signed = base64.urlsafe_b64encode(said + hmac.digest(KEY, said, "sha256")).rstrip(b"=").decode()
        with pytest.raises(FedbanditError, match=sentence):
            verify(KEY, MEANING, signed, 3)


def test_four_workers_and_clicks_that_come_anywhere(tmp_path: Path) -> None:
    """Each reward is learnt once, on its own context, whichever worker it comes to; ids of others are refused."""
    rng, theta = np.random.default_rng(0), np.array([0.5, -0.25, 0.125])
    with served(make_host()) as url:
        workers = [
            Client(url, federation="shops", name=f"w{k}", state=tmp_path / f"{k}.db", choice_key=KEY) for k in range(3)
        ]
        ids, wrong = set(), 0
        for _ in range(60):
            X = rng.uniform(-0.5, 0.5, (4, 3))
            maker, taker = rng.integers(3, size=2)
            arm = workers[maker].select(X)
            assert arm.id not in ids
            ids.add(arm.id)
            if maker != taker:
                with pytest.raises(FedbanditError, match="made by another client"):
                    workers[taker].observe(0.5, arm)
                wrong += 1
            token = workers[maker].export(arm)
            workers[taker].observe(float(X[arm] @ theta), token)
            with pytest.raises(FedbanditError, match="learnt here already"):
                workers[taker].observe(0.5, token)
            with pytest.raises(FedbanditError, match="exported as a token"):
                workers[maker].observe(0.5, arm)
        assert wrong > 0
        assert sum(worker.status()["observed"] for worker in workers) == 60
        for worker in workers:  # rewards are exactly linear in contexts: any mistake shows in θ̂
            machine = worker._durable.machine
            V, b, _ = machine.model.in_common()
            pending = machine.model.pending()
            np.testing.assert_allclose((V + pending.V) @ theta, b + pending.b, atol=1e-9)
        for worker in workers:
            worker.close()
        with Client(url, federation="shops", name="w0", state=tmp_path / "0.db", choice_key=KEY) as again:
            last = again.export(again.select(np.eye(3)))
            again.observe(0.5, last)
        with (
            Client(url, federation="shops", name="w0", state=tmp_path / "0.db", choice_key=KEY) as again,
            pytest.raises(FedbanditError, match="learnt here already"),
        ):
            again.observe(0.5, last)


def test_threads_do_not_mix_their_choices() -> None:
    theta = np.array([0.5, -0.25, 0.125])
    with served(make_host()) as url, Client(url, federation="shops", name="a") as client:

        def work(seed: int) -> None:
            rng = np.random.default_rng(seed)
            for _ in range(50):
                X = rng.uniform(-0.5, 0.5, (4, 3))
                arm = client.select(X)
                client.observe(float(X[arm] @ theta), arm)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert client.status()["observed"] == 300
        machine = client._durable.machine
        V, b, _ = machine.model.in_common()
        pending = machine.model.pending()
        np.testing.assert_allclose((V + pending.V) @ theta, b + pending.b, atol=1e-9)


def test_tokens_need_a_key_and_an_open_federation() -> None:
    with served(make_host()) as url:
        with pytest.raises(FedbanditError, match="16 bytes or more"):
            Client(url, federation="shops", name="a", choice_key="short")
        with Client(url, federation="shops", name="a") as client:
            with pytest.raises(FedbanditError, match="needs choice_key"):
                client.export(client.select(np.eye(3)))
            with pytest.raises(FedbanditError, match="needs choice_key"):
                client.observe(0.5, "x" * 40)
    pytest.importorskip("opendp", reason="OpenDP is not installed")
    private = Agreement("count-linucb", {"privacy": {"noises": "statistics", "epsilon": 2.0}}, WORLD)
    with (
        served(host_of(private)) as url,
        Client(url, federation="shops", name="a", choice_key=KEY) as client,
        pytest.raises(FedbanditError, match="keeps private"),
    ):
        client.export(client.select(np.eye(3)))


@pytest.mark.parametrize("reward", [None, "0.5", float("nan"), float("inf"), [0.5], np.ones(2)])
def test_what_is_no_reward_gets_one_sentence(reward: Any) -> None:
    with served(make_host()) as url, Client(url, federation="shops", name="a") as client:
        arm = client.select(np.eye(3))
        with pytest.raises(FedbanditError, match="reward is"):
            client.observe(reward, arm)
        client.observe(np.float64(0.5), arm)
        assert client.status()["observed"] == 1


def test_only_ids_that_a_client_makes_are_ids(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with served(make_host()) as url:
        with Client(url, federation="shops", name="a", state=path) as client:
            arm = client.select(np.eye(3))
            texts = ("f" * 16, "8" + "0" * 15, "-ff", "+ff", "1_0", "0xff", " ff", "FF", "", "ff\n")
            ids: list[Any] = [*texts, 2**63, -1, True]
            for wrong in ids:
                for use in (client.forget, partial(client.observe, 0.5)):
                    with pytest.raises(FedbanditError, match="but must be what select returned"):
                        use(wrong)
                with pytest.raises(FedbanditError, match="but must be what select returned"):
                    client.redeem(0.5, wrong, [1.0, 0.0, 0.0])
            assert client.redeem(0.5, "7" + "f" * 15, [1.0, 0.0, 0.0])
            client.observe(0.5, arm)
            client.learn(np.eye(3), np.ones(3))  # a snapshot
        with Client(url, federation="shops", name="a", state=path) as client:
            assert not client.redeem(0.5, "7" + "f" * 15, [1.0, 0.0, 0.0])
            assert client.status()["observed"] == 5


def test_a_file_with_an_id_that_cannot_be_opens() -> None:
    """Earlier versions took ids of 2**63 and more; no snapshot can have them."""
    store, agreement = MemoryStore(), Agreement("async-linucb", {}, WORLD)
    client = DurableClient(store, agreement, 0, itertools.count(1).__next__)
    x = np.array([1.0, 0.0, 0.0])
    entry = _REWARD.pack(_REDEEMED, 2**64 - 1, 1.0) + x.tobytes()
    store.append("client", [pack_entry("client", entry), pack_entry("client", _REWARD.pack(_GONE, 2**64 - 1, 0.0))])
    client = DurableClient(store, agreement, 0, itertools.count(9).__next__)
    assert (client.machine.observed, client.redeemed) == (1, {})
    assert DurableClient(store, agreement, 0, itertools.count(9).__next__).machine.observed == 1


def test_a_token_is_of_one_federation_and_outlives_its_terms() -> None:
    """It is bound to what contexts mean, and to the name; the horizon and reward_bound may change meanwhile."""
    fresh = Agreement("async-linucb", {}, replace(WORLD, horizon=2 * WORLD.horizon), reward_bound=0.5)
    federations = {name: FederationConfig(Agreement("async-linucb", {}, WORLD)) for name in ("shops", "clinics")}
    host = Host(ServerConfig(federations), MemoryStore())
    with served(host) as url:
        open_one = partial(Client, url, choice_key=KEY)
        with (
            open_one(federation="shops", name="a") as a,
            open_one(federation="shops", name="b") as b,
            open_one(federation="clinics", name="a") as other,
        ):
            tokens = [a.export(a.select(np.eye(3))) for _ in range(3)]
            with pytest.raises(FedbanditError, match="of another federation"):
                other.observe(0.5, tokens[0])
            assert other.status()["observed"] == 0
            b._durable.renew(fresh, 1)  # one worker has renewed, and another has not
            assert b._durable.terms != a._durable.terms
            b.observe(0.5, tokens[0])
            a.observe(0.5, b.export(b.select(np.eye(3))))
            a._durable.renew(fresh, 0)
            a.observe(0.5, tokens[1])
    two = replace(WORLD, actions=2)
    agreement = Agreement("async-linucb", {}, two)
    others = [
        Agreement("async-linucb", {}, two, action_names=("red", "blue")),
        Agreement("async-linucb", {}, replace(two, actions=3)),
        Agreement("async-linucb", {}, replace(two, dim=4)),
        Agreement("async-linucb", {}, replace(two, bound=2.0)),
        Agreement("async-linucb", {}, two, schema=Schema(("a", "b", "c"))),
    ]
    assert len({one.meaning("shops") for one in (agreement, *others)}) == 6


def test_a_closed_client_refuses() -> None:
    with served(make_host()) as url:
        client = Client(url, federation="shops", name="a", choice_key=KEY)
        arm = client.select(np.eye(3))
        client.close()
        client.close()
        uses = (
            lambda: client.select(np.eye(3)),
            lambda: client.observe(0.5, arm),
            lambda: client.forget(arm),
            lambda: client.export(arm),
            lambda: client.learn(np.eye(3), np.zeros(3)),
            client.flush,
        )
        for use in uses:
            with pytest.raises(FedbanditError, match="has been closed"):
                use()
        assert client.status()["observed"] == 0


FORK = """
import os, sys
import numpy as np
import fedbandit as fb
client = fb.Client(sys.argv[1], federation="shops", name="a", state=sys.argv[2])
def visit(times):
    for _ in range(times):
        client.observe(0.5, client.select(np.eye(3)))
visit(20)
for _ in range(2):
    if os.fork() == 0:
        for use in (lambda: client.select(np.eye(3)), client.flush, lambda: client.forget("1")):
            try:
                use()
            except fb.FedbanditError as error:
                assert "before a fork" in str(error)
            else:
                os._exit(1)
        client.close()
        del client
        sys.exit(0)  # what gunicorn's workers do: everything is torn down
assert {os.wait()[1] for _ in range(2)} == {0}
visit(20)
assert client.flush()
client.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_leaves_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with served(make_host()) as url:
        subprocess.run([sys.executable, "-W", "ignore", "-c", FORK, url, str(path)], check=True, timeout=120)
        with Client(url, federation="shops", name="a", state=path) as client:
            assert client.status()["observed"] == 40


def test_the_index_of_an_arm_is_no_choice() -> None:
    assert "pass what select returned, or its id" in str(not_waiting(0))
    assert "was made by another client" in str(not_waiting(2**61))
