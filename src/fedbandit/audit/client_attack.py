"""Attacks on a real client machine: paired runs on neighbouring histories with the same random numbers.

Noise cancels in a pair, so the difference of what is released is exact, and everything that is not noised must be the
same to the bit. What is left to chance is only the scale of the noise, for which there is an exact interval.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from itertools import product

import numpy as np

from fedbandit.audit.likelihood import (
    Handed,
    clopper_pearson,
    epsilon_of_shift,
    independent_numbers,
    irregular,
    scale_interval,
    whiten,
)
from fedbandit.audit.mechanism_attack import increments_of
from fedbandit.audit.neighbours import History, RecordLimits, pairs_of, some_history, unrewarded, with_first
from fedbandit.audit.observer import MakeMachine, Seen, noised_rewards, observe_client
from fedbandit.audit.report import CONFIDENCE, TOLERANCE, Check
from fedbandit.messages import Collect, Upload, encode
from fedbandit.privacy.guarantee import Guarantee
from fedbandit.privacy.mechanism import Mechanism, stack
from fedbandit.types import Array

SPREADS = (1.0, 0.3, 0.05)
"""Of the histories in which triggers are watched: the closer to one direction, the more a single record matters."""
REPEATS = 60
TINY = 1e-9
"""Runs in each world once something was seen that tells them apart."""


def contents_check(
    make: MakeMachine,
    mechanism: Mechanism,
    limits: RecordLimits,
    claim: Guarantee,
    rng: np.random.Generator,
    *,
    records: int,
    rounds: int,
    runs: int,
    calls: Collection[int] = (),
) -> Check:
    """How far apart the releases of neighbouring histories are, in units of the noise that is really there."""
    one, other = next(iter(pairs_of(limits, mechanism).values()))
    rest = some_history(limits, rounds, rng)
    histories = with_first(rest, one, records), with_first(rest, other, records)
    seen = [[observe_client(make(seed), history, calls=calls) for history in histories] for seed in range(runs)]
    name = "client, contents"
    if any(a.n != b.n for a, b in seen):
        return Check(name, False, 0.0, "neighbouring histories were released in different portions")
    if sum(seen[0][0].n) > rounds:
        return Check(name, False, 0.0, f"{sum(seen[0][0].n)} interactions were released, but there were {rounds}")
    seen = [[first_stream(mechanism, one) for one in pair] for pair in seen]
    if not seen[0][0].n:
        return Check(name, False, 0.0, f"nothing was released in {rounds} rounds; audit a longer horizon")
    shifts = np.stack([released_sums(mechanism, b) - released_sums(mechanism, a) for a, b in seen], axis=1)
    if np.ptp(shifts, axis=1).max() > 1e-6 * mechanism.scale:
        return Check(name, False, 0.0, "how much noise was drawn depends on the data")
    portions = portions_of(mechanism, histories[0], seen[0][0])
    moved = whiten(mechanism, np.zeros_like(portions), shifts[:, :1])
    z = whiten(mechanism, portions, np.stack([released_sums(mechanism, a) for a, _ in seen], axis=1))
    low, high = released_scale(mechanism, z)
    if records == 1 and mechanism.noise != "gamma":  # otherwise releases may have been passed over
        numbers = independent_numbers(mechanism, z)
        wrong = irregular(mechanism.noise, numbers[:, :-1] if mechanism.noise == "symmetric" else numbers)
        if wrong:
            return Check(name, False, math.inf, f"of the noise of a release: {wrong}")
    stated = replace(mechanism, delta=claim.delta)
    exact, bound = (epsilon_of_shift(stated, moved / scale) for scale in (1.0, high))
    return Check(
        name,
        exact <= claim.epsilon * TOLERANCE and high >= 1,
        bound,
        f"{runs} paired runs: ε = {exact:.4f} at the stated scale, of which {low:.2f}–{high:.2f} was seen",
    )


def first_stream(mechanism: Mechanism, seen: Seen) -> Seen:
    """What was released before the mechanism had to begin anew."""
    n = mechanism.n_max
    return seen._replace(V=seen.V[:n], b=seen.b[:n], n=seen.n[:n])


def released_sums(mechanism: Mechanism, seen: Seen) -> Array:
    if mechanism.noise != "symmetric":
        return seen.b
    return np.stack([stack(V, b, mechanism.reward_weight) for V, b in zip(seen.V, seen.b, strict=True)])


def portions_of(mechanism: Mechanism, history: History, seen: Seen) -> Array:
    """The exact increments."""
    ends = np.cumsum(seen.n)
    starts = ends - np.array(seen.n)
    return np.stack([increments_of(mechanism, history[i:j]) for i, j in zip(starts, ends, strict=True)])


def released_scale(mechanism: Mechanism, z: Array, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Of the numbers that were released, without the corner of a matrix."""
    if mechanism.noise == "symmetric":
        rows, columns = (index[:-1] for index in np.triu_indices(mechanism.dim + 1))
        normals = z[..., rows, columns] / np.where(rows == columns, math.sqrt(2), 1.0)
        return scale_interval(replace(mechanism, noise="vector"), normals, confidence)
    return scale_interval(mechanism, z, confidence)


