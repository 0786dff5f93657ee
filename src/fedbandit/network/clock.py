"""The time of day that a coordinator, a relay, a gateway or a client goes by."""

from __future__ import annotations

import logging
import threading
import time

SMALL_STEP = 1.0
"""Seconds by which the system's clock may be put forward and is followed at once."""
LASTING_SECONDS = 300.0
"""For how long a larger step has to last before it is believed."""
log = logging.getLogger("fedbandit.clock")


def _elapsed() -> float:
    """Seconds by a clock that nobody sets; where there is one that goes on while the machine is suspended, by that."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


class Clock:
    """The time of day: never back while the program runs, and forward with the system's clock if it means it.

    One that has started with a clock that was behind is put right later, or uploads of today would be of the future for
    ever. But a step of an instant, by a server of time that lies, say, must not stay: rounds that are far from having
    begun would be taken, which forgets everybody's statistics (`Federation._check_clock`). So a step is followed once
    it has lasted. A clock that is put back is not followed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._offset = time.time() - _elapsed()
        self._step = 0.0
        """How far the system's clock was ahead of this one, or behind, when that was last new."""
        self._since = 0.0

    def now(self) -> float:
        """Seconds since 1970."""
        with self._lock:
            elapsed = _elapsed()
            step = time.time() - elapsed - self._offset
            if abs(step - self._step) > SMALL_STEP:  # not the same step as before: it has to last anew
                self._step, self._since = step, elapsed
                if abs(step) > SMALL_STEP:
                    log.warning("the system's clock was set", extra={"reason": f"it is {step:+.0f} s from before"})
            if 0 < step <= SMALL_STEP:
                self._offset += step
                self._step = 0.0
            elif step > 0 and elapsed - self._since >= LASTING_SECONDS:
                self._offset += step
                self._step = 0.0
                log.warning("the system's clock is followed", extra={"reason": f"it has been {step:+.0f} s ahead"})
            return self._offset + elapsed


_CLOCK = Clock()


def now() -> float:
    """The time of day of this process."""
    return _CLOCK.now()
