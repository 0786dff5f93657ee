"""Attacks on totals: what a client puts into secure sums, and what a trusted coordinator publishes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from fedbandit.audit.likelihood import Handed, epsilon_of_shift, irregular
from fedbandit.audit.mechanism_attack import exact_check
from fedbandit.audit.neighbours import Record, RecordLimits, pairs_of
from fedbandit.audit.report import TOLERANCE, Check, skip
from fedbandit.privacy.calibration import gaussian_epsilon, special_functions
from fedbandit.privacy.guarantee import Guarantee
from fedbandit.privacy.noise import Source
from fedbandit.privacy.private_statistics import PrivateStatistics
from fedbandit.privacy.published_total import PublishedTotal
from fedbandit.privacy.sum_stream import SumStream
from fedbandit.privacy.sum_terms import SumTerms, Words
from fedbandit.streams import Purpose, generator
from fedbandit.sums import Sums
from fedbandit.types import Array

ABSENCES = (0.0, 0.1, 0.5, 1.0)
"""Chances with which the client is missing in a sum: whoever was in none sends everything again and again."""
MakeSums = Callable[[SumTerms, int], SumStream]
"""A client's stream from a seed; tests plant faults here."""


def make_sums(terms: SumTerms, seed: int) -> SumStream:
    """As it is."""
    return SumStream(terms, partial(generator, seed, Purpose.NOISE, 0))


def total_checks(
    privacy: PrivateStatistics, limits: RecordLimits, claim: Guarantee, *, make: MakeSums = make_sums
) -> Iterator[Check]:
    """All of them, for whichever total a system has."""
    if privacy.trust == "sums":
        terms = privacy.sum_terms
        if privacy.contribution is None:
            yield exact_check(terms.mechanism, limits, 1, claim.epsilon, claim.delta)
        else:
            yield skip("mechanism, exact", "not attacked: a client's whole contribution is the unit; see contributions")
        yield contributions_check(terms, limits, claim, make)
        yield shares_check(terms, make)
    else:
        yield exact_check(privacy.mechanisms[0], limits, 1, claim.epsilon, claim.delta)
        yield published_check(privacy, limits, claim)


def _one(record: Record, n: int = 1) -> Sums:
    """A record, or n of it."""
    return Sums(n * np.outer(record.x, record.x), n * record.x * record.y, n)


