"""The claim a system makes about privacy. It is printed wherever results are, so it has to be true."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Basis = Literal["proven", "as published", "none"]


@dataclass(frozen=True)
class Guarantee:
    """What is protected, from whom, how well, and on what basis.

    `unit` is whose data may change between neighbours: one interaction, or a client's whole contribution.
    `true_epsilon` says what a published mechanism really gives at δ, where that is known: ∞ if nothing does.
    `definition` names what ε is the ε of; `trust` says who is trusted ("nobody", "sums", "coordinator"), `own` what a
    client's choices rest on ("exact", "released").
    `noise` says where random numbers come from: "simulation" (NumPy) or "secure" (float-safe sampling).

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

    def __str__(self) -> str:
        """One line."""
        if self.basis == "none":
            return f"none: {self.remark or 'statistics leave the clients without noise'}"
        budget = f"{self.epsilon:g}-DP" if self.delta == 0 else f"({self.epsilon:g}, {self.delta:g})-DP"
        text = (
            f"{budget} {self.basis}: protects {self.protects} of {self.unit} against {self.against} "
            f"({self.neighbours}) by {self.mechanism}; {self.noise} noise"
        )
        if self.true_epsilon is not None:
            known = "no finite ε holds" if math.isinf(self.true_epsilon) else f"the true ε is {self.true_epsilon:.3g}"
            text += f"; {known}"
        return text + (f"; {self.remark}" if self.remark else "")
