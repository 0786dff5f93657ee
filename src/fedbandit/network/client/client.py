"""The client that a service embeds: it chooses at once, keeps everything on disk, and talks in the background.

```python
with fb.Client("https://host:8765", federation="shops", token=token, state="client.db") as client:
    arm = client.select(arms)          # an index of `arms`; never waits for the network
    client.observe(reward)             # or later, or elsewhere: client.observe(reward, arm.id)
```
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fedbandit.errors import FedbanditError, require
from fedbandit.network.client.connection import Address, Connection
from fedbandit.network.client.durable import DurableClient, stored_agreement
from fedbandit.network.stores import StoreError, open_store
from fedbandit.privacy.guarantee import Guarantee
from fedbandit.privacy.noise import Source
from fedbandit.system import System
from fedbandit.types import Array

log = logging.getLogger("fedbandit.client")


class Arm(int):
    """The index of the arm that was chosen; its `id` names the choice when the reward comes."""

    id: int

    def __new__(cls, index: int, id: int) -> Arm:
        """An index with an id."""
        arm = super().__new__(cls, index)
        arm.id = id
        return arm


class Client:
    """A member of a federation, on this device.

    `select` and `observe` work whether or not the coordinator can be reached; only the very first start needs it, to
    learn the agreement. With `state`, a file, everything survives a crash; without it, everything is in memory.

    `intercept` adds a constant feature: pass one feature fewer than the federation's dimension. `longest` is the norm
    of the longest feature vector there can be; features are scaled by a constant so that it gets the declared norm L.
    `report=True` tells the coordinator's live page how many rewards were seen and their sum; in a private federation it
    is refused. There, noise is drawn by OpenDP (extra `fedbandit[secure]`) from the system's randomness.
    """

    def __init__(
        self,
        url: str,
        *,
        federation: str,
        token: str | None = None,
        state: str | os.PathLike[str] | None = None,
        name: str | None = None,
        ca: str | None = None,
        intercept: bool = False,
        longest: float | None = None,
        report: bool = False,
        timeout: float = 10.0,
    ) -> None:
        if token is None and name is None:
            name = _lasting_name(state)
        self._address = Address(url, federation, token, name, ca)
        self._store = open_store(state)
        try:
            self.agreement, member = stored_agreement(self._store) or self._address.invitation(timeout)
            source = _source(self.agreement.build(), report, lasts=state is not None)
            self._durable = DurableClient(self._store, self.agreement, member, lambda: secrets.randbits(63), source)
        except BaseException:
            self._store.close()
            raise
        world = self.agreement.world
        self._features = _Features(world.dim, world.bound, intercept, longest)
        self._one_at_a_time = threading.RLock()  # for whatever touches the disk; select does not
        self._last: int | None = None
        self.reward = 0.0
        self.facts: dict[str, float] = {}
        """For demonstrations, where the best arm is known: `regret` and `alone` are reported too."""
        self._connection = Connection(self._durable, self._locked, self._address)
        if report:
            self._connection.report = self._report
        self._thread = threading.Thread(target=self._talk, name="fedbandit-client", daemon=True)
        self._closed = False
        self._thread.start()

    # Choosing and learning

    def select(self, arms: ArrayLike) -> Arm:
        """Choose one of the arms, given by their features as a (K, d) array, K as you like."""
        X = self._features.transform(arms)
        choice = self._durable.select(X)
        self._last = choice.number
        return Arm(choice.arm, choice.number)

    def observe(self, reward: float, id: int | None = None) -> None:
        """Learn the reward of a choice: the last one, or the one with this id, whenever it comes.

        It is on disk when this returns, unless the disk is full: then it is kept in memory, `problem` says so, and
        everything is written as soon as there is room again.
        """
        choice = self._last if id is None else int(getattr(id, "id", id))
        if choice is None:
            raise FedbanditError("There is no choice to observe the reward of: call select first.")
        with self._locked():
            before = self._durable.machine.sequence
            try:
                self._durable.observe(choice, float(reward))
            except StoreError as error:
                self._trouble(error)
            self.reward += float(reward)
            to_send = self._durable.machine.sequence > before or self._durable.asking is not None
        if to_send:
            self._connection.settled.clear()
            self._connection.wake()

    def forget(self, id: int) -> None:
        """The reward of this choice will never come."""
        self._durable.forget(int(getattr(id, "id", id)))

    def learn(self, contexts: ArrayLike, rewards: ArrayLike) -> None:
        """A warm start from past logs: features (n, d) of what was chosen, and rewards (n,). Do it once."""
        X, y = self._features.transform(contexts), np.asarray(rewards, dtype=np.float64)
        with self._locked():
            self._durable.learn(X, y)
        self._connection.settled.clear()
        self._connection.wake()

    # What is going on

    @property
    def problem(self) -> str | None:
        """A sentence if a person has to do something, None if all is well (being offline is well)."""
        return self._connection.problem

    @property
    def guarantee(self) -> Guarantee:
        """What privacy holds for what leaves this client, and how its noise is drawn."""
        return self._durable.machine.guarantee

    @property
    def connected(self) -> bool:
        """Whether the coordinator can be reached now."""
        return self._connection.connected

    def status(self) -> dict[str, Any]:
        """Plain numbers: observed, pending, in the outbox, uploads made."""
        with self._durable.lock:
            machine = self._durable.machine
            return {
                "member": machine.member,
                "observed": machine.observed,
                "pending": machine.pending,
                "outbox": sum(upload.sums.n for upload in machine.outbox.values()),
                "uploads": machine.sequence,
                "connected": self.connected,
                "problem": self.problem,
            }

    @property
    def theta(self) -> Array:
        """The estimate θ̂ now; of a model in two parts, the shared part's."""
        with self._durable.lock:
            return self._durable.machine.model.theta.copy()

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until everything that was to be sent has been acknowledged; False if it takes too long."""
        with self._locked():
            self._durable.flush()
            waits = bool(self._durable.machine.outbox)
        if waits:
            self._connection.settled.clear()
        self._connection.wake()
        return not waits or self._connection.settled.wait(timeout)

    def close(self) -> None:
        """Stop talking and close the state; what was not sent is sent when the state is opened again."""
        if self._closed:
            return
        self._closed = True
        self._connection.close()
        self._thread.join(10.0)
        try:
            with self._locked():
                self._durable.flush()
        finally:
            self._store.close()

    def __enter__(self) -> Self:
        """The client itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    # How

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with self._one_at_a_time:
            yield

    def _talk(self) -> None:
        try:
            asyncio.run(self._connection.run())
        except Exception as error:
            self._connection.problem = f"The connection has a fault: {error}."
            log.exception("the connection has a fault")

    def _report(self) -> dict[str, float]:
        return {"observed": float(self._durable.machine.observed), "reward": self.reward, **self.facts}

    def _trouble(self, error: StoreError) -> None:
        if self._connection.problem != str(error):
            log.warning("%s What was observed is kept in memory.", error)
        self._connection.problem = str(error)


