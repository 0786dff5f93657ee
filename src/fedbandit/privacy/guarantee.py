"""The claim a system makes about privacy. It is printed wherever results are, so it has to be true.

A client says which claims are good enough for it (`Require`).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from fedbandit.errors import FedbanditError, number, require
from fedbandit.privacy.calibration import check_epsilon, gaussian_epsilon
from fedbandit.privacy.trust import TRUSTS
from fedbandit.world import World

Basis = Literal["proven", "as published", "none"]
DEFINITIONS = {
    "given later records": "What the client chooses later because of it is not covered, and can tell far more "
    "(ε in the hundreds was measured); own='released' covers it.",
    "joint": "What is chosen for others because of it is covered; the arm of its own round tells its own contexts.",
    "local": "Everything that follows from it is covered.",
}
"""The definitions of differential privacy that claims are made in, the weakest first, and what each covers
(docs/privacy-proofs.md)."""
UNITS = ("one interaction", "a client")
WEAK_EPSILON, WEAK_DELTA = 10.0, 0.01


@dataclass(frozen=True)
class Guarantee:
    """What is protected, from whom, how well, and on what basis.

    `against` is whom it protects from, the subject of its sentence.
    `unit` is whose data may change between neighbours: one interaction, or a client's whole contribution.
    `definition` is one of `DEFINITIONS`; `trust` and `own` are the privacy part's; `public` is what is not hidden.
    `mu` is the distance of neighbours in standard deviations (μ-GDP) for Gaussian noise: ε follows for every δ.
    `context_bound`, `reward_bound`, `reward_weight` are L, B and κ; `releases` is for how many noise is calibrated.
    `interactions` are those of a client at the horizon, n: with δ > 1/n one of them may be told outright.
    `true_epsilon` says what a published mechanism really gives at δ, where that is known: ∞ if nothing does.
    `noise` says where random numbers come from: "simulation" (NumPy) or "secure" (float-safe sampling).
    `proof` is a heading of docs/privacy-proofs.md.

    >>> print(Guarantee())
    none: statistics leave the clients without noise
    """

    basis: Basis = "none"
    protects: str = "nothing"
    against: str = "nobody"
    neighbours: str = ""
    epsilon: float = math.inf
    delta: float = 0.0
    unit: str = ""
    mechanism: str = ""
    true_epsilon: float | None = None
    noise: str = "simulation"
    remark: str = ""
    definition: str = ""
    trust: str = ""
    own: str = ""
    public: tuple[str, ...] = ()
    mu: float | None = None
    context_bound: float | None = None
    reward_bound: float | None = None
    reward_weight: float | None = None
    releases: int | None = None
    interactions: int | None = None
    proof: str = ""

    def __post_init__(self) -> None:
        """A list, as files have it, is a tuple."""
        object.__setattr__(self, "public", tuple(self.public))

    @property
    def private(self) -> bool:
        """Whether anything is claimed."""
        return self.basis != "none"

    @property
    def weak(self) -> bool:
        """Whether a claim says little, proven or not: odds of e^10, or a chance of 1/n or 0.01 that nothing holds."""
        return self.private and (self.epsilon > WEAK_EPSILON or self.delta >= WEAK_DELTA or self._loose)

    @property
    def _loose(self) -> bool:
        """Whether δ > 1/n, once n is known: what clients refuse by default (`Require`)."""
        return self.interactions is not None and exceeds(self.delta, 1 / self.interactions)

    def epsilon_at(self, delta: float, records: int = 1) -> float:
        """ε at any other δ, of so many records of one person.

        >>> round(Guarantee("proven", epsilon=1.0, delta=1e-5, mu=0.268).epsilon_at(1e-5, records=10), 1)
        14.4
        """
        if self.mu is None:
            return records * self.epsilon if self.delta == 0 or (records == 1 and delta >= self.delta) else math.inf
        return gaussian_epsilon(records * self.mu, delta)

    def sentence(self) -> str:
        """For somebody who does not know the vocabulary.

        >>> print(Guarantee("proven", "rewards", "everybody else", epsilon=1.0, unit="one interaction").sentence())
        Everybody else can tell one interaction from another (rewards) with odds of at most e^1; ten of one person: \
