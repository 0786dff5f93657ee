"""A thread that does something now and then, and goes on after errors: what it fails at is logged, and known."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from fedbandit.errors import FedbanditError

log = logging.getLogger("fedbandit.gateway")


class Watch:
    """Does `work` every so many seconds, until it is ended."""

    def __init__(self, work: Callable[[], None], every: float) -> None:
        self._work, self._every = work, every
        self._failing = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fedbandit-gateway", daemon=True)
        self._thread.start()

    @property
    def trouble(self) -> str:
        """Why the work failed the last time, empty if it did not."""
        return self._failing or ("" if self._thread.is_alive() else "the thread that looks for deadlines has ended")

    def end(self) -> None:
        """Do it no more, and wait for what is under way."""
        self._ended.set()
        self._thread.join(10.0)

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            before = self._failing
            try:
                self._work()
                self._failing = ""
            except FedbanditError as error:
                self._failing = str(error)
            except Exception as error:
                self._failing = f"{type(error).__name__}: {error}"
                if self._failing != before:
                    log.exception("looking for deadlines has a fault")
            if self._failing and self._failing != before:  # once, not every second
                log.warning("looking for deadlines fails", extra={"reason": self._failing})
            elif before and not self._failing:
                log.info("looking for deadlines works again")
