"""γ solved for what is wanted (Async-LinUCB, App. E): the bound at that γ is what was asked for."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedbandit as fb
from fedbandit.errors import FedbanditError
from fedbandit.protocols.gammas import gamma_for_messages, gamma_for_regret


@given(st.integers(3, 5000), st.floats(0.0, 1.0))
def test_the_bound_at_gamma_is_what_was_asked_for(n_clients: int, part: float) -> None:
    factor = 1 + part * (0.99 * math.sqrt(n_clients) - 1)
    gamma = gamma_for_regret(factor, n_clients)
    assert gamma >= 1 - 1e-12
    assert math.sqrt(gamma * (1 + (n_clients - 1) * (gamma - 1))) == pytest.approx(factor)
    messages = 1000 * (1 + part)
    gamma = gamma_for_messages(messages, n_clients, 5, 10_000)
    assert math.isinf(gamma) or 5 * n_clients * math.log(10_000) / math.log(gamma) == pytest.approx(messages)


def test_rules_are_settled_by_the_world() -> None:
    world = fb.World(n_clients=100, dim=25, horizon=30_000)
    told = fb.async_linucb(gamma_upload="messages:20000", gamma_download="regret:2").protocol.told(world)
    assert (told.gamma_upload, told.gamma_download) == (  # type: ignore[attr-defined]
        gamma_for_messages(20_000, 100, 25, 30_000),
        gamma_for_regret(2.0, 100),
    )
    for rule, sentence in (
        ("messages:many", "The rule 'messages:many' needs a number: write messages:2000."),
        ("regret:0.5", "the number of 'regret' is 0.5, but must be finite and ≥ 1"),
        ("massages:2", "There is no rule for gamma_upload 'massages:2'"),
        ("fast", "messages:20000, regret:2"),
    ):
        with pytest.raises(FedbanditError, match=sentence):
            fb.async_linucb(gamma_upload=rule)
