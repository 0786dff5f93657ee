"""SCLUB: sets of users that single users leave and that merge again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedbandit.structures.clustering import Law, Rule, check_alpha, servers_of
from fedbandit.structures.structure import Structure
from fedbandit.types import Ints
from fedbandit.world import World


@dataclass(frozen=True)
class SplitAndMerge(Structure):
    """Each server keeps sets of its users, at first one. With τ its interactions so far, n_i those of user i,
    p_i = n_i/τ, n_C = Σ n_i and p_C = n_C/(|C| τ), and θ̃_C, ñ_C what the set C had when its phase began:

    - after an observation user i leaves its set C for one of its own if

          ‖θ̂_i − θ̃_C‖ > α₁ (F(n_i) + F(ñ_C))   or   |p_i − p_j| > 2 α_p F(τ) for some j in C;

    - two sets merge whose users have all acted in this phase ("checked"), if

          ‖θ̂_B − θ̂_C‖ < α₂ (F(n_B) + F(n_C))   and   |p_B − p_C| < α_p F(τ).

    Phase s has 2^s interactions. F(n) = √((1 + ln(1 + n))/(1 + n)).

    alpha_split, alpha_merge, alpha_frequency: α₁, α₂ (the paper has one α_θ, and α₁ = α_θ, α₂ = α_θ/2) and α_p.
    n_servers: blocks of consecutive users, each with an SCLUB of its own; None for the servers of the environment, or
        one server for all where it has none.

    Reference: Li et al., Improved Algorithm on Online Clustering of Bandits (SCLUB), 2019: Alg. 1–3; per local server
    as in FCLUB §5.

    Deviations:
        D1. τ and the phases are those of the server: it knows no other clock (FCLUB's code takes the global one).
        D2. A set that a user forms by leaving, or that two form by merging, has θ̃ and ñ of that moment.
        D3. α_θ = 3 (FCLUB's authors run SCLUB with 1.5, which tears true clusters apart).
        D4. If several pairs could merge, the first in the order of their smallest users does, until none can.
    """

    alpha_split: float = 3.0
    alpha_merge: float = 1.5
    alpha_frequency: float = 1.0
    n_servers: int | None = None

    separate: ClassVar[bool] = False
    federated: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the factors."""
        for name in ("alpha_split", "alpha_merge", "alpha_frequency"):
            object.__setattr__(self, name, check_alpha(name, getattr(self, name)))

    def law(self) -> Law:
        """The tests."""
        return Law(int(Rule.SETS), self.alpha_split, self.alpha_merge, self.alpha_frequency, True, False)

    def servers(self, world: World) -> Ints:
        """The local server of each user."""
        return servers_of(world, self.n_servers, 1)
