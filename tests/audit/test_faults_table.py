"""docs/privacy-faults.md lists every fault that is planted, and what finds it; and every fault that was asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.audit import test_planted, test_planted_network, test_planted_noise, test_planted_totals

PAGE = Path(__file__).parents[2] / "docs" / "privacy-faults.md"
NAMED = (
    "κ forgotten", "√2 forgotten", "L not enforced", "B not enforced", "noise at 0.85", "noise at 0.85 from d = 9 on",
    "secure noise at 0.85", "δ wrong by 100", "sensitivity for half of the releases", "same noise for all clients",
    "raw determinant in uploads", "raw determinant in a peer's answers", "not restored after a crash",
    "sent before it is stored", "the ledger forgets", "√k noise", "choices by exact data", "silence while rewards",
    "half of the noise at a trusted coordinator", "the coordinator's seed", "masks and keys used again",
    "both shares of one client answered", "two sums over one epoch",
)  # fmt: skip
"""The faults that any audit of these mechanisms has to find, whatever else it finds."""


def planted() -> dict[str, str]:
    """Every planted fault, and the check that its test demands to fail."""
    faults = {name: fault.check for name, fault in test_planted.FAULTS.items()}
    faults |= {name: check for name, (_, check) in test_planted.SUMS.items()}
    for module in (test_planted_totals, test_planted_noise):
        faults |= {name: fault.check for name, fault in module.FAULTS.items()}
    return faults | {name: check for name, (check, *_) in test_planted_network.FAULTS.items()}


def test_the_table_is_what_is_planted() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert dict(rows[1:]) == planted(), "\n".join(f"| {name} | {check} |" for name, check in planted().items())
    assert len(rows) - 1 == len(planted()) >= 30


@pytest.mark.parametrize("fault", NAMED)
def test_what_must_be_planted_is(fault: str) -> None:
    assert any(fault in name for name in planted())
