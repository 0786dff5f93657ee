"""Attacks on peers and on coordinators that draw noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, replace
from functools import partial
from itertools import product
from typing import cast

import numpy as np

from fedbandit.audit.likelihood import scale_interval, whiten
from fedbandit.audit.mechanism_attack import exact_check
from fedbandit.audit.neighbours import History, RecordLimits, pairs_of, some_history, with_first
from fedbandit.audit.report import CONFIDENCE, Check
from fedbandit.machines.peer import PeerMachine
from fedbandit.messages import Tell
from fedbandit.privacy.guarantee import Guarantee
from fedbandit.privacy.mechanism import Mechanism
from fedbandit.privacy.privacy import Releases
from fedbandit.streams import Purpose, generator
from fedbandit.sums import Sums
from fedbandit.system import System
from fedbandit.world import World

HISTORIES = ((1.0, 1.0), (0.05, 1.0), (1.0, 0.05))
"""Spread and length of contexts: close to one direction, or faint, a single record matters most."""
LATE = 5
"""Rounds by which the first peer is late: the others then ask it when it has something to tell, and has not yet."""


def peers_check(
    make: Callable[..., PeerMachine], system: System, world: World, mechanism: Mechanism, limits: RecordLimits,
    rng: np.random.Generator, *, rounds: int,
) -> Check:  # fmt: skip
    """Whether anything but noised statistics that peers send depends on a record: who tells whom, when."""
    name, tried = "peers, times and counts", 0
    for (spread, length), (what, (one, other)) in product(HISTORIES, pairs_of(limits, mechanism).items()):
        faint = limits._replace(bound=length * limits.bound)
        rest = [some_history(faint, rounds, rng, spread) for _ in range(world.n_clients)]
        first, second = (
            _said(make, system, world, [with_first(rest[0], record, 1), *rest[1:]]) for record in (one, other)
        )
        tried += 1
        if first != second:
            t, *who = next(a for a, b in zip(first, second, strict=False) if a != b) if first and second else (0,)
            return Check(name, False, np.inf, f"replacing one record's {what} shows in round {t}: {who}")
    return Check(
        name, True, 0.0, f"the same for {tried} pairs of histories of {rounds} rounds of {world.n_clients} peers"
    )


def _said(
    make: Callable[..., PeerMachine], system: System, world: World, histories: list[History]
) -> list[tuple[object, ...]]:
    peers = [make(i, system, world, 0) for i in range(world.n_clients)]
    said: list[tuple[object, ...]] = []
    for t in range(len(histories[0])):
        for i, (peer, history) in enumerate(zip(peers, histories, strict=True)):
            if i > 0 or t >= LATE:
                x, y = history[t - (0 if i else LATE)]
                peer.observe(peer.select(x[None]).number, y)
        sent = [(i, to, message) for i, peer in enumerate(peers) for to, message in peer.send()]
        for i, to, message in sent:
            peers[to].receive(i, message)
            bare = replace(message, sums=message.sums.n) if isinstance(message, Tell) else message  # type: ignore[arg-type]
            said.append((t, i, to, type(message).__name__, *astuple(bare)))
        for peer in peers:
            peer.end_round()
    return said


def coordinator_check(told: System, world: World, limits: RecordLimits, claim: Guarantee, *, runs: int) -> list[Check]:
    """What a trusted coordinator publishes of one client: the exact ε of its streams, and the scale of their noise."""
    checks, scales = [], []
    mechanism: Mechanism | None = None
    for seed in range(runs):
        stream = _stream(told, world, seed)
        if mechanism is None:
            mechanism = stream.mechanism
            checks.append(exact_check(mechanism, limits, 1, claim.epsilon, claim.delta, "coordinator, exact"))
        n = min(mechanism.n_max, 32)
        zeros = Sums(np.zeros((mechanism.dim, mechanism.dim)), np.zeros(mechanism.dim), 1)
        released = np.cumsum([stream.release(zeros).b for _ in range(n)], axis=0)
        scales.append(whiten(mechanism, np.zeros((n, mechanism.dim)), released[:, None]))
    assert mechanism is not None
    claimed = told.privacy.stream(0, partial(generator, 0, Purpose.NOISE, 0))
    assert claimed is not None
    low, high = scale_interval(mechanism, np.stack(scales) * mechanism.scale / claimed.mechanism.scale, CONFIDENCE)
    detail = f"{runs} streams: {low:.3f}–{high:.3f} of the stated scale was seen"
    return [*checks, Check("coordinator, noise", high >= 1, 0.0, detail)]


def _stream(told: System, world: World, seed: int) -> Releases:
    """The stream with which the coordinator noises what client 0 told it, as its machine makes it."""
    machine = told.coordinator(world, seed) if told.structure.separate else None
    stream: object = None if machine is None or machine.privatise is None else machine.privatise(0)
    if stream is None:
        stream = told.privacy.stream(0, partial(generator, seed, Purpose.NOISE, 0))
    return cast(Releases, stream)