def timing_check(
    make: MakeMachine,
    mechanism: Mechanism,
    limits: RecordLimits,
    rng: np.random.Generator,
    *,
    records: int,
    rounds: int,
    calls: Collection[int] = (),
    hears: bool | None = True,
    padded: bool = False,
) -> Check:
    """Whether anything that is not noised depends on a record: times, kinds and numbers of messages, other fields.

    Also after downloads, and in histories without any reward, where a client might think that it has nothing to say;
    and, where counts are `padded`, if the rewards of the record and of all others never come.
    """
    name, pairs = "client, times and counts", pairs_of(limits, mechanism)
    if padded:
        there = next(iter(pairs.values()))[0]
        pairs["presence"] = there, there._replace(y=math.nan)
    tried = 0
    for spread, (what, (one, other)) in product((*SPREADS, 0.0), pairs.items()):
        rest = some_history(limits, rounds, rng, spread) if spread else unrewarded(limits, rounds)
        if not spread:
            none = math.nan if what == "presence" else 0.0
            one, other = one._replace(y=limits.high), other._replace(y=none)
            rest = [record._replace(y=math.nan) for record in rest] if what == "presence" else rest
        histories = with_first(rest, one, records), with_first(rest, other, records)
        heard = hears if tried % 2 else None
        first, second = (observe_client(make(0), history, calls=calls, hears=heard).plain for history in histories)
        tried += 1
        if first != second:
            hits = [
                sum(
                    observe_client(make(seed), history, calls=calls, hears=heard).plain == second
                    for seed in range(1, REPEATS + 1)
                )
                for history in histories
            ]
            bound = _told_apart(hits[1], hits[0], REPEATS)
            said = _difference(first, second)
            return Check(name, False, bound, f"replacing one record's {what} shows without noise: {said}")
    return Check(name, True, 0.0, f"the same, to the bit, for {tried} pairs of histories of {rounds} rounds")


def _told_apart(likely: int, rare: int, trials: int) -> float:
    low, _ = clopper_pearson(np.array(likely), trials, CONFIDENCE)
    _, high = clopper_pearson(np.array(rare), trials, CONFIDENCE)
    return max(0.0, math.log(float(low) / float(high))) if low > 0 else 0.0


def _difference(first: tuple[tuple[object, ...], ...], second: tuple[tuple[object, ...], ...]) -> str:
    """The first thing that differs, in words."""
    for a, b in zip(first, second, strict=False):
        if a[:2] != b[:2]:
            return f"{a[1]} in round {a[0]}, or {b[1]} in round {b[0]}"
        if a != b:
            return f"{a[1]} in round {a[0]} with {a[2:]}, or {b[2:]}"
    return f"{len(first)} messages, or {len(second)}"


