"""The peer that a service embeds: no coordinator, its neighbours are other services' peers.

```python
with fb.Peer(0, peers=3, dim=10, listen="127.0.0.1:9000", neighbours={1: "127.0.0.1:9001"}, state="0.db") as peer:
    arm = peer.select(arms)
    peer.observe(reward, arm)
```
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from numpy.typing import ArrayLike

from fedbandit.errors import FedbanditError, number, require, whole_number
from fedbandit.machines.peer import PeerMachine
from fedbandit.network.addresses import bind, is_loopback, parse_address
from fedbandit.network.client.choices import Arm, id_of, number_of
from fedbandit.network.client.features import OutOfRange, Scaling
from fedbandit.network.peer.keys import PeerKeys
from fedbandit.network.peer.peering import Peering
from fedbandit.network.peer.rounds import PeerRounds
from fedbandit.network.peer.terms import Terms
from fedbandit.network.stores import Store, StoreError, open_store
from fedbandit.privacy.guarantee import Guarantee

MOST_ROUNDS = 2**62
"""So many that a peer that says it is in the last one brings nobody there (`rounds.MOST_AHEAD`)."""
log = logging.getLogger("fedbandit.peer")


class Peer:
    """One peer of a federation without a coordinator (decentralised FedUCB), on this device.

    `member` is its number among `peers`, and `neighbours` those it talks to: number → "HOST:PORT". Messages travel one
    hop a round, `ttl` hops in all; a round takes `round_seconds`, and longer while neighbours are awaited, each for at
    most `patience` seconds. `observations` is how many each peer plans to make in its life: noise is calibrated for
    that, and a peer that has made more keeps learning by itself. `epsilon=math.inf` is no noise.

    Off loopback `keys` are required: the folder that `fedbandit keys peers` made for this peer. With `state`, a file,
    everything survives a crash; without it a peer that restarts is another peer, and is refused.
    """

    def __init__(
        self,
        member: int,
        *,
        peers: int,
        dim: int,
        listen: str,
        neighbours: Mapping[int, str],
        observations: int = 10_000,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        ttl: int = 1,
        reward_bound: float = 1.0,
        state: str | os.PathLike[str] | None = None,
        keys: str | os.PathLike[str] | None = None,
        round_seconds: float = 1.0,
        patience: float = 10.0,
        longest: float | None = None,
        out_of_range: OutOfRange = "refuse",
        seed: int = 0,
    ) -> None:
        self.addresses = {whole_number("a neighbour", j, 0): parse_address(where) for j, where in neighbours.items()}
        host, port = parse_address(listen)
        for place in (host, *(near for near, _ in self.addresses.values())):
            if keys is None and not is_loopback(place):
                raise FedbanditError(f"{place!r} is not loopback, so keys are required; see fedbandit keys peers.")
        self.round_seconds = number(round_seconds, "round_seconds", "a number of seconds ≥ 0", at_least=0.0)
        number(patience, "patience", "a number of seconds ≥ 0", at_least=0.0)
        terms = Terms(peers, dim, ttl, observations, epsilon, delta, reward_bound)
        _check_members(member, terms.peers, self.addresses)
        self.world, self.reward_bound = terms.world, terms.reward_bound
        self.features = Scaling(terms.dim, self.world.bound, longest=longest, out_of_range=out_of_range)
        certificates = None if keys is None else PeerKeys.read(keys)
        self._store = open_store(state)
        try:
            self.rounds = _rounds(self._store, member, terms, self.addresses, seed)
            self._listener = bind(host, port)
        except BaseException:
            self._store.close()
            raise
        self.peering = Peering(self.rounds, self.addresses, patience=patience, keys=certificates)
        self._fault: str | None = None
        self.facts: dict[str, float] = {}
        self._process, self._closed = os.getpid(), False
        self._thread: threading.Thread | None = None

    # Choosing and learning

    def select(self, arms: ArrayLike) -> Arm:
        """Choose one of the arms, given by their features as a (K, d) array."""
        self._check_open()
        choice = self.rounds.select(self.features.transform(arms))
        return Arm(choice.arm, id_of(choice.number))

    def observe(self, reward: float, choice: Arm | str) -> None:
        """Learn the reward of a choice, whenever it comes.

        It is on disk when this returns, unless the disk is full: then it is kept in memory, `problem` says so, and
        everything is written as soon as there is room again.
        """
        self._check_open()
        y = number(reward, "reward", "a finite number")
        require(abs(y) <= self.reward_bound, "reward", reward, f"within ±{self.reward_bound:g}, its reward_bound")
        with contextlib.suppress(StoreError):  # it is `rounds.problem` now
            self.rounds.observe(number_of(choice), y)

    def forget(self, choice: Arm | str) -> None:
        """The reward of this choice will never come."""
        self._check_open()
        self.rounds.forget(number_of(choice))

    # What is going on

    @property
    def problem(self) -> str | None:
        """A sentence if a person has to do something."""
        found = (self._fault, self.rounds.problem, *list(self.peering.problems.values()))
        return next((problem for problem in found if problem), None)

    @property
    def guarantee(self) -> Guarantee:
        """What privacy holds for what leaves this peer."""
        return self.rounds.machine.guarantee

    def status(self) -> dict[str, Any]:
        """Plain numbers: rounds, observed, how often statistics were told, what was heard of whom."""
        with self.rounds.lock:
            machine = self.rounds.machine
            heard: dict[int, int] = {}
            for (origin, _), tell in machine.node.told.items():
                heard[origin] = heard.get(origin, 0) + tell.sums.n
            return {
                "member": machine.member,
                "rounds": machine.rounds,
                "observed": machine.observed,
                "told": self.rounds.told,
                "heard": dict(sorted(heard.items())),
                "connected": sorted(self.peering.connected),
                "down": sorted(self.rounds.down),
                "out_of_range": self.features.changed,
                "problem": self.problem,
            }

    # Opening and closing

    def start(self) -> None:
        """Listen, and talk in the background."""
        self._check_open()
        if self._thread is None:
            self._thread = threading.Thread(target=self._talk, name="fedbandit-peer", daemon=True)
            self._thread.start()

    def run(self, act: Callable[[], None], rounds: int) -> None:
        """Instead of `start`, in this thread: act once a round, until so many are over and neighbours have them."""

        async def once() -> None:
            await self.peering.pause(self.round_seconds)
            act()

        asyncio.run(self.peering.run(once, self._listener, rounds))

    def close(self) -> None:
        """Stop talking and close the state; what neighbours have not taken is sent when it is opened again."""
        if self._closed or os.getpid() != self._process:
            return
        self._closed = True
        self.peering.close()
        if self._thread is not None:
            self._thread.join(10.0)
        self._listener.close()
        try:
            self.rounds.flush()  # choices whose reward has not come
        finally:
            self._store.close()

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _talk(self) -> None:
        async def wait() -> None:
            await self.peering.pause(self.round_seconds)

        try:
            asyncio.run(self.peering.run(wait, self._listener))
        except Exception as error:
            self._fault = f"The peer has a fault: {error}."
            log.exception("the peer has a fault")

    def _check_open(self) -> None:
        if os.getpid() != self._process:
            raise FedbanditError("This peer was opened before a fork, in another process: open it after forking.")
        if self._closed:
            raise FedbanditError("The peer has been closed.")


def _check_members(member: int, peers: int, neighbours: Mapping[int, Any]) -> None:
    require(0 <= whole_number("member", member, 0) < peers, "member", member, f"a number from 0 to {peers - 1}")
    require(bool(neighbours), "neighbours", dict(neighbours), "at least one peer to talk to")
    for j in neighbours:
        require(0 <= j < peers and j != member, "a neighbour", j, f"another number from 0 to {peers - 1}")


def _rounds(store: Store, member: int, terms: Terms, neighbours: Mapping[int, Any], seed: int) -> PeerRounds:
    """The peer, going on from its store."""
    source = None
    if terms.system.guarantee.private:
        from fedbandit.privacy.secure import SecureSource

        source = SecureSource()
    near = tuple(sorted(neighbours))
    machine = PeerMachine(member, terms.system, terms.world, seed, neighbours=near, source=source)
    machine.most_rounds = MOST_ROUNDS  # rounds pass by the clock
    return PeerRounds(store, machine, terms, lambda: secrets.randbits(63))
