"""Forgetting: models that follow a world which changes.

| keyword             | after t rounds a model is made of                                                            |
|---------------------|----------------------------------------------------------------------------------------------|
| `discount=γ`        | everything, an observation of round τ counting γ^(t − τ)                                     |
| `window=w`          | the last w rounds (`time_blocks.SlidingWindow`)                                              |
| `window="adaptive"` | as many of the last rounds as a test finds no change in (`time_blocks.AdaptiveWindow`)       |

    V_t = Σ γ^(t − τ) x xᵀ,    b_t = Σ γ^(t − τ) x y,    θ̂ = (V_t + λI)⁻¹ b_t          0 < γ ≤ 1 a round

**Additive.** Sums say in units of which round they are, and `moved` takes them from round r to a later one s: times
γ^(s − r), or without the blocks of time that are over. That is linear. So a client dates its uploads, a coordinator
takes them to its latest round and adds them up, a client takes a download to its own round. It is the same sum, whoever
has it, and nobody needs to know more than the round.

**Rounds.** In a simulation they are the environment's. On a network a round is a period of wall clock time on which all
have agreed (`period = "1d"`): round r is that of the seconds r · period to (r + 1) · period since 1970 (UTC). Clients
need not be in step: whoever was offline for a week has a week of rounds behind it, by its own clock. A round never
ends twice: a clock that is set back stands still until it has caught up. Nor is a client more than a round ahead of
what its coordinator says (`network.clock`); where it was, offline, with a wrong clock, it puts its statistics back
(`put_back`): what it has not uploaded yet was observed in the round that it is.

**Where it lives.** It is no matter of a policy, which is told V and θ̂, nor of a protocol: it says what a system's
statistics are, as its ridge λ does. So it stands beside λ (`System.discount`, `System.window`).

**Widths.** As without: σ √(log det V(λ)/det λI + 2 log 1/δ) + √λ, with the V that is left.

**Privacy.** Noise on rewards (`NoisyRewards`) is drawn before anything is summed, so forgetting is post-processing.
Parts that noise statistics or sums are refused: discounting what was released would be post-processing too, but each
release is the difference of two noisy sums of a tree whose noise is calibrated, and whose widths are computed, for sums
that last; with weights the noise no longer cancels, and no bound of ours holds.

Reference: Russac, Vernade & Cappé, Weighted Linear Bandits for Non-Stationary Environments, 2019: D-LinUCB (Alg. 1) and
γ = 1 − (B_T/(dT))^(2/3) for a variation B_T of θ in T observations.

Deviations:
    D1. D-LinUCB has a second matrix Ṽ = Σ γ^(2(t − τ)) x xᵀ and the bonus β √(xᵀ V(λ)⁻¹ Ṽ(λ) V(λ)⁻¹ x). As Ṽ ⪯ V, ours
        is at least that, at most √2 times in the long run, and half as much crosses the network.
    D2. Its β has a bound of log det Ṽ(λ)/det λI; ours has log det V(λ)/det λI itself, which is not less than that.
    D3. γ is one for each observation in the paper, for each round here: on a network, for each period of time.
    D4. The number of observations (`n`) is not discounted: it counts what was observed.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedbandit.errors import FedbanditError, number, require, shown, whole_number
from fedbandit.sums import BlockSums, Sums
from fedbandit.types import Array, Ints

RULE = "changes:"
ADAPTIVE = "adaptive"


class Forgetting:
    """What becomes of statistics as rounds go by; this one remembers everything."""

    dated: ClassVar[bool] = False
    """Whether it matters in units of which round statistics are."""
    slots: int = 0
    """Blocks of time in which statistics are kept apart; 0: one sum."""

    def moves(self, of: int, to: int) -> bool:
        """Whether anything has become of statistics of round `of` by a later one."""
        return self.dated and to > of

    def moved(self, sums: Sums, of: int, to: int) -> Sums:  # noqa: ARG002 - they last
        """Statistics in units of round `of` as what they are in units of a later one."""
        return sums

    def move(self, V: Array, b: Array, of: int, to: int) -> None:
        """The same in place, of arrays that may have further axes in front."""

    def put_back(self, sums: Sums, to: int) -> Sums:  # noqa: ARG002
        """Statistics of rounds that were no such, as statistics of an earlier one."""
        return sums

    def total(self, sums: Sums, round: int) -> Array:  # noqa: ARG002
        """Of statistics in units of this round, the V that a model is made of."""
        return sums.V


class Fading(Forgetting):
    """An observation counts γ times as much a round later."""

    dated = True

    def __init__(self, discount: float) -> None:
        self.discount = discount

    def factor(self, of: int, to: int) -> float:
        """What an observation of round `of` counts in a later one."""
        return float(self.discount ** (to - of))

    def moved(self, sums: Sums, of: int, to: int) -> Sums:
        """V and b times γ to the power of the rounds between; n stays."""
        return scaled(sums, self.factor(of, to))

    def move(self, V: Array, b: Array, of: int, to: int) -> None:
        """V and b times γ to the power of the rounds between."""
        V *= (factor := self.factor(of, to))
        b *= factor


def check_discount(discount: object) -> float | str:
    """A discount a round, or the rule "changes:B": γ for B changes of θ by 2 at most."""
    if isinstance(discount, str):
        try:
            changes = float(discount.removeprefix(RULE)) if discount.startswith(RULE) else -1.0
        except ValueError:
            changes = -1.0
        if not changes >= 0:
            raise FedbanditError(f"discount is {shown(discount)}, but must be a number or a rule such as 'changes:3'.")
        return discount
    value = number(discount, "discount", "a number > 0 and ≤ 1, or a rule such as 'changes:3'")
    require(0 < value <= 1, "discount", discount, "a number > 0 and ≤ 1, or a rule such as 'changes:3'")
    return value


def check_window(window: object) -> int | str | None:
    """A number of rounds, "adaptive", or None: no end."""
    if window is None or window == ADAPTIVE:
        return ADAPTIVE if window else None
    if isinstance(window, str):
        raise FedbanditError(f"window is {shown(window)}, but must be a whole number ≥ 2 or 'adaptive'.")
    return whole_number("window", window, 2)


def settled_discount(discount: float | str, parameters: int, observations: float, rounds: int) -> float:
    """γ a round of a model with so many parameters that learns from so many observations in so many rounds.

    The formula is one for each observation; a model that has several a round forgets as much faster.

    >>> round(settled_discount("changes:3", parameters=10, observations=10_000, rounds=10_000), 5)
    0.99847
    """
    if not isinstance(discount, str):
        return discount
    variation = 2.0 * float(discount.removeprefix(RULE))
    each = 1.0 - min((variation / (parameters * max(observations, 1.0))) ** (2 / 3), 0.5)
    return float(each ** (observations / max(rounds, 1)))


def scaled(sums: Sums, factor: float) -> Sums:
    """All observations count so many times what they did."""
    if factor == 1.0:
        return sums
    if isinstance(sums, BlockSums):
        return BlockSums(factor * sums.V, factor * sums.b, sums.n, sums.actions)
    return Sums(factor * sums.V, factor * sums.b, sums.n)


def in_slots(sums: BlockSums, slots: Ints) -> BlockSums:
    """Blocks that belong to these slots now, −1: to none; those of one slot are added up."""
    left = slots >= 0
    actions, where = np.unique(slots[left], return_inverse=True)
    V, b = np.zeros((actions.size, *sums.V.shape[1:])), np.zeros((actions.size, *sums.b.shape[1:]))
    np.add.at(V, where, sums.V[left])
    np.add.at(b, where, sums.b[left])
    return BlockSums(V, b, sums.n, actions)