def retry_check(
    make: MakeMachine,
    limits: RecordLimits,
    rng: np.random.Generator,
    *,
    rounds: int,
    calls: Collection[int] = (),
    padded: bool = False,
) -> Check:
    """Whether what is sent again is what was sent first, and asking again gives nothing new for the same data."""
    name, client = "client, retries", make(0)
    seen = observe_client(client, some_history(limits, rounds, rng), calls=calls)
    first = dict(enumerate(seen.sent, start=1))
    for again in (1, 2):
        kept = {number: encode(upload) for number, upload in client.outbox.items()}
        if kept != {number: first[number] for number in kept} or len(kept) != len(first):
            return Check(name, False, 0.0, f"retry {again} of an upload differs from what was sent first")
    asked = make(1, Handed())  # without noise: what is released of no data is nothing
    observe_client(asked, some_history(limits, 3, rng))
    answers = [message for epoch in (10**6, 10**6 + 1) for message in asked.receive(Collect(asked.member, epoch))]
    repeated = [message.sums for message in answers[1:] if isinstance(message, Upload)]
    if any((sums.n > 0 and not padded) or max(abs(sums.V).max(), abs(sums.b).max()) > TINY for sums in repeated):
        return Check(name, False, 0.0, "asked twice, the client released the same data twice")
    return Check(name, True, 0.0, f"{len(first)} uploads, each sent again to the bit; nothing is released twice")


def long_life_check(
    make: MakeMachine,
    mechanism: Mechanism,
    limits: RecordLimits,
    claim: Guarantee,
    rng: np.random.Generator,
    *,
    records: int,
    rounds: int,
    calls: Collection[int] = (),
) -> Check:
    """A client that lives twice as long as was planned, and is asked in every round: its ε is that of all it says.

    A source that adds nothing sees what the client hands to the noise in both worlds, and with which scales. Beyond the
    releases that a mechanism is for a client has to stop, or to begin a new stream that old records are not in.
    """
    name = "client, long life"
    one, other = next(iter(pairs_of(limits, mechanism).values()))
    length = 2 * max(rounds, records)
    rest = some_history(limits, length, rng)
    asked = make(0).protocol.says == "request" or bool(calls)
    handed = []
    for record in (one, other):
        source = Handed()
        client = make(0, source)
        seen = observe_client(client, with_first(rest, record, records), ask=asked)
        handed.append((client.observed, len(seen.n), tuple(source.scales), np.array(source.values)))
    (learnt, made, scales, first), (*_, also, second) = handed
    if learnt != length:
        return Check(name, False, 0.0, f"{learnt} of {length} interactions were learnt")
    if scales != also or first.shape != second.shape or len(scales) != made:
        return Check(name, False, 0.0, f"{made} releases, but noise was drawn {len(scales)} or {len(also)} times")
    z = (first - second) / np.array(scales).reshape((-1,) + (1,) * (first.ndim - 1))
    true = epsilon_of_shift(replace(mechanism, delta=claim.delta), z)
    passed = true <= claim.epsilon * TOLERANCE
    detail = f"{made} releases in {length} rounds, ε = {true:.4f} for all of them; {learnt} learnt"
    return Check(name, passed, 0.0 if passed else true, detail)


def rewards_check(
    make: MakeMachine, mechanism: Mechanism, limits: RecordLimits, claim: Guarantee, *, rounds: int
) -> Check:
    """For noise on each reward: what the client learns from differs by the reward, and has noise of its scale."""
    one, other = pairs_of(limits, None)["reward"]
    learnt = [noised_rewards(make(0), [record] * rounds) for record in (one, other)]
    shift = learnt[0] - learnt[1]
    name = "client, noised rewards"
    if np.ptp(shift) > 1e-6 * mechanism.scale:
        return Check(name, False, 0.0, "how much noise was drawn depends on the rewards")
    low, high = scale_interval(mechanism, (learnt[0] - one.y)[:, None] / mechanism.scale, CONFIDENCE)
    exact = abs(float(shift.mean())) / mechanism.scale
    return Check(
        name,
        exact <= claim.epsilon * TOLERANCE and high >= 1,
        exact / high,
        f"{rounds:,} rewards: ε = {exact:.4f} at the stated scale, of which {low:.2f}–{high:.2f} was seen",
    )
