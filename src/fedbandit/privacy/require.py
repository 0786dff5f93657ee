"""What a client insists on: the coordinator names ε, and the client decides whether that is good enough."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedbandit.errors import FedbanditError, number, require
from fedbandit.privacy.guarantee import Guarantee
from fedbandit.world import World


@dataclass(frozen=True)
class Require:
    """The weakest claim that a client accepts. Checked at every start, before anything leaves.

    epsilon, delta: the largest; δ is by default one over the interactions of a client at the horizon.
    unit: "one interaction", or "a client"; None for either. trust: of "nobody", "sums", "coordinator", those that are
    acceptable; None for all. definition: "joint", say; None for any. secure: whether noise must be float-safe.

    >>> Require().check(Guarantee("proven", epsilon=1e6, delta=0.5, noise="secure"), World(3, 2, 300))
    Traceback (most recent call last):
    fedbandit.errors.FedbanditError: This federation claims ε = 1e+06, but this client requires ε ≤ 10; nothing was \
sent. Client(require=fb.Require(…)) says what it accepts.
    """

    epsilon: float = 10.0
    delta: float | None = None
    unit: str | None = None
    trust: tuple[str, ...] | str | None = None
    definition: str | None = None
    secure: bool = True

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        require(self.epsilon > 0, "epsilon", self.epsilon, "> 0 (inf for any)")
        if self.delta is not None:
            number(self.delta, "delta", "a number from 0 to 1", at_least=0.0)
            require(self.delta <= 1, "delta", self.delta, "a number from 0 to 1")

    def check(self, claim: Guarantee, world: World) -> None:
        """Refuse a claim that is weaker, with the first thing that is."""
        most = 1 / math.ceil(world.horizon / world.n_clients) if self.delta is None else self.delta
        trust = (self.trust,) if isinstance(self.trust, str) else self.trust
        for wrong, claimed, required in (
            (claim.basis != "proven", f"nothing proven ({claim.basis})", "a proven claim"),
            (claim.epsilon > self.epsilon, f"ε = {claim.epsilon:g}", f"ε ≤ {self.epsilon:g}"),
            (claim.delta > most * (1 + 1e-9), f"δ = {claim.delta:g}", f"δ ≤ {most:.3g}"),
            (self.secure and claim.noise != "secure", f"{claim.noise} noise", "secure noise"),
            (self.unit is not None and not claim.unit.startswith(self.unit), f"unit {claim.unit!r}", f"{self.unit!r}"),
            (trust is not None and claim.trust not in trust, f"trust {claim.trust!r}", f"{trust!r}"),
            (
                self.definition is not None and claim.definition != self.definition,
                f"definition {claim.definition!r}",
                f"{self.definition!r}",
            ),
        ):
            if wrong:
                raise FedbanditError(
                    f"This federation claims {claimed}, but this client requires {required}; nothing was sent. "
                    "Client(require=fb.Require(…)) says what it accepts."
                )
