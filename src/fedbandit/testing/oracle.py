"""The oracle of the faulty network: an independent account of what was observed, sent and applied.

- Every observation that the coordinator has applied, it has applied once.
- For each client, observed = applied + in the outbox + pending.
- An upload that is sent again has the same bytes.
- What a client has in common with the coordinator is the last download, and its own later uploads on top.
- What a client believes acknowledged has been applied; its number of releases never falls.
- Noise is drawn once for each observation that leaves, and the ledger counts each time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedbandit.forgetting import Forgetting, scaled
from fedbandit.messages import Download, Restate, Upload, decode, encode
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.envelope import unseal
from fedbandit.sums import Form, Sums, add
from fedbandit.testing.crashing import CrashingStore


@dataclass
class Node:
    """A client, and the oracle's account of it. A copy of a client has a ' in its name."""

    name: str
    member: int
    store: CrashingStore
    live: DurableClient | None = None
    waiting: list[int] = field(default_factory=list)
    observed: int = 0
    pending: list[int] = field(default_factory=list)
    """Numbers of the observations that are in no upload yet."""
    sequence: int = 0
    made: dict[int, bytes] = field(default_factory=dict)
    """Uploads that have not been acknowledged yet."""
    downloads: dict[int, Download] = field(default_factory=dict)
    releases: int = 0
    """Uploads that carried something: noise was drawn for each of them once."""

    @property
    def client(self) -> str:
        """The name of the client that it is, or is a copy of."""
        return self.name.partition("'")[0]

    @property
    def copied(self) -> bool:
        """Whether it is a copy."""
        return self.client != self.name


class UploadSums:
    """Sums of uploads, each moved from its round to the latest one of them, where models forget."""

    def __init__(self, form: Form, forgetting: Forgetting) -> None:
        self.forgetting, self.round = forgetting, 0
        shape = *form.blocks, form.dim
        self.sums = Sums(np.zeros((*shape, form.dim)), np.zeros(shape), 0)

    def add(self, upload: Upload, sign: int = 1) -> None:
        """One more, or one less."""
        date = upload.round or 0
        latest = max(self.round, date)
        V, b, n = add(self.at(latest), scaled(self.forgetting.moved(upload.sums, date, latest), sign))
        self.sums, self.round = Sums(V, b, n if sign > 0 else n - 2 * upload.sums.n), latest

    def at(self, round: int) -> Sums:
        """In units of a later round."""
        return self.forgetting.moved(self.sums, self.round, round)


class Oracle:
    """Knows every observation by number: those made, those in each upload, those applied. `check` compares."""

    def __init__(self, form: Form, forgetting: Forgetting) -> None:
        self.applied: set[int] = set()
        self.total = UploadSums(form, forgetting)
        """What all uploads amount to that were applied."""
        self.made = UploadSums(form, forgetting)
        """What all uploads amount to that were ever made."""
        self._observations = 0
        self._of: dict[str, list[bytes]] = {}  # client → its uploads that were applied
        self._numbers: dict[bytes, list[int]] = {}  # applied upload → numbers of its observations
        self._inside: dict[bytes, list[int]] = {}  # upload → numbers of its observations
        self._sent: dict[tuple[int, int, int], bytes] = {}  # member, incarnation, sequence → upload

    def note_observation(self, node: Node) -> None:
        """A client is about to observe something that it will not lose."""
        node.observed += 1
        self._observations += 1
        node.pending.append(self._observations)

    def note_sent(self, node: Node, frame: bytes) -> None:
        """A client sends a frame: an upload always has the bytes that it had before."""
        envelope, encoded = unseal(frame)
        message = decode(encoded)
        if isinstance(message, Upload) and not node.copied:
            identity = message.member, envelope.incarnation, message.sequence
            assert self._sent.setdefault(identity, encoded) == encoded, f"upload {identity} changed"

    def note_uploads(self, node: Node) -> None:
        """If the client has made an upload, note which observations are in it."""
        assert node.live is not None
        machine = node.live.machine
        assert machine.sequence >= node.sequence, f"{node.name} released less than before"
        if machine.sequence > node.sequence:
            assert machine.sequence == node.sequence + 1
            node.sequence = machine.sequence
            upload = machine.outbox[machine.sequence]
            assert upload.sums.n == len(node.pending), f"{node.name} released {upload.sums.n}, not {len(node.pending)}"
            node.releases += upload.sums.n > 0
            self.made.add(upload)
            node.made[machine.sequence] = encode(upload)
            self._inside[node.made[machine.sequence]] = node.pending
            node.pending = []
        for number in [number for number in node.made if number not in machine.outbox]:
            data = node.made.pop(number)
            assert data not in self._inside, f"upload {number} of {node.name} is acknowledged, but not applied"

    def note_applied(self, coordinator: Federation, node: Node, data: bytes) -> None:
        """If the coordinator has applied this upload now, no observation in it may have been applied before."""
        message = decode(data)
        if not isinstance(message, Upload | Restate):
            return
        member = coordinator.register.record(node.client).member
        if coordinator.machine.applied.get(member, 0) < message.sequence:
            return
        made = [data] if isinstance(message, Upload) else [one for n, one in node.made.items() if n <= message.sequence]
        for one in made:  # a statement of all uploads applies those that were not
            if one in self._inside:
                self._of.setdefault(node.client, []).append(one)
                self._count(one)

    def _count(self, data: bytes) -> None:
        numbers, upload = self._inside.pop(data), decode(data)
        assert isinstance(upload, Upload)
        twice = self.applied.intersection(numbers)
        assert not twice, f"observations {sorted(twice)} were applied twice"
        self.applied.update(numbers)
        self._numbers[data] = numbers
        self.total.add(upload)

    def note_erased(self, node: Node) -> None:
        """All that this client has uploaded is to be gone."""
        for data in self._of.pop(node.client, []):
            upload = decode(data)
            assert isinstance(upload, Upload)
            self.applied.difference_update(self._numbers.pop(data))
            self.total.add(upload, -1)

    def check(self, coordinator: Federation, nodes: list[Node]) -> None:
        """Raise AssertionError unless both sides of the federation agree with this account."""
        V, b, n = coordinator.machine.gathered()
        assert n == len(self.applied), f"{n} observations applied, expected {len(self.applied)}"
        total = self.total.at(coordinator.machine.members.round)
        np.testing.assert_allclose(V, total.V, rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(b, total.b, rtol=1e-7, atol=1e-7)
        for node in nodes:
            if node.live is not None and not node.copied:
                _check_client(coordinator, node, node.live)


def _check_client(coordinator: Federation, node: Node, live: DurableClient) -> None:
    machine, record = live.machine, coordinator.register.record(node.name)
    applied = coordinator.machine.applied.get(node.member, 0)
    outbox = sum(upload.sums.n for n, upload in machine.outbox.items() if n > applied)
    assert machine.observed == node.observed, f"{node.name} has {machine.observed}, made {node.observed}"
    found = record.observations + outbox + machine.pending
    assert found == node.observed, f"{node.name}: {record.observations} applied + {outbox} + {machine.pending}"
    assert applied <= machine.sequence
    assert min(machine.outbox, default=machine.sequence + 1) <= applied + 1, "acknowledged, but not applied"
    if applied == machine.sequence and record.joined:
        assert live.chain == record.chain, "the two sides remember different uploads"
    if machine.stream is not None:
        assert machine.stream.spent == node.releases, f"the ledger of {node.name} has {machine.stream.spent}"
        return  # its model mixes downloads with its own exact data: nothing to compare with
    machine.fade()
    parts = machine.on_top.parts_at(machine.now)
    if machine.version:
        download = node.downloads[machine.version]
        parts.append(machine.forgetting.moved(download.sums, download.round or 0, machine.now))
        node.downloads = {v: download for v, download in node.downloads.items() if v >= machine.version}
    shared = machine.model.in_common()
    expected = Sums(np.zeros_like(shared.V), np.zeros_like(shared.b), 0)
    for part in parts:
        expected = add(expected, part)
    np.testing.assert_allclose(shared.V, expected.V, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(shared.b, expected.b, rtol=1e-7, atol=1e-7)
    assert shared.n == sum(sums.n for sums in parts)