def contributions_check(
    terms: SumTerms, limits: RecordLimits, claim: Guarantee, make: MakeSums, name: str = "sums, contributions"
) -> Check:
    """The exact ε of all sums that a client was ever in, against h honest shares of noise.

    For patterns of absences, each without and with a crash after every contribution; and, as far as it has come, no
    more than the client's own ledger says. Where a client's contribution is the unit, all of it enters at once.
    """
    records = terms.contribution or 1
    largest, booked = 0.0, True
    one, other = next(iter(pairs_of(limits, terms.mechanism).values()))
    nothing = Sums(np.zeros((limits.dim, limits.dim)), np.zeros(limits.dim), 0)
    for chance, crashes, first in product(ABSENCES, (False, True), {1, max(terms.epochs // 2, 1), terms.epochs}):
        present = np.random.default_rng(0).random(terms.epochs) >= chance
        words = []
        for record in (one, other):
            stream, included, said = make(terms, 0), 0, []
            for epoch in range(first, terms.epochs + 1):
                said.append(stream.contribute(epoch, included, _one(record, records) if epoch == first else nothing))
                included = epoch if present[epoch - 1] else included
                if crashes:
                    saved, stream = stream.state(), make(terms, 0)
                    stream.restore(saved)
            words.append(np.array(said))
        true = epsilon_of_words(terms, words[0] - words[1], claim.delta)
        largest = max(largest, true)
        booked = booked and true <= stream.spent_epsilon * TOLERANCE
    passed = largest <= claim.epsilon * TOLERANCE and booked
    detail = (
        f"{terms.epochs} sums, four patterns of absences, with and without crashes: ε = {largest:.4f} for all that "
        f"leaves{'' if booked else ', which is more than the ledger says'}"
    )
    return Check(name, passed, 0.0 if passed else largest, detail, computed=largest)


def epsilon_of_words(terms: SumTerms, difference: Words, delta: float) -> float:
    """The ε of contributions that differ by so much, each in a sum with h honest shares of noise."""
    sigma = terms.stds * math.sqrt(terms.honest)
    return gaussian_epsilon(float(np.linalg.norm(difference.view(np.int64) / sigma)), delta)


def shares_check(terms: SumTerms, make: MakeSums, runs: int = 40, name: str = "sums, shares of noise") -> Check:
    """Whether each share of noise has its scale, also after excess is taken back, and none is drawn twice.

    And whether numbers of a share are Gaussian, each by itself, and what is told of it tells nothing of what is left.
    """
    nothing = Sums(np.zeros((terms.mechanism.dim,) * 2), np.zeros(terms.mechanism.dim), 0)
    if too_little := _asked_for(terms, make, nothing):
        return Check(name, False, 0.0, too_little)
    drawn, left = list[NDArray[np.int64]](), list[Array]()
    told: list[list[Array]] = [[] for _ in terms.portions[1:]]
    for seed in range(runs):
        stream = make(terms, seed)
        for e in range(1, min(terms.epochs, 8) + 1):
            drawn.append(stream.contribute(e, e - 1, nothing).view(np.int64))
            members = terms.levels[len(drawn) % len(terms.levels)]
            back = stream.excess[: terms.taken_back(members)].view(np.int64)
            left.append((drawn[-1] - back.sum(axis=0)) / terms.unit_stds * math.sqrt(members - terms.colluding))
            for portion, variance, seen in zip(back, terms.portions[1:], told, strict=False):
                seen.append(left[-1] * portion / terms.unit_stds / math.sqrt(variance))
    z = np.array(left)
    most = float(special_functions().gammaincinv(z.size / 2, 1e-9))
    scale = math.sqrt(float((z * z).sum()) / 2 / (z.size / 2))
    if float((z * z).sum()) / 2 < most:
        return Check(name, False, 0.0, f"{scale:.3f} of the stated scale was seen in {z.size:,} numbers")
    wrong = irregular("vector", z)
    for products in (np.array(one) for one in told if one):
        if abs(float(products.mean())) > 6.5 / math.sqrt(products.size):
            wrong = f"what is told of excess noise has a correlation of {float(products.mean()):.2f} with what is left"
    if wrong:
        return Check(name, False, math.inf, wrong)
    if len({row.tobytes() for row in drawn}) < len(drawn):
        return Check(name, False, math.inf, "the same noise was drawn twice: two sums would tell their difference")
    return Check(name, True, 0.0, f"{z.size:,} numbers of the stated scale, none drawn twice")


class _Loud(Handed):
    """A source whose every draw is its own standard deviation."""

    def discrete_gaussian(self, std: float, size: int) -> NDArray[np.int64]:
        """That number."""
        return np.full(size, round(std), dtype=np.int64)


def _asked_for(terms: SumTerms, make: MakeSums, nothing: Sums) -> str:
    """In a sum over how many clients shares are too small for those who do not collude; "" if in none. Exact."""
    stream = make(terms, 0)
    stream.source = lambda _: _Loud()
    words = stream.contribute(1, 0, nothing).view(np.int64)
    told = stream.excess.view(np.int64)
    portions = np.vstack([words - told.sum(axis=0), told]) / terms.unit_stds
    for members in terms.levels:
        kept = np.delete(portions, np.s_[1 : 1 + terms.taken_back(members)], axis=0)
        scale = math.sqrt(float((kept**2).sum(axis=0).min()) * (members - terms.colluding))
        if scale < 1 - 1e-3:  # draws are whole numbers of 2¹² or more
            return f"{scale:.3f} of the stated scale is asked for in a sum over {members} clients"
    return ""


def published_check(privacy: PrivateStatistics, limits: RecordLimits, claim: Guarantee) -> Check:
    """The exact ε of all that a trusted coordinator publishes, for twice as long as was planned, and in crashes."""
    publications = 2 * min(privacy.mechanisms[0].n_max, 64)
    tame = Sums(np.eye(limits.dim), np.ones(limits.dim), 1)
    one, other = (
        [_one(record), *[tame] * (publications - 1)]
        for record in next(iter(pairs_of(limits, privacy.mechanisms[0]).values()))
    )
    true = max(published_epsilon(privacy, one, other, claim.delta, crashes=crashes) for crashes in (False, True))
    passed = true <= claim.epsilon * TOLERANCE
    detail = f"{publications} publications, also with a crash after each: ε = {true:.4f} for all of them"
    return Check("coordinator, publications", passed, 0.0 if passed else true, detail, computed=true)


def published_epsilon(
    privacy: PrivateStatistics, one: Sequence[Sums], other: Sequence[Sums], delta: float, *, crashes: bool = False
) -> float:
    """The exact ε of a published total in two worlds, in which a trusted coordinator is told this, one by one."""
    handed = []
    for told in (one, other):
        source = Handed()
        total = _total(privacy, source)
        for sums in told:
            total.add(sums)
            total.publish()
            if crashes:
                saved, total = total.state(), _total(privacy, source)
                total.restore({key: np.asarray(value) for key, value in saved.items()})
        handed.append((np.array(source.values), np.array(source.scales)))
    (first, scales), (second, also) = handed
    if first.shape != second.shape or (scales != also).any():
        return math.inf
    if not scales.size:
        return 0.0
    stated = replace(privacy.mechanisms[0], delta=delta)
    return epsilon_of_shift(stated, (first - second) / scales[:, None, None])


def _total(privacy: PrivateStatistics, source: Source) -> PublishedTotal:
    total = privacy.total(lambda _: source)
    assert isinstance(total, PublishedTotal)
    return total
