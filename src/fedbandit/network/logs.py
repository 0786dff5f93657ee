"""Structured logs on standard error: one JSON object a line."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

_OWN = ("federation", "federations", "client", "peer", "kind", "address", "path", "reason", "by", "count", "bytes",
        "version", "digest")  # fmt: skip


class JsonLines(logging.Formatter):
    """One JSON object a line; nothing of a client but its name and the kind of its refusal."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {"at": round(record.created, 3), "level": record.levelname.lower(),
                                "event": record.getMessage()}  # fmt: skip
        line.update({key: getattr(record, key) for key in _OWN if hasattr(record, key)})
        if record.exc_info:
            line["fault"] = self.formatException(record.exc_info)
        return json.dumps(line)


_DENIED = "ASGI callable returned without completing handshake."
"""What uvicorn says of every WebSocket that was answered with a status, such as 401, as if nothing had been sent."""


class OnceInAWhile(logging.Filter):
    """Lets the same line of a library pass once in ten seconds: a failing accept may be logged a thousand times.

    Who was not let in is logged by the coordinator itself; uvicorn's error about it, which is none, never passes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is said."""
        what = str(record.msg)[:100]
        if what == _DENIED or record.created - self._said.get(what, 0.0) < 10.0:
            return False
        self._said[what] = record.created
        return True


def log_to_stderr() -> None:
    """Structured logs on standard error, those of libraries too."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.getLogger("fedbandit").setLevel(logging.INFO)
    for name in ("fedbandit", "uvicorn", "asyncio", "websockets"):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.propagate = False
        if name != "fedbandit":
            logger.addFilter(OnceInAWhile())
    for name in ("uvicorn.error", "uvicorn.asgi"):
        logging.getLogger(name).addFilter(OnceInAWhile())
