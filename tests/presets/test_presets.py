"""Presets: found by name, named after their functions, and strict about keywords."""

from __future__ import annotations

import pytest

import fedbandit as fb
from fedbandit.errors import FedbanditError
from fedbandit.presets import PRESETS
from fedbandit.presets.compose import keywords_of


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_is_exported_and_its_system_has_its_name(name: str) -> None:
    assert getattr(fb, name) is PRESETS[name]
    assert PRESETS[name]().name == ("sync_linucb" if name == "dislinucb" else name)


@pytest.mark.parametrize("name", sorted(name for name in PRESETS if keywords_of(PRESETS[name])))
def test_a_keyword_that_does_not_exist_is_refused_with_the_nearest(name: str) -> None:
    nearest = next(iter(keywords_of(PRESETS[name])))
    with pytest.raises(FedbanditError, match=f"There is no keyword of .*; did you mean '{nearest}'"):
        PRESETS[name](**{f"{nearest}z": 1})


def test_a_composed_system_is_the_parts_that_it_names() -> None:
    system = fb.composed(policy="lints(alpha=0.1)", protocol="count-triggered(batch=4)", structure="everyone")
    assert (type(system.policy).__name__, type(system.structure).__name__) == ("LinTS", "Everyone")
    assert system.protocol == fb.protocols.CountTriggered(batch=4)
