"""A client and its store: restarts, full disks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.errors import FedbanditError
from fedbandit.messages import Receipt, Upload, encoded_size
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import MemoryStore, StoreError
from fedbandit.network.stores.sqlite import SQLiteStore
from tests.network.in_process import assert_same, make_clients, run

AGREEMENT = Agreement("async-linucb", {"gamma_upload": 1.3, "gamma_download": 1.3}, fb.World(3, 2, 1000))


def test_a_client_restarts_exactly(tmp_path: Path) -> None:
    federation = Federation("f", AGREEMENT, MemoryStore())
    store = SQLiteStore(tmp_path / "client.db")
    client = DurableClient(store, AGREEMENT, 0, lambda: 77)
    run(federation, [client, *make_clients(federation)[1:]], 15)
    waiting = client.select([[0.5, 0.0], [0.0, 0.5]])
    client.flush()
    kept, sequence = client.machine.state(), client.machine.sequence
    store.close()
    store = SQLiteStore(tmp_path / "client.db")
    again = DurableClient(store, AGREEMENT, 0, lambda: 78)
    assert_same(again.machine.state(), kept, but=("choices",))  # an opening numbers choices anew
    assert (again.machine.sequence, again.incarnation, again.epoch) == (sequence, 77, 2)
    again.observe(waiting.number, 0.5)
    assert again.select([[0.5, 0.0]]).number != waiting.number
    store.close()


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """A file that cannot grow: uploads are made but not sent, and everything is written when there is room."""
    store = SQLiteStore(tmp_path / "client.db")
    client = DurableClient(store, AGREEMENT, 0, lambda: 5)
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    rng, refused = np.random.default_rng(0), set()
    for _ in range(400):
        choice = client.select(rng.uniform(-0.5, 0.5, (3, 2)))
        try:
            client.observe(choice.number, 0.5)
        except StoreError as error:
            refused.add(str(error))
    assert refused == {f"The store {store.path!r} cannot be written: database or disk is full."}
    with pytest.raises(StoreError, match="disk is full"):
        client.outgoing()
    store._db.execute("PRAGMA max_page_count = 1000000")
    client.flush()
    assert len(client.outgoing(1000)) == client.machine.sequence
    before = client.machine.state()
    store.close()
    again = DurableClient(SQLiteStore(tmp_path / "client.db"), AGREEMENT, 0, lambda: 6)
    assert_same(again.machine.state(), before, but=("choices",))
    again.receive(Receipt(0, again.machine.sequence))
    assert again.outgoing() == []
    again.store.close()


def test_a_state_of_another_federation_is_refused() -> None:
    """With equal terms too: its uploads are not meant for the other one."""
    store, draw = MemoryStore(), iter(range(1, 99)).__next__
    client = DurableClient(store, AGREEMENT, 0, draw, federation="trial")
    client.observe(client.select(np.eye(2) / 2).number, 0.5)
    before = store.copy()
    sentence = "The client's state in memory belongs to the federation 'trial', not to 'other': name that one, or give"
    with pytest.raises(FedbanditError, match=sentence):
        DurableClient(store, AGREEMENT, 0, draw, federation="other")
    assert store.journals == before.journals, "nothing was written"
    DurableClient(store, AGREEMENT, 0, draw)  # who does not say which one, such as a migration, takes any
    with pytest.raises(FedbanditError, match=sentence):
        DurableClient(store, AGREEMENT, 0, draw, federation="other")
    assert DurableClient(store, AGREEMENT, 0, draw, federation="trial").machine.observed == 1


def test_a_state_without_a_name_belongs_to_the_federation_that_answers() -> None:
    """Before, a wrong name that was tried once was kept, and the right one refused from then on."""
    store, draw = MemoryStore(), iter(range(1, 99)).__next__
    DurableClient(store, AGREEMENT, 0, draw)
    DurableClient(store, AGREEMENT, 0, draw, federation="mistyped")  # no such federation: nobody answers
    client = DurableClient(store, AGREEMENT, 0, draw, federation="trial")
    client.receive(Receipt(0, 0))
    with pytest.raises(FedbanditError, match="belongs to the federation 'trial'"):
        DurableClient(store, AGREEMENT, 0, draw, federation="other")


class CountingStore(MemoryStore):
    """A store that counts the bytes it is given."""

    written = 0

    def append(self, journal: str, entries: Sequence[bytes], *, durable: bool = True) -> None:
        self.written += sum(map(len, entries))
        super().append(journal, entries, durable=durable)

    def replace(self, journal: str, snapshot: bytes, *, durable: bool = True) -> None:
        self.written += len(snapshot)
        super().replace(journal, snapshot, durable=durable)


def test_what_is_written_grows_with_what_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy client is sent receipts and no downloads: once, each receipt had all its uploads written again."""
    monkeypatch.setattr("fedbandit.network.client.journal.COMPACT_AFTER", 10_000)
    agreement = Agreement("async-linucb", {"gamma_upload": 1.0001}, fb.World(n_clients=2, dim=8, horizon=10_000))
    written = []
    for observations in (150, 300):
        store = CountingStore()
        client = DurableClient(store, agreement, 0, lambda: 5)
        rng = np.random.default_rng(0)
        for _ in range(observations):
            client.observe(client.select(rng.uniform(-0.3, 0.3, (3, 8))).number, 0.5)
            for frame in client.outgoing():
                assert frame.awaits is not None
                client.receive(Receipt(0, frame.awaits))
            client.journal.compact()
        assert client.machine.sequence == observations
        written.append(store.written)
        sent = observations * encoded_size(Upload, 8)
        assert store.written < 5 * sent
        assert len(store.read("client")[0] or b"") < 20 * encoded_size(Upload, 8), "a state grows with nothing"
        again = DurableClient(store, agreement, 0, lambda: 6)
        np.testing.assert_allclose(again.machine.model.in_common().V, client.machine.model.in_common().V, rtol=1e-12)
        assert again.uploaded.n == observations
    assert written[1] < 2.5 * written[0]
