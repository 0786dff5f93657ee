"""The claim a system makes about privacy. It is printed wherever results are, so it has to be true."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Guarantee:
    """What is protected, from whom, how well, and on what basis.

    >>> print(Guarantee())
    none: statistics leave the clients without noise
    """

    basis: Literal["proven", "as published", "none"] = "none"
    protects: str = "nothing"
    against: str = "nobody"
    neighbours: str = ""
    epsilon: float = math.inf
    delta: float = 0.0

    def __str__(self) -> str:
        """One line."""
        if self.basis == "none":
            return "none: statistics leave the clients without noise"
        return (
            f"({self.epsilon:g}, {self.delta:g})-DP {self.basis}: protects {self.protects} "
            f"against {self.against} ({self.neighbours})"
        )
