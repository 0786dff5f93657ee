"""The account of a person: what all releases that contain its data tell together.

Someone is seen ten times by one client, by two clients, in two federations, in lives before and after a lost file, in
this month and the next. Each is a mechanism of its own; together they compose. Gaussian mechanisms of distances μ₁, μ₂,
… are one of distance √Σμ² (exactly: Dong, Roth & Su 2022, Cor. 3.3), k records in one stream are one of distance kμ,
and pure mechanisms add up, or compose as zCDP with ρ = Σε²/2 (Bun & Steinke 2016, Prop. 1.4 and 1.3), whichever is
less. An ε belongs to a δ: an account has one for each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedbandit.errors import FedbanditError, number, require, whole_number
from fedbandit.privacy.calibration import gaussian_epsilon
from fedbandit.privacy.guarantee import Guarantee


@dataclass(frozen=True)
class Entry:
    """One thing that was released of a person: Gaussian of distance `mu`, or pure with `epsilon`, in a `period`."""

    what: str
    mu: float = 0.0
    epsilon: float = 0.0
    period: str = ""


@dataclass(frozen=True)
class Account:
    """All that was released of one person.

    >>> claim = Guarantee("proven", epsilon=1.0, delta=1e-5, mu=0.268, unit="one interaction")
    >>> account = Account().add(claim, "shop")
    >>> round(account.epsilon(1e-5), 2)
    1.0
    >>> lives = account.add(claim, "shop", times=9)  # ten lives of a client that learnt the same logs in each
    >>> round(lives.epsilon(1e-5), 2)
    3.62
    >>> round(Account().add(claim, "shop", records=10).epsilon(1e-5), 1)  # ten interactions in one stream
    14.4
    """

    entries: tuple[Entry, ...] = ()

    def add(self, claim: Guarantee, what: str, *, records: int = 1, times: int = 1, period: str = "") -> Account:
        """With what a claim allows: `records` of the person in one stream, `times` streams (lives, clients, copies)."""
        whole_number("records", records)
        whole_number("times", times)
        if claim.basis != "proven":
            raise FedbanditError(f"{what} claims {claim.basis}, so nothing bounds what it tells; it cannot be booked.")
        if claim.delta > 0 and claim.mu is None:
            raise FedbanditError(f"The claim of {what} has no μ; take that of a system that was told its world.")
        k = records if claim.unit == "one interaction" else 1
        entry = Entry(what, k * claim.mu, 0.0, period) if claim.mu else Entry(what, 0.0, k * claim.epsilon, period)
        return Account((*self.entries, *(entry for _ in range(times))))

    def within(self, period: str) -> Account:
        """The entries of one period: what whoever sees nothing of the others can tell."""
        return Account(tuple(entry for entry in self.entries if entry.period == period))

    @property
    def mu(self) -> float:
        """√Σμ² of the Gaussian entries."""
        return math.sqrt(sum(entry.mu**2 for entry in self.entries))

    def epsilon(self, delta: float) -> float:
        """The smallest ε that is known for all entries together at this δ."""
        number(delta, "delta", "0 or between 0 and 1", at_least=0.0)
        require(delta < 1, "delta", delta, "0 or between 0 and 1")
        pure = [entry.epsilon for entry in self.entries if entry.epsilon > 0]
        if delta == 0:
            return math.inf if self.mu > 0 else sum(pure)
        rho = self.mu**2 / 2 + sum(value**2 for value in pure) / 2
        by_rho = rho + 2 * math.sqrt(rho * math.log(1 / delta))
        return min(sum(pure) + (gaussian_epsilon(self.mu, delta) if self.mu > 0 else 0.0), by_rho)

    def may(
        self, claim: Guarantee, what: str, *, epsilon: float, delta: float, records: int = 1, period: str = ""
    ) -> bool:
        """Whether one more keeps the account within (ε, δ); if periods renew the budget, within its period."""
        later = self.add(claim, what, records=records, period=period)
        return (later.within(period) if period else later).epsilon(delta) <= epsilon

    def __str__(self) -> str:
        """One line."""
        if not self.entries:
            return "nothing was released"
        found = ", ".join(f"ε = {self.epsilon(delta):.3g} at δ = {delta:g}" for delta in (1e-5, 1e-6, 1e-9))
        return f"{len(self.entries)} streams of {len({entry.what for entry in self.entries})} sources: {found}"
