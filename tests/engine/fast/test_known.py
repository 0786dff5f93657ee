"""Codes of the fast engine: each stands for one part, and none for what has no kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedbandit.engine.fast.choose import choose_other
from fedbandit.engine.fast.known import CODES, KNOWN, Code
from fedbandit.engine.fast.rules import TriggerKind, kind_of
from fedbandit.protocols import Growth, Never, Silence


def test_every_code_is_of_one_policy() -> None:
    assert sorted(CODES.values()) == sorted(Code)
    assert KNOWN["policy"] == set(CODES)


def test_a_policy_without_a_kernel_is_not_taken_for_another() -> None:
    choose: Any = getattr(choose_other, "py_func", choose_other)
    plan = type("Plan", (), {"code": 99})
    with pytest.raises(NotImplementedError, match="a policy without a kernel"):
        choose(plan, np.zeros(9), 0, 0, np.eye(2), np.arange(2), None)


def test_a_trigger_without_a_kernel_is_not_taken_for_silence() -> None:
    class Mine(Growth):
        """Fires otherwise."""

    assert kind_of(Silence()) == kind_of(Never().trigger()) == TriggerKind.NEVER
    with pytest.raises(KeyError):
        kind_of(Mine(np.ones(1)))
