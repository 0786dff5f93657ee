"""Every part and preset that can be found passes the public checks; one that cannot be built fails."""

from __future__ import annotations

from typing import Any

import pytest

from fedbandit.checks import CLIENTS, run
from fedbandit.policies import POLICIES
from fedbandit.presets import PRESETS
from fedbandit.privacy import PRIVACIES
from fedbandit.protocols import PROTOCOLS
from fedbandit.structures import STRUCTURES

EXAMPLES: dict[str, dict[str, Any]] = {
    "fixed-groups": {"labels": [i % 2 for i in range(CLIENTS)]},
    "noisy-rewards": {"epsilon": 2.0},
}
"""Keywords of parts that have no default for everything. A part that needs some and has none here fails."""

PARTS = {name: kind for kinds in (POLICIES, PROTOCOLS, STRUCTURES, PRIVACIES) for name, kind in kinds.items()}
THINGS = {name: make for name, make in {**PRESETS, **PARTS}.items() if name != "dislinucb"}  # another name


def build(name: str) -> Any:
    """The part or preset of this name."""
    return THINGS[name](**EXAMPLES.get(name, {}))


@pytest.mark.parametrize("name", sorted(THINGS))
def test_it_does_what_all_must(name: str) -> None:
    run(build(name))


def test_all_kinds_of_parts_were_found() -> None:
    assert {"ucb", "lints", "linphe", "greedy", "uniform", "squared"} <= set(POLICIES)
    assert {"event-triggered", "count-triggered", "synchronous", "never", "gossip", "scheduled"} <= set(PROTOCOLS)
    assert {"everyone", "central", "fixed-groups", "evidence-clusters", "phased-clusters"} <= set(STRUCTURES)
    assert {"no-privacy", "private-statistics", "noisy-rewards"} <= set(PRIVACIES)