e^10. NOT PRIVATE IN USE: this noise is for simulations.
        """
        if not self.private:
            return f"Nothing is hidden: {self.remark or 'statistics leave this client as they are'}."
        if self.against == "nobody":
            return "Nothing is hidden: the claim names nobody from whom it protects."
        if self.basis != "proven":
            true = "" if self.true_epsilon is None else f"; it really is {_power(self.true_epsilon)}"
            return f"Published as odds of at most {_power(self.epsilon)}, not proven{true}. Do not rely on it."
        who = self.against[:1].upper() + self.against[1:] + ("," if "," in self.against else "")
        chance = f", except with chance {self.delta:g}" if self.delta else ""
        text = (
            f"{who} can tell {self.unit or 'one interaction'} from another ({self.protects}) "
            f"with odds of at most {_power(self.epsilon)}{chance}"
        )
        if self.unit == "one interaction" and (self.delta == 0 or self.mu is not None):
            text += f"; ten of one person: {_power(self.epsilon_at(self.delta, 10))}"
        text += f". Not hidden: {', '.join(self.public)}." if self.public else "."
        if self.weak:
            told = (
                f": of {self.interactions:,} interactions of a client one may be told outright" if self._loose else ""
            )
            text += f" That is little{told}."
        if self.definition in DEFINITIONS:
            text += f" {DEFINITIONS[self.definition]}"
        return text if self.noise == "secure" else f"{text} NOT PRIVATE IN USE: this noise is for simulations."

    def as_dict(self) -> dict[str, Any]:
        """All fields and the sentence, ready for JSON: infinities are texts."""
        fields = {**asdict(self), "public": list(self.public), "sentence": self.sentence()}
        return {
            key: str(value) if isinstance(value, float) and math.isinf(value) else value
            for key, value in fields.items()
        }

    def __str__(self) -> str:
        """One line."""
        if not self.private:
            return f"none: {self.remark or 'statistics leave the clients without noise'}"
        budget = f"{self.epsilon:g}-DP" if self.delta == 0 else f"({self.epsilon:g}, {self.delta:g})-DP"
        neighbours = ", ".join(part for part in (self.neighbours, self.definition) if part)
        noise = "secure noise" if self.noise == "secure" else f"{self.noise} noise: NOT PRIVATE IN USE"
        basis = f"{self.basis}, but WEAK" if self.weak else self.basis
        text = (
            f"{budget} {basis}: protects {self.protects} of {self.unit} against {self.against} "
            f"({neighbours}) by {self.mechanism}; {noise}"
        )
        if self.true_epsilon is not None:
            known = "no finite ε holds" if math.isinf(self.true_epsilon) else f"the true ε is {self.true_epsilon:.3g}"
            text += f"; {known}"
        return text + (f"; {self.remark}" if self.remark else "")


def interactions_of(world: World) -> int:
    """n: the interactions of a client at the horizon."""
    return math.ceil(world.horizon / world.n_clients)


def exceeds(delta: float, most: float) -> bool:
    """Whether δ is above the largest that is accepted, by more than rounding."""
    return delta > most * (1 + 1e-9)


def _power(epsilon: float) -> str:
    return "e^∞" if math.isinf(epsilon) else f"e^{epsilon:.3g}"


@dataclass(frozen=True)
class Require:
    """The weakest claim that a client accepts. Checked at every start, before anything leaves.

    epsilon, delta: the largest; δ is by default one over the interactions of a client at the horizon.
    unit: "one interaction", or more: "a client". trust: at most "coordinator", "sums" (or nobody), or "nobody".
    definition: at least "given later records", "joint" or "local". None for any. secure: whether noise must be
    float-safe.

    >>> Require().check(Guarantee("proven", epsilon=1e6, delta=0.5, noise="secure"), World(3, 2, 300))
    Traceback (most recent call last):
    fedbandit.errors.FedbanditError: This federation claims ε = 1e+06, but this client requires ε ≤ 10; nothing was \
sent. Client(require=fb.Require(…)) says what it accepts.
    """

    epsilon: float = 10.0
    delta: float | None = None
    unit: str | None = None
    trust: str | None = None
    definition: str | None = None
    secure: bool = True

    def __post_init__(self) -> None:
        """Refuse numbers and names that mean nothing."""
        for name, known in (("unit", UNITS), ("trust", TRUSTS), ("definition", tuple(DEFINITIONS))):
            value = getattr(self, name)
            require(value is None or value in known, name, value, f"one of {', '.join(map(repr, known))}, or None")
        check_epsilon(self.epsilon, "any")
        if self.delta is not None:
            number(self.delta, "delta", "a number from 0 to 1", at_least=0.0)
            require(self.delta <= 1, "delta", self.delta, "a number from 0 to 1")

    def check(self, claim: Guarantee, world: World) -> None:
        """Refuse a claim that is weaker, with the first thing that is."""
        most = 1 / interactions_of(world) if self.delta is None else self.delta
        for wrong, claimed, required in (
            (claim.basis != "proven", f"nothing proven ({claim.basis})", "a proven claim"),
            (claim.epsilon > self.epsilon, f"ε = {claim.epsilon:g}", f"ε ≤ {self.epsilon:g}"),
            (exceeds(claim.delta, most), f"δ = {claim.delta:g}", f"δ ≤ {most:.3g}"),
            (self.secure and claim.noise != "secure", f"{claim.noise} noise", "secure noise"),
            (_less(claim.unit.partition(" (")[0], self.unit, UNITS), f"unit {claim.unit!r}", f"{self.unit!r}"),
            (_less(claim.trust, self.trust, TRUSTS[::-1]), f"trust {claim.trust!r}", f"{self.trust!r} at most"),
            (
                _less(claim.definition, self.definition, tuple(DEFINITIONS)),
                f"definition {claim.definition!r}",
                f"{self.definition!r} at least",
            ),
        ):
            if wrong:
                raise FedbanditError(
                    f"This federation claims {claimed}, but this client requires {required}; nothing was sent. "
                    "Client(require=fb.Require(…)) says what it accepts."
                )


def _less(claimed: str, required: str | None, order: tuple[str, ...]) -> bool:
    """Whether a claim is weaker than what is required; the order begins with the weakest."""
    return required is not None and (claimed not in order or order.index(claimed) < order.index(required))
