"""What an audit found out, in words and as a picture."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from fedbandit.audit.likelihood import Audit
from fedbandit.errors import FedbanditError, needs
from fedbandit.privacy import Guarantee
from fedbandit.world import World

CONFIDENCE = 0.99
"""With which each lower bound holds."""
SURE = 1 - 1e-9
"""Confidence where randomness cannot be repeated: an audit must not fail by chance."""
TOLERANCE = 1 + 1e-6
"""Of comparisons with the claim: rounding, far below what matters."""


@dataclass(frozen=True)
class Check:
    """One attack: what ε it established at least (0 if it measures none), and whether the claim survived.

    `skipped`: it was not made, for the reason in `detail`. That is never a pass. `computed`: the exact ε, if it is no
    chance result.
    """

    name: str
    passed: bool
    lower_bound: float
    detail: str
    skipped: bool = False
    computed: float | None = None

    @property
    def verdict(self) -> str:
        """In one word."""
        return "SKIP" if self.skipped else "pass" if self.passed else "FAIL"


def skip(name: str, why: str) -> Check:
    """An attack that was not made."""
    return Check(name, False, 0.0, why, skipped=True)


@dataclass(frozen=True)
class AuditReport:
    """All attacks on one system in one world."""

    system: str
    guarantee: Guarantee
    world: World
    checks: tuple[Check, ...]
    attack: Audit | None = field(default=None, repr=False)
    """The likelihood-ratio attack with its scores, for the picture."""

    @property
    def lower_bound(self) -> float:
        """The largest ε that was established."""
        return max(check.lower_bound for check in self.checks)

    @property
    def computed(self) -> float | None:
        """The largest ε that follows from formulas; None if none does."""
        return max((check.computed for check in self.checks if check.computed is not None), default=None)

    @property
    def believed(self) -> bool:
        """Whether the system itself says that its claim is true."""
        true = self.guarantee.true_epsilon
        return true is None or true <= self.guarantee.epsilon * TOLERANCE

    @property
    def passed(self) -> bool:
        """Whether the claim survived every attack that was made, at least one, and what the system says of itself."""
        made = [check for check in self.checks if not check.skipped]
        return bool(made) and all(check.passed for check in made) and self.believed

    @property
    def skipped(self) -> int:
        """Attacks that were not made."""
        return sum(check.skipped for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        """As one JSON-ready object; an infinite true ε is the text "inf"."""
        claim, true = self.guarantee, self.guarantee.true_epsilon
        return {
            "system": self.system,
            "epsilon": claim.epsilon,
            "delta": claim.delta,
            "lower_bound": self.lower_bound,
            "passed": self.passed,
            "basis": claim.basis,
            "skipped": self.skipped,
            "computed": str(self.computed) if self.computed == math.inf else self.computed,
            "confidence": CONFIDENCE,
            "true_epsilon": "inf" if true is not None and math.isinf(true) else true,
            "unit": claim.unit,
            "noise": claim.noise,
            "world": {key: getattr(self.world, key) for key in ("n_clients", "dim", "horizon")},
            "guarantee": claim.as_dict(),
            "checks": [{**asdict(check), "verdict": check.verdict} for check in self.checks],
        }

    def __str__(self) -> str:
        """A line for the claim, one for each check, and the verdict."""
        claim = self.guarantee
        width = max(len(check.name) for check in self.checks)
        lines = [f"{self.system}: {str(claim).replace(': NOT PRIVATE IN USE', ' (in this audit)')}"]
        for check in self.checks:
            bound = f"ε ≥ {check.lower_bound:.3f}" if check.lower_bound > 0 else ""
            lines.append(f"  {check.name:{width}}  {check.verdict}  {bound:10}  {check.detail}")
        verdict = "passed" if self.passed else "FAILED: what the system does is not what it claims"
        if not self.believed:
            true = claim.true_epsilon
            verdict = f"FAILED: the true ε is {true:.4g}" if true != math.inf else "FAILED: no finite ε holds"
        skipped = f", {self.skipped} not attacked" if self.skipped else ""
        measured = f"measured ε ≥ {self.lower_bound:.3f} (99 % confidence)"
        if self.lower_bound == 0 and self.computed is not None:
            measured = f"computed ε = {self.computed:.3f}"
        lines.append(f"  claimed ε = {claim.epsilon:g}, {measured}: {verdict}{skipped}")
        return "\n".join(lines)


def draw_scores(report: AuditReport) -> Any:
    """A matplotlib figure with the histogram of the likelihood-ratio scores in both worlds."""
    if report.attack is None:
        raise FedbanditError(f"{report.system} was not attacked by scores, so there is nothing to draw.")
    null, alternative = report.attack.null, report.attack.alternative
    figure = needs("matplotlib.figure", "plots", "A plot").Figure(figsize=(7, 4), dpi=150, layout="constrained")
    ax = figure.subplots()
    edges = np.histogram_bin_edges(np.concatenate((null, alternative)), bins=80)
    for scores, label in ((null, "the record"), (alternative, "its replacement")):
        ax.hist(scores, edges.tolist(), density=True, alpha=0.5, label=f"streams with {label}")
    claim = report.guarantee
    ax.set(
        xlabel="log-likelihood ratio of everything released",
        ylabel="density",
        title=f"{report.system}: claimed ε = {claim.epsilon:g}, δ = {claim.delta:g} ({claim.basis}); "
        f"measured ε ≥ {report.lower_bound:.2f}",
    )
    ax.legend(frameon=False)
    return figure