class AsyncClient:
    """The same client in an asyncio program: `select` is immediate, whatever may touch a disk is awaited.

    ```python
    async with fb.AsyncClient(url, federation="shops", token=token, state="client.db") as client:
        arm = client.select(arms)
        await client.observe(reward, arm.id)
    ```
    """

    def __init__(self, url: str, **options: Any) -> None:
        self._arguments = url, options
        self.client: Client | None = None

    async def __aenter__(self) -> Self:
        """Open the state, and at the very first start ask for the agreement."""
        url, options = self._arguments
        self.client = await asyncio.to_thread(Client, url, **options)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await asyncio.to_thread(self._open.close)

    @property
    def _open(self) -> Client:
        if self.client is None:
            raise FedbanditError("The client is not open: use async with.")
        return self.client

    def select(self, arms: ArrayLike) -> Arm:
        """Choose one of the arms."""
        return self._open.select(arms)

    async def observe(self, reward: float, id: int | None = None) -> None:
        """Learn the reward of a choice."""
        await asyncio.to_thread(self._open.observe, reward, id)

    async def learn(self, contexts: ArrayLike, rewards: ArrayLike) -> None:
        """A warm start from past logs."""
        await asyncio.to_thread(self._open.learn, contexts, rewards)

    async def flush(self, timeout: float = 10.0) -> bool:
        """Wait until everything has been acknowledged."""
        return await asyncio.to_thread(self._open.flush, timeout)

    def status(self) -> dict[str, Any]:
        """Plain numbers."""
        return self._open.status()


class _Features:
    """From a service's features to contexts with ‖x‖ ≤ L: x = c·(features, longest), scaled by a constant c."""

    def __init__(self, dim: int, bound: float, intercept: bool, longest: float | None) -> None:
        self.given = dim - intercept
        require(self.given >= 1, "the number of features", self.given, "at least 1 beside the intercept")
        require(longest is None or longest > 0, "longest", longest, "a number > 0")
        self.intercept = intercept
        self.longest = bound if longest is None else float(longest)
        if longest is None and intercept:
            self.longest = bound / 2**0.5
        self.scale = bound / (self.longest * (2**0.5 if intercept else 1.0))

    def transform(self, features: ArrayLike) -> Array:
        """The contexts of (K, d) features."""
        F = np.asarray(features, dtype=np.float64)
        require(
            F.ndim == 2 and len(F) > 0 and F.shape[1] == self.given, "the shape of arms", F.shape, f"(K, {self.given})"
        )
        if self.intercept:
            F = np.column_stack([F, np.full(len(F), self.longest)])
        return F if self.scale == 1.0 else F * self.scale


def _source(system: System, report: bool, *, lasts: bool) -> Source | None:
    """Where the noise of a client comes from, if it draws any."""
    if system.privacy.site != "client":
        return None
    if report:
        raise FedbanditError("report=True would tell rewards that this federation keeps private.")
    if not lasts and system.privacy.contribution is not None:
        raise FedbanditError("This federation protects whole clients, so the ledger must last: give state=FILE.")
    from fedbandit.privacy.secure import SecureSource

    return SecureSource()


def _lasting_name(state: str | os.PathLike[str] | None) -> str:
    """A name for a client that was given none, the same whenever the same state is opened."""
    if state is None:
        return f"client-{secrets.token_hex(4)}"
    path = Path(os.fspath(state) + ".name")
    try:
        if not path.exists():
            path.write_text(json.dumps(f"client-{secrets.token_hex(4)}"))
        return str(json.loads(path.read_text()))
    except (OSError, ValueError) as error:
        raise FedbanditError(f"{str(path)!r} cannot be used: {error}.") from None
