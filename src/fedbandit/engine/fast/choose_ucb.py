"""LinUCB, FCLUB's bonus and the widest arm, compiled."""

from __future__ import annotations

import math

from fedbandit.engine.fast.algebra import add_scaled, clear, dot, dot_each, largest, winner
from fedbandit.engine.fast.coarse import Coarse, find_means
from fedbandit.engine.fast.jit import compiled_apart, compiled_inline, compiled_lean
from fedbandit.engine.fast.packed import multiply_packed, square_four_packed, square_packed
from fedbandit.engine.fast.plan import PolicyPlan, noise_width, width
from fedbandit.engine.fast.row import LOGDET, SPECTRAL, N, inverse_of, theta_of
from fedbandit.engine.fast.switches import has
from fedbandit.model import TIE
from fedbandit.types import Array, Ints

BOUND, BLIND = has("spectral-bound"), has("blind-choices")

LONG = 40
"""From this length of contexts on the widths of all arms that may win are computed at once."""


@compiled_inline
def bonus(alpha: float, nu: float, x: Array, u: Array) -> float:
    """α √(xᵀu) + ν ‖u‖ with u = V(λ)⁻¹x."""
    spread = alpha * math.sqrt(max(dot(x, u), 0.0))
    return spread if nu == 0.0 else spread + nu * math.sqrt(dot(u, u))


@compiled_inline
def bonus_of(alpha: float, nu: float, x: Array, inverse: Array, u: Array) -> float:
    """The same; u, which is scratch, is computed only where it is needed."""
    if nu == 0.0:
        return alpha * math.sqrt(max(square_packed(inverse, x), 0.0))
    multiply_packed(inverse, x, u)
    return bonus(alpha, nu, x, u)


@compiled_lean
def choose_blindly(reach: float, bound: float, scale: float, X: Array, arms: Ints, scores: Array, best_u: Array) -> int:
    """`choose_ucb` for a model that knows nothing: θ̂ = 0 and V(λ)⁻¹ = scale · I. Most of a million clients do.

    Bounds are reach · ‖x‖; if the first arm is as long as any may be, as all are on a sphere, it wins.
    """
    n = arms.shape[0]
    a = 0
    first = X[arms[0]]
    if reach * math.sqrt(dot(first, first)) < reach * bound - TIE:
        for k in range(n):
            scores[k] = dot(X[arms[k]], X[arms[k]])
        enough = reach * math.sqrt(largest(scores, n)) - TIE
        while a < n - 1 and reach * math.sqrt(scores[a]) < enough:
            a += 1
    clear(best_u)
    add_scaled(X[arms[a]], scale, best_u)
    return a


@compiled_apart
def square_in_fours(inverse: Array, X: Array, arms: Ints, scores: Array, least: float, u: Array, forms: Array) -> None:
    """forms[a] = xᵀV(λ)⁻¹x for the arms with scores[a] ≥ least, four at a time; u is scratch."""
    n, b, c, e, f = 0, 0, 0, 0, 0
    for a in range(arms.shape[0]):
        if scores[a] >= least:
            n, b, c, e, f = n + 1, c, e, f, a
            if n == 4:
                square_four_packed(inverse, X[arms[b]], X[arms[c]], X[arms[e]], X[arms[f]], u)
                forms[b], forms[c], forms[e], forms[f] = u[0], u[1], u[2], u[3]
                n = 0
    for _ in range(n):
        forms[f] = square_packed(inverse, X[arms[f]])
        e, f = c, e


@compiled_lean
def choose_ucb(
    plan: PolicyPlan,
    row: Array,
    X: Array,
    coarse: Coarse,
    arms: Ints,
    scores: Array,
    u: Array,
    best_u: Array,
    forms: Array,
) -> int:
    """The arm with the largest bound; its V(λ)⁻¹x is left in `best_u`.

    Exact, but most arms cost only their mean: with s ≥ λ_max(V(λ)⁻¹) no bound exceeds mean + (α s^½ + ν s) ‖x‖, and an
    arm for which that is below the best bound found so far is skipped. (s from the last refresh stays valid while V
    grows.) Means are computed coarsely first if there is a copy of X for that, and exactly where they count.
    """
    d = X.shape[1]
    alpha = width(plan, row)
    theta = theta_of(row, d)
    inverse = inverse_of(row, d)
    nu = noise_width(plan, row)
    if BLIND and row[N] == 0 and row[LOGDET] == 0.0 and dot(theta, theta) == 0.0:
        scale = inverse[0]
        return choose_blindly(alpha * math.sqrt(scale) + nu * scale, plan.bound, scale, X, arms, scores, best_u)
    reach = (alpha * math.sqrt(row[SPECTRAL]) + nu * row[SPECTRAL]) * plan.bound if BOUND else math.inf
    doubt = find_means(theta, coarse, arms, plan.bound, scores) if coarse.X.shape[0] > 0 else math.inf
    coarsely = doubt < math.inf
    if coarsely:
        reach += doubt
    else:
        dot_each(theta, X, arms, scores)
    # The largest mean first: it usually wins, and its bound lets the others be skipped.
    best = largest(scores, arms.shape[0])
    first = 0
    while first < arms.shape[0] - 1 and scores[first] < best:
        first += 1
    x = X[arms[first]]
    multiply_packed(inverse, x, best_u)
    best = (dot(theta, x) if coarsely else scores[first]) + bonus(alpha, nu, x, best_u)
    leader, second = first, -math.inf
    at_once = nu == 0.0 and d >= LONG
    if at_once:
        scores[first] = -math.inf  # done already
        square_in_fours(inverse, X, arms, scores, best - TIE - reach, u, forms)
    scores[first] = best
    for a in range(arms.shape[0]):
        if scores[a] + reach >= best - TIE and a != first:
            x = X[arms[a]]
            mean = dot(theta, x) if coarsely else scores[a]
            if at_once:
                scores[a] = mean + alpha * math.sqrt(max(forms[a], 0.0))
            else:
                scores[a] = mean + bonus_of(alpha, nu, x, inverse, u)
            second = max(second, min(best, scores[a]))
            if scores[a] > best:
                best = scores[a]
                leader = a
    if second >= best - TIE:
        for a in range(leader):
            if scores[a] >= best - TIE:
                leader = a
                break
    if leader != first:
        multiply_packed(inverse, X[arms[leader]], best_u)
    return leader


@compiled_lean
def choose_squared(plan: PolicyPlan, row: Array, X: Array, arms: Ints, scores: Array, u: Array) -> int:
    """The lowest index within TIE of the largest score."""
    d = X.shape[1]
    alpha = width(plan, row)
    dot_each(theta_of(row, d), X, arms, scores)
    for a in range(arms.shape[0]):
        x = X[arms[a]]
        multiply_packed(inverse_of(row, d), x, u)
        scores[a] += alpha * dot(x, u)
    return winner(scores, arms.shape[0])


@compiled_lean
def choose_widest(inverse: Array, X: Array, arms: Ints, scores: Array) -> int:
    """The lowest index within TIE of the largest ‖x‖_{V(λ)⁻¹}."""
    for a in range(arms.shape[0]):
        scores[a] = math.sqrt(max(square_packed(inverse, X[arms[a]]), 0.0))
    return winner(scores, arms.shape[0])
