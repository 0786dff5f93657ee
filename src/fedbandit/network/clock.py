"""The time of day that a coordinator, a relay, a gateway or a client goes by."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Mapping

SMALL_STEP = 1.0
"""Seconds by which the system's clock may be put forward and is followed at once."""
LASTING_SECONDS = 300.0
"""For how long a larger step has to last before it is believed."""
TIME = "x-fedbandit-time"
"""The header in which a coordinator says what time it is, in seconds since 1970: of invitations and of streams."""
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
            return self._now(_elapsed())

    def _now(self, elapsed: float) -> float:
        step = time.time() - elapsed - self._offset
        if abs(step - self._step) > SMALL_STEP:  # not the same step as before: it has to last anew
            self._step, self._since = step, elapsed
            if abs(step) > SMALL_STEP:
                log.warning("the system's clock was set", extra={"reason": f"it is {step:+.0f} s from before"})
        if 0 < step <= SMALL_STEP:
            self._follow(step)
        elif step > 0 and elapsed - self._since >= LASTING_SECONDS:
            self._follow(step)
            log.warning("the system's clock is followed", extra={"reason": f"it has been {step:+.0f} s ahead"})
        return self._offset + elapsed

    def _follow(self, step: float) -> None:
        self._offset += step
        self._step = 0.0


class ClientClock(Clock):
    """The time of day of a client: by its own clock, but never ahead of its coordinator's by more than `lead` seconds.

    A round that has not begun at the coordinator is one whose uploads it refuses. What it said goes on with the time
    that elapses, so that whoever is out of touch is not held up. A step that the coordinator confirms need not last.
    """

    def __init__(self, lead: float) -> None:
        super().__init__()
        self._lead = lead
        self._heard = math.inf
        """What the coordinator has said, as an offset."""

    def go_on_from(self, seconds: float) -> None:
        """The program ended at this time: how far the system's clock is ahead of that by now is a step of it."""
        with self._lock:
            elapsed = _elapsed()
            step = self._offset + elapsed - seconds
            if step > self._lead:
                self._offset, self._step, self._since = seconds - elapsed, step, elapsed

    def hear(self, seconds: float) -> bool:
        """The coordinator says that it is this time. Whether the system's clock agrees that it is not later."""
        with self._lock:
            elapsed, system = _elapsed(), time.time()
            self._heard = seconds - elapsed
            agrees = system <= seconds + self._lead
            if agrees and system > self._offset + elapsed:
                self._follow(system - elapsed - self._offset)
            return agrees

    def now(self) -> float:
        """Seconds since 1970."""
        with self._lock:
            elapsed = _elapsed()
            return min(self._now(elapsed), self._heard + elapsed + self._lead)

    @property
    def held_up(self) -> bool:
        """Whether the client would be ahead by its own clock; it may be the coordinator's that is wrong."""
        with self._lock:
            return self._now(_elapsed()) > self._heard + _elapsed() + self._lead


def said_in(headers: Mapping[str, str]) -> float | None:
    """The time that a coordinator says it is; None of one that says none, as older ones do."""
    try:
        seconds = float(headers.get(TIME, ""))
    except ValueError:
        return None
    return seconds if 0.0 <= seconds < 2.0**40 else None


_CLOCK = Clock()


def now() -> float:
    """The time of day of this process."""
    return _CLOCK.now()


def as_header() -> str:
    """The same, as a coordinator says it."""
    return f"{now():.3f}"
