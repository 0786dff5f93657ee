"""The corpus passes, and fails when any byte of what it expects is changed."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbandit.errors import FedbanditError
from tests.vectors.client import CANNOT
from tests.vectors.run import cases, read, run, skipped

FILES = cases()
LIVES = [path for path in FILES if read(path)["kind"] == "life"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_python_client_passes(path: Path) -> None:
    assert skipped(read(path)) is None, "the Python client skips nothing"
    run(read(path))


def test_nothing_is_skipped_without_a_reason() -> None:
    needed = {need for path in FILES for need in read(path)["needs"]}
    assert all(CANNOT.values())
    assert CANNOT.keys() <= needed


def test_the_corpus_has_what_it_should() -> None:
    """Whole lives with every kind of message in both directions, restarts, refusals, late and lost rewards."""
    events = [event for path in LIVES for event in read(path)["events"]]
    assert {event["do"] for event in events} == {
        "open", "connect", "disconnect", "select", "observe", "forget", "flush", "receive", "refusal", "check",
    }  # fmt: skip
    sent = {bytes.fromhex(frame)[64 + 3] for event in events for frame in event.get("sends", ())}
    taken = {
        bytes.fromhex(event["message"])[3] for event in events if event["do"] == "receive" and len(event["message"]) > 8
    }
    assert sent == {1, 2, 5, 21, 34, 53}
    assert taken >= {3, 4, 6, 9, 20, 36}
    needed = {need for path in LIVES for need in read(path)["needs"]}
    assert needed >= {
        "ridge",
        "two-part",
        "per-action",
        "growth",
        "timed-growth",
        "count-growth",
        "upload",
        "request",
        "exploring",
    }
    assert needed >= {"ucb", "greedy", "lints", "linphe", "igw", "uniform"}
    assert sum(bool(event.get("refused")) for event in events) > 15


def changed_frames(case: dict[str, Any]) -> list[tuple[int, int]]:
    return [(k, j) for k, event in enumerate(case["events"]) for j in range(len(event.get("sends", ())))]


@pytest.mark.parametrize("path", LIVES, ids=lambda path: path.stem)
def test_sabotage(path: Path) -> None:
    """Single bytes of expected frames, arms, numbers and refusals are changed: each is found."""
    case, rng = read(path), np.random.default_rng(0)
    broken: list[dict[str, Any]] = []
    frames = changed_frames(case)
    for k, j in [frames[i] for i in rng.integers(len(frames), size=5)] if frames else []:
        wrong = copy.deepcopy(case)
        data = bytearray.fromhex(wrong["events"][k]["sends"][j])
        data[rng.integers(len(data)) if case["exact"] else rng.integers(4, 32)] ^= 1 << int(rng.integers(8))
        wrong["events"][k]["sends"][j] = data.hex()
        broken.append(wrong)
    choices = [k for k, event in enumerate(case["events"]) if "arm" in event]
    checks = [k for k, event in enumerate(case["events"]) if event["do"] == "check"]
    for k in [choices[i] for i in rng.integers(len(choices), size=2)]:
        wrong = copy.deepcopy(case)
        wrong["events"][k]["arm"] = (wrong["events"][k]["arm"] + 1) % 4
        broken.append(wrong)
    for name in ("observed", "pending", "uploads", "version"):
        wrong = copy.deepcopy(case)
        wrong["events"][checks[-1]][name] += 1
        broken.append(wrong)
    wrong = copy.deepcopy(case)
    wrong["events"][checks[-1]]["theta"][0] += 1e-6
    broken.append(wrong)
    for name, changed in (("propensity", 0.123), ("owner", "https://nobody")):
        for k in [k for k, event in enumerate(case["events"]) if name in event][-1:]:
            wrong = copy.deepcopy(case)
            wrong["events"][k][name] = changed
            broken.append(wrong)
    if any(event.get("refused") for event in case["events"]):
        wrong = copy.deepcopy(case)
        next(event for event in wrong["events"] if event.get("refused"))["refused"] = False
        broken.append(wrong)
    wrong = copy.deepcopy(case)
    wrong["invitation"]["client"]["model"]["ridge"] *= 1.5
    broken.append(wrong)
    for wrong in broken:
        with pytest.raises((AssertionError, FedbanditError)):
            run(wrong)


def changed_digits(text: str) -> Iterator[str]:
    """The text with one hexadecimal digit changed, for each of them."""
    for k, digit in enumerate(text):
        yield text[:k] + f"{int(digit, 16) ^ 1:x}" + text[k + 1 :]


@pytest.mark.parametrize(
    ("name", "rows", "cells"),
    [(name, "messages", ["hex"]) for name in ("messages", "blocks", "dated", "relays", "servers")]
    + [("chain", "uploads", ["upload", "chain"])],
)
def test_sabotage_of_bytes(name: str, rows: str, cells: list[str]) -> None:
    """Every digit of every message, upload and chain."""
    case = next(read(path) for path in FILES if path.stem == name)
    for row in case[rows]:
        for cell in cells:
            right = row[cell]
            for wrong in changed_digits(right):
                row[cell] = wrong
                with pytest.raises((AssertionError, FedbanditError)):
                    run(case)
            row[cell] = right


def test_sabotage_of_draws() -> None:
    case = next(read(path) for path in FILES if path.stem == "draws")
    for entry in case["draws"]:
        for call in entry["calls"]:
            right = call["is"]
            call["is"] = [value + 1e-9 for value in right] if isinstance(right, list) else right + 1e-9
            with pytest.raises(AssertionError):
                run(case)
            call["is"] = right
