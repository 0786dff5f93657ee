"""What all releases of a person amount to, and what a client insists on."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

import fedbandit as fb
from fedbandit.errors import FedbanditError
from fedbandit.privacy.account import Account
from fedbandit.privacy.calibration import gaussian_epsilon

WORLD = fb.World(n_clients=10, dim=3, horizon=20_000)
CLAIM = fb.feducb(epsilon=1.0, delta=1e-5).told(WORLD).guarantee
PURE = fb.dp_linucb(epsilon=0.5).told(WORLD).guarantee


def test_gaussian_claims_compose_by_their_squares() -> None:
    """Lives, clients and federations: √Σμ²; records in one stream: kμ."""
    assert CLAIM.mu is not None
    assert Account().add(CLAIM, "a").epsilon(1e-5) == pytest.approx(1.0)
    lives = Account().add(CLAIM, "a", times=10)
    assert lives.epsilon(1e-5) == pytest.approx(gaussian_epsilon(math.sqrt(10) * CLAIM.mu, 1e-5))
    assert lives.epsilon(1e-5) == pytest.approx(3.62, abs=0.01)
    both = Account().add(CLAIM, "a", records=3).add(CLAIM, "b", records=4)
    assert both.mu == pytest.approx(5 * CLAIM.mu)
    assert both.epsilon(1e-9) > both.epsilon(1e-5)
    assert CLAIM.epsilon_at(1e-5, records=10) == pytest.approx(14.4, abs=0.05)


def test_pure_claims_add_up_or_compose_as_zcdp() -> None:
    """Whichever is less; Gaussian ones have no ε at δ = 0."""
    few = Account().add(PURE, "a", times=2)
    assert few.epsilon(0.0) == few.epsilon(1e-5) == pytest.approx(1.0)
    many = Account().add(PURE, "a", times=400)
    assert many.epsilon(1e-5) < many.epsilon(0.0) == pytest.approx(200)
    assert few.add(CLAIM, "b").epsilon(0.0) == math.inf
    assert few.add(CLAIM, "b").epsilon(1e-5) <= 2.0 + 1e-9


def test_a_budget_may_be_renewed_in_every_period() -> None:
    """Then a period has its own, and all of them together compose."""
    account = Account()
    for month in ("may", "june", "july"):
        assert account.may(CLAIM, "shop", epsilon=1.1, delta=1e-5, period=month)
        account = account.add(CLAIM, "shop", period=month)
        assert not account.may(CLAIM, "shop", epsilon=1.1, delta=1e-5, period=month)
    assert account.within("june").epsilon(1e-5) == pytest.approx(1.0)
    assert account.epsilon(1e-5) > 1.5
    assert not account.may(CLAIM, "shop", epsilon=1.5, delta=1e-5)


def test_what_is_not_proven_cannot_be_booked() -> None:
    """Nor a claim whose μ nobody knows yet."""
    with pytest.raises(FedbanditError, match="claims as published, so nothing bounds what it tells"):
        Account().add(fb.feducb(calibration="published").told(WORLD).guarantee, "a")
    with pytest.raises(FedbanditError, match="has no μ"):
        Account().add(fb.feducb().guarantee, "a")


SECURE = replace(CLAIM, noise="secure")


@pytest.mark.parametrize(
    ("require", "claim", "sentence"),
    [
        (fb.Require(), fb.Guarantee(), "claims nothing proven (none), but this client requires a proven claim"),
        (fb.Require(), replace(SECURE, epsilon=11.0), "claims ε = 11, but this client requires ε ≤ 10"),
        (fb.Require(epsilon=0.5), SECURE, "claims ε = 1, but this client requires ε ≤ 0.5"),
        (fb.Require(), replace(SECURE, delta=1e-3), "claims δ = 0.001, but this client requires δ ≤ 0.0005"),
        (fb.Require(), CLAIM, "claims simulation noise, but this client requires secure noise"),
        (fb.Require(unit="a client"), SECURE, "claims unit 'one interaction', but this client requires 'a client'"),
        (
            fb.Require(trust="sums"),
            replace(SECURE, trust="coordinator"),
            "claims trust 'coordinator', but this client requires 'sums' at most",
        ),
        (fb.Require(trust="nobody"), replace(SECURE, trust="sums"), "claims trust 'sums'"),
        (fb.Require(trust="coordinator"), replace(SECURE, trust=""), "claims trust ''"),
        (fb.Require(definition="joint"), SECURE, "claims definition 'given later records'"),
        (fb.Require(), replace(SECURE, basis="as published"), "claims nothing proven (as published)"),
    ],
)
def test_a_client_refuses_weaker_claims(require: fb.Require, claim: fb.Guarantee, sentence: str) -> None:
    """With the first thing that is weaker; nothing was sent."""
    with pytest.raises(FedbanditError) as error:
        require.check(claim, WORLD)
    assert sentence in str(error.value)
    assert "nothing was sent" in str(error.value)
    fb.Require().check(SECURE, WORLD)
    fb.Require(epsilon=math.inf, delta=1.0, secure=False).check(CLAIM, WORLD)


def test_a_client_accepts_stronger_claims() -> None:
    fb.Require(trust="sums").check(SECURE, WORLD)
    fb.Require(trust="coordinator").check(replace(SECURE, trust="sums"), WORLD)
    fb.Require(definition="joint").check(replace(SECURE, definition="local"), WORLD)
    fb.Require(unit="one interaction").check(replace(SECURE, unit="a client (10 interactions)"), WORLD)
    fb.Require(unit="a client").check(replace(SECURE, unit="a client (10 interactions)"), WORLD)


@pytest.mark.parametrize("wrong", [{"trust": "none"}, {"definition": "joints"}, {"unit": "client"}])
def test_what_no_claim_can_say_is_refused_at_once(wrong: dict[str, str]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(FedbanditError, match=f"{name} is '{value}', but must be one of '"):
        fb.Require(**wrong)  # type: ignore[arg-type]


def test_guarantees_speak_plainly() -> None:
    """One sentence, and all fields for machines."""
    assert "NOT PRIVATE IN USE" in str(CLAIM)
    assert "NOT PRIVATE IN USE" not in str(SECURE)
    assert "NOT PRIVATE IN USE" not in SECURE.sentence()
    assert "ten of one person: e^14.4" in SECURE.sentence()
    assert "but WEAK" in str(replace(SECURE, epsilon=1e6, delta=0.5))
    world = fb.World(n_clients=10, dim=10, horizon=200_000, per_round=10)  # n = 20,000
    claim = fb.feducb(epsilon=1.0, delta=0.005).told(world).guarantee
    assert "proven, but WEAK" in str(claim)
    assert "of 20,000 interactions of a client one may be told outright" in claim.sentence()
    with pytest.raises(FedbanditError, match="δ ≤ 5e-05"):  # the same rule
        fb.Require(secure=False).check(claim, world)
    for delta in (5e-5, 1e-6):
        claim = fb.feducb(epsilon=1.0, delta=delta).told(world).guarantee
        assert not claim.weak
        fb.Require(secure=False).check(claim, world)
    plain = SECURE.as_dict()
    assert {"definition", "trust", "public", "mu", "context_bound", "reward_bound", "proof", "sentence"} <= set(plain)
    joint = fb.dp_linucb(delta=1e-5).told(WORLD).guarantee
    assert joint.definition == "joint"
    assert "arms chosen in other rounds" in joint.against
    assert "Nothing is hidden" in fb.Guarantee().sentence()
