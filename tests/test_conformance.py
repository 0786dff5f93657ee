"""Every part and preset that can be found passes the public checks; nothing has to be listed here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

import pytest

from fedbandit import policies, privacy, protocols, structures
from fedbandit.checks import CLIENTS, checks_for
from fedbandit.presets import PRESETS

# Parts without a sensible default need an example of themselves.
EXAMPLES: dict[str, dict[str, Any]] = {"FixedGroups": {"labels": [i % 2 for i in range(CLIENTS)]}}


def parts() -> Iterator[Any]:
    """One instance of every part that the four packages export."""
    kinds = (policies.Policy, protocols.MessageProtocol, structures.Structure, privacy.Privacy)
    for package in (policies, protocols, structures, privacy):
        for name in package.__all__:
            kind = getattr(package, name)
            if is_dataclass(kind) and isinstance(kind, type):
                try:
                    part = kind(**EXAMPLES.get(name, {}))
                except TypeError:
                    continue  # a helper with required fields, not a part
                if isinstance(part, kinds):
                    yield part


CASES = [
    pytest.param(check, id=f"{label}-{name}")
    for label, thing in [
        *((name, make()) for name, make in sorted(PRESETS.items())),
        *((type(part).__name__, part) for part in parts()),
    ]
    for name, check in checks_for(thing)
]


@pytest.mark.parametrize("check", CASES)
def test_conformance(check: Any) -> None:
    check()


def test_all_kinds_of_parts_were_found() -> None:
    found = {type(part).__name__ for part in parts()}
    assert {"UCB", "LinTS", "LinPHE", "Greedy", "Uniform"} <= found
    assert {"EventTriggered", "CountTriggered", "Synchronous", "Never"} <= found
    assert {"Everyone", "Central", "FixedGroups", "NoPrivacy"} <= found
