"""Numbers as people write them on a command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import suppress


def whole_number(text: str) -> int:
    """A number such as 30000, 30_000 or 3e4."""
    try:
        return int(text)
    except ValueError:
        with suppress(ValueError, OverflowError):  # not a number, or inf
            if float(text) == int(float(text)):
                return int(float(text))
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")


def seeds(text: str) -> Sequence[int]:
    """How many seeds, or which."""
    if "," in text:
        chosen = [whole_number(part) for part in text.split(",") if part]
    else:
        chosen = list(range(whole_number(text)))
    if not chosen or len(set(chosen)) < len(chosen):
        raise argparse.ArgumentTypeError(f"{text!r} does not name at least one seed, each once")
    return chosen
