"""A peer's part of gossip: what it asks, tells, passes on and remembers. No I/O, no clock, no learning.

Theory of operation
-------------------
Messages travel one hop a round and live γ hops. A peer that wants to synchronise estimator g tells what it has
released, and asks; everybody within γ hops tells in turn. Each Tell carries all that its origin ever released for g,
with the number of releases, so a peer keeps one Tell of each origin and estimator, the newest.

| it gets           | it has not seen that yet                                  | it has            |
|-------------------|-----------------------------------------------------------|-------------------|
| Ask(origin, g, e) | passes it on if hops are left; is to answer a companion   | nothing           |
| Tell(origin, g, n)| keeps it; passes it on if hops are left                   | nothing           |

Companions are whom a peer shares with: all peers, those of its group, or those of its clique. What it passes on for
others does not enter its sums.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedbandit.errors import FedbanditError
from fedbandit.messages import Ask, Download, Message, Tell, decode, encode, encoded_size
from fedbandit.sharing import Noise
from fedbandit.state import State, StateError, require_like
from fedbandit.sums import EXACT, Sums, zero_sums


class PeerNode:
    """One peer of a network without a coordinator; `companions` are whom it shares with, None for everybody."""

    def __init__(
        self, member: int, neighbours: tuple[int, ...], ttl: int, dim: int, companions: frozenset[int] | None = None
    ) -> None:
        self.member = member
        self.neighbours = neighbours
        self.ttl = ttl
        self.dim = dim
        self.companions = companions
        self.told: dict[tuple[int, int], Tell] = {}  # (origin, estimator) → the newest, its own included
        self._asked: dict[tuple[int, int], int] = {}  # (origin, estimator) → the newest epoch
        self._epoch = 0
        self._queue: list[tuple[int, Message]] = []  # where it came from, itself for its own

    def ask(self, estimator: int) -> None:
        """Let everybody within reach tell."""
        self._epoch += 1
        self._asked[self.member, estimator] = self._epoch
        self._queue.append((self.member, Ask(self.member, estimator, self._epoch, self.ttl)))

    def tell(self, estimator: int, released: Sums) -> None:
        """Tell everybody within reach, after one more release."""
        before = self.told.get((self.member, estimator))
        V, b, n = zero_sums(self.dim) if before is None else before.sums
        sums = Sums(V + released.V, b + released.b, n + released.n)
        sequence = 1 if before is None else before.sequence + 1
        self.told[self.member, estimator] = tell = Tell(self.member, estimator, sequence, self.ttl, sums)
        self._queue.append((self.member, tell))

    def send(self) -> list[tuple[int, Message]]:
        """What goes to which neighbour at the end of this round; nothing goes back to where it came from."""
        queue, self._queue = self._queue, []
        return [(j, message) for source, message in queue for j in self.neighbours if j != source]

    def receive(self, sender: int, message: Message) -> bool:
        """Take a message from a neighbour; True if it was new and from a companion."""
        if sender not in self.neighbours:
            raise FedbanditError(f"Peer {sender} is not a neighbour of peer {self.member}.")
        match message:
            case Ask(origin, estimator, epoch, hops):
                if epoch <= self._asked.get((origin, estimator), 0):
                    return False
                self._asked[origin, estimator] = epoch
            case Tell(origin, estimator, sequence, hops, sums):
                known = self.told.get((origin, estimator))
                if origin == self.member or (known is not None and sequence <= known.sequence):
                    return False
                if sums.b.size != self.dim or hops > self.ttl:
                    raise FedbanditError(
                        f"Peer {origin} told statistics of dimension {sums.b.size} with {hops} hops left, expected "
                        f"{self.dim} and at most {self.ttl}."
                    )
                self.told[origin, estimator] = message
            case _:
                raise FedbanditError(f"A peer does not take a {type(message).__name__}.")
        if hops > 1:
            self._queue.append((sender, replace(message, hops=hops - 1)))
        return self._shares_with(origin)

    def _shares_with(self, origin: int) -> bool:
        return self.companions is None or origin in self.companions

    def others(self, estimator: int) -> tuple[Sums, dict[int, int]]:
        """The sum of what its companions told, and how often each of them has released."""
        V, b, n = zero_sums(self.dim)
        releases: dict[int, int] = {}
        for (origin, g), tell in sorted(self.told.items()):
            if g == estimator and origin != self.member and self._shares_with(origin):
                V, b, n = V + tell.sums.V, b + tell.sums.b, n + tell.sums.n
                releases[origin] = tell.sequence
        return Sums(V, b, n), releases

    def own(self, estimator: int) -> Sums:
        """What this peer has told itself."""
        tell = self.told.get((self.member, estimator))
        return zero_sums(self.dim) if tell is None else tell.sums

    def state(self) -> State:
        """All that a node of the same network needs in order to go on."""
        header = {
            "epoch": self._epoch,
            "asked": [[*key, epoch] for key, epoch in self._asked.items()],
            "queue": [source for source, _ in self._queue],
            "told": len(self.told),
        }
        blobs = [encode(tell) for tell in self.told.values()], [encode(message) for _, message in self._queue]
        arrays = {
            f"{name}.{k}": np.frombuffer(blob, dtype=np.uint8)
            for name, group in zip(("told", "queue"), blobs, strict=True)
            for k, blob in enumerate(group)
        }
        return State(header, arrays)

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        values, arrays = state
        told = (np.uint8, (encoded_size(Tell, self.dim),))
        rules: dict[str, Any] = {name: told if name.startswith("told.") else None for name in arrays}
        require_like(state, PeerNode(self.member, self.neighbours, self.ttl, self.dim).state(), rules)
        expected = [f"told.{k}" for k in range(values["told"])] + [f"queue.{k}" for k in range(len(values["queue"]))]
        if set(arrays) != set(expected):
            raise StateError(f"The stored state has {sorted(arrays)}, but must have {sorted(expected)}.")
        self._epoch = values["epoch"]
        self._asked = {(origin, g): epoch for origin, g, epoch in values["asked"]}
        self._queue = [(source, decode(arrays[f"queue.{k}"].tobytes())) for k, source in enumerate(values["queue"])]
        self.told = {}
        for name, data in arrays.items():
            if name.startswith("told."):
                tell = decode(data.tobytes())
                if not isinstance(tell, Tell):
                    raise StateError(f"The stored {name} is a {type(tell).__name__}, but must be a Tell.")
                self.told[tell.member, tell.estimator] = tell


def heard(
    node: PeerNode, estimator: int, noise: Noise | None, ridge: float, version: int, *, keeps_own: bool
) -> Download:
    """What a peer has heard of an estimator, as if a coordinator had sent it: the others' statistics alone.

    If agents do not keep their own data exact (FedUCB as published), what the peer itself told is part of it.
    """
    sums, releases = node.others(estimator)
    if not keeps_own and noise is not None:
        mine, own = node.told.get((node.member, estimator)), node.own(estimator)
        if mine is not None:
            releases = {**releases, node.member: mine.sequence}
        V, slack = noise.repair(sums.V + own.V, releases, ridge)
        return Download(node.member, version, 0, Sums(V, sums.b + own.b, sums.n + own.n), slack)
    slack = EXACT
    if noise is not None:
        slack = noise.slack_of(sum(noise.variance(origin, count) for origin, count in releases.items()))
    return Download(node.member, version, 0, sums, slack, own=False)
