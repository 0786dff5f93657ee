"""What a client and a local server have in common: a state on disk, and a thread that talks to the coordinator."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from fedbandit.errors import FedbanditError
from fedbandit.network.client.node import DurableNode
from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import Store, StoreError

if TYPE_CHECKING:
    from fedbandit.network.client.address import Address

log = logging.getLogger("fedbandit.client")


class Member:
    """A durable node, and its connection in the background; without an address there is none.

    Methods may be called from any thread. It belongs to the process that opened it: after a fork, and after `close`, it
    refuses to choose and to learn.
    """

    called: ClassVar[str] = "client"

    def __init__(self, store: Store, node: DurableNode[Any], address: Address | None) -> None:
        from fedbandit.network.client.connection import Connection  # here: asyncio and TLS take long to import

        self._store, self._node = store, node
        self._one_at_a_time = threading.RLock()  # for whatever touches the disk; select does not
        self._connection = Connection(node, self._locked, address)
        self._thread = threading.Thread(target=self._talk, name="fedbandit-client", daemon=True)
        self._closed, self._process = False, os.getpid()
        self._unkept: str | None = None
        """Why something was last kept in memory alone."""

    def start(self) -> None:
        """Begin to talk."""
        self._thread.start()

    def wake(self) -> None:
        """There is something to send."""
        self._connection.settled.clear()
        self._connection.wake()

    @property
    def agreement(self) -> Agreement:
        """What all members of the federation have agreed on."""
        return self._node.agreement

    @property
    def problem(self) -> str | None:
        """A sentence if a person has to do something, None if all is well (being offline is well)."""
        return self._connection.problem or self._node.trouble

    @property
    def connected(self) -> bool:
        """Whether the coordinator can be reached now."""
        return self._connection.connected

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until everything that was to be sent has been acknowledged; False if it takes too long.

        Until this process has joined once it is not known what is to be sent: a coordinator that was restored from a
        backup may ask for all of it again. So offline since the start this is False too, and where the disk is full.
        """
        self._check_open()
        with self._locked():
            try:
                self._node.flush()
            except StoreError as error:
                self._trouble(error)
                return False
            waits = bool(self._node.machine.outbox) or not self._connection.joined
        if waits:
            self._connection.settled.clear()
        self._connection.wake()
        return not waits or self._connection.settled.wait(timeout)

    def write(self) -> None:
        """Write what waits in memory since the disk was full; StoreError if it still is."""
        self._check_open()
        with self._locked():
            self._node.flush()
            if self._unkept == self._connection.problem:
                self._unkept = self._connection.problem = None

    def close(self) -> None:
        """Stop talking and close the state; what was not sent is sent when the state is opened again."""
        if self._closed or os.getpid() != self._process:
            return
        self._closed = True
        self._connection.close()
        self._thread.join(10.0)
        try:
            with self._locked():
                self._node.flush()
        finally:
            self._store.close()

    def __enter__(self) -> Self:
        """The member itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _check_open(self) -> None:
        if os.getpid() != self._process:
            raise FedbanditError(
                f"This {self.called} was opened before a fork, in another process: open one in each process, with a "
                "state of its own."
            )
        if self._closed:
            raise FedbanditError(f"The {self.called} has been closed.")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with self._one_at_a_time:
            yield

    def _talk(self) -> None:
        import asyncio

        try:
            asyncio.run(self._connection.run())
        except Exception as error:
            self._connection.problem = f"The connection has a fault: {error}."
            log.exception("the connection has a fault")

    def _trouble(self, error: StoreError) -> None:
        if self._connection.problem != str(error):
            log.warning("%s What was observed is kept in memory.", error)
        self._unkept = self._connection.problem = str(error)
