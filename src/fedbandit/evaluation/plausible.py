"""Whether a log can be what it is said to be: uniform, or with these propensities; and reasons to doubt estimates."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedbandit.environments.logged import LoggedDecisions
from fedbandit.errors import FedbanditError
from fedbandit.tails import chi_square_tail
from fedbandit.types import Array, Ints

TINY = 0.01
"""Propensities below this make one decision count for more than a hundred; the evaluation warns."""
FEW = 50
"""With an effective sample size below this a normal interval is not to be trusted; the evaluation warns."""
FEW_REWARDED = 30
"""With fewer rewarded uses than this the evaluation warns."""
LEVEL = 1e-6
"""The probability with which a log that is uniform is refused, over all tests together."""
ENOUGH = 5
"""Groups of which fewer decisions than this are to be expected for each arm are not tested."""
FAR = 4.0
"""A mean weight that is farther from 1 than this many standard errors is not chance."""


def require_uniform(log: LoggedDecisions) -> None:
    """Refuse a log that is said to be uniform and clearly is not.

    χ² of the chosen arm against 1/K: over all decisions and, where every decision offers the same actions, within the
    clients, the segments and the values of each feature (quarters, if there are more than 64). With m such tests each
    has the level 10⁻⁶/m (Bonferroni). Where arms have contexts of their own their order means nothing, and what a
    choice had to do with them is not tested.
    """
    offered = np.arange(log.counts.max()) < log.counts[:, None]
    expected = (offered / log.counts[:, None]).sum(axis=0)
    seen = np.bincount(log.chosen, minlength=expected.size)
    groupings = list(_groupings(log))
    level = LEVEL / (1 + len(groupings))
    if expected.size > 1 and expected.min() >= ENOUGH and _tail(seen, expected, expected.size - 1) < level:
        a = int(np.argmax(np.abs(seen - expected) / np.sqrt(expected)))
        raise _not_uniform(a, seen[a], expected[a], "")
    k = int(log.counts.max())
    for what, names, which in groupings:
        table = np.bincount(which * k + log.chosen, minlength=names.size * k).reshape(-1, k)
        fair = table.sum(axis=1, keepdims=True) / k
        kept = np.flatnonzero(fair[:, 0] >= ENOUGH)
        if kept.size and _tail(table[kept], fair[kept], kept.size * (k - 1)) < level:
            far = np.abs(table[kept] - fair[kept]) / np.sqrt(fair[kept])
            g, a = divmod(int(far.argmax()), k)
            where = f" where {what} is {names[kept[g]]}"
            raise _not_uniform(a, table[kept[g], a], fair[kept[g], 0], where)


def _tail(seen: Ints, expected: Array, degrees: int) -> float:
    return chi_square_tail(float(((seen - expected) ** 2 / expected).sum()), degrees)


def _not_uniform(arm: int, seen: int, expected: float, where: str) -> FedbanditError:
    return FedbanditError(
        f"The log is said to be uniform, but{where} arm {arm} was chosen {seen:,} times where {expected:,.0f} are "
        "to be expected; give its propensities instead."
    )


def _groupings(log: LoggedDecisions) -> Iterator[tuple[str, NDArray[np.str_], Ints]]:
    """What decisions can be grouped by: its name, the groups' names, and the group of each decision."""
    if log.arms.shape[1]:
        return
    if log.n_clients > 1:
        yield "the client", np.array([str(name) for name in log.client_names]), log.clients
    if log.segments.size:
        yield "the segment", *np.unique(log.segments, return_inverse=True)
    for j, column in enumerate(log.X.T):
        values, which = np.unique(column, return_inverse=True)
        if values.size > 64:
            which = np.searchsorted(np.quantile(column, [0.25, 0.5, 0.75]), column)
        texts = [f"{value:g}" for value in values] if values.size <= 64 else ["in its quarter " + q for q in "1234"]
        if values.size > 1:
            yield log.feature_names[j] if log.feature_names else f"feature {j}", np.array(texts), which


def few_rewards(used: int, hits: int) -> list[str]:
    """A doubt where few decisions of use had a reward."""
    if hits >= FEW_REWARDED or used == hits:
        return []
    return [f"Of {used:,} decisions of use {hits:,} had a reward; such a rate is known roughly, as its interval says."]


def doubts(propensities: Array, weights: Array, ess: float) -> list[str]:
    """Reasons to doubt estimates with these propensities of logged arms, and weights π(a)/p."""
    doubts = []
    if certain := int(np.count_nonzero(propensities > 1 - 1e-9)):
        doubts.append(f"In {certain:,} decisions the log's policy had no choice: what others do there is not known.")
    mean, error = float(weights.mean()), float(weights.std(ddof=1)) / math.sqrt(weights.size)
    if not certain and ess >= FEW and abs(mean - 1) > FAR * error + 1e-6:
        doubts.append(
            f"The mean weight is {mean:.3f} ± {error:.3f} where right propensities give 1: they are wrong, or the log "
            "never takes arms that this system takes. Believe neither the estimates nor the differences."
        )
    if propensities.min() < TINY:
        doubts.append(
            f"The smallest propensity is {propensities.min():.2g}: such a decision counts "
            f"{1 / propensities.min():,.0f}-fold if it agrees, and intervals may be too short."
        )
    if ess < FEW:
        doubts.append(f"The effective sample size is {ess:.0f}; intervals are not to be trusted.")
    if weights.sum() > 0 and weights.max() > 0.05 * weights.sum():
        doubts.append(f"One decision carries {weights.max() / weights.sum():.0%} of the weight.")
    return doubts
