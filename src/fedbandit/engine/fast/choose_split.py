"""Choosing with a model in two parts: every policy, with a width for each part."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedbandit.engine.fast.algebra import copy, dot
from fedbandit.engine.fast.choose import GREEDY, THOMPSON, UCB, UNIFORM
from fedbandit.engine.fast.choose_ucb import bonus
from fedbandit.engine.fast.jit import compiled_lean
from fedbandit.engine.fast.packed import multiply_packed
from fedbandit.engine.fast.plan import PolicyPlan, noise_width, width
from fedbandit.engine.fast.sampling import spread_perturbed, spread_thompson
from fedbandit.engine.fast.split_model import cut
from fedbandit.engine.fast.statistics import SPECTRAL, STEPS, TIE, inverse_of, scratch_matrix, theta_of
from fedbandit.engine.fast.streams import normal, uniform_index
from fedbandit.engine.fast.ties import winner
from fedbandit.structures.two_part_model import Parts
from fedbandit.types import Array, Ints


class SplitScratch(NamedTuple):
    """Memory that the chooser writes to, allocated once."""

    scores: Array  # (K,)
    u_g: Array  # (d_g,)  V(λ)⁻¹x^(g) of the arm chosen
    u_l: Array  # (d_l,)
    v_g: Array  # (d_g,)
    v_l: Array  # (d_l,)
    x_l: Array  # (d_l,)
    theta_g: Array  # (d_g,)  sampled parameters
    theta_l: Array  # (d_l,)
    z: Array  # (d_g + d_l,)
    M: Array  # for the larger part
    V: Array


def split_scratch(n_arms: int, parts: Parts, dim: int) -> SplitScratch:
    """Memory for sets of up to `n_arms` arms."""
    d_g, d_l, most = parts.shared, parts.own, max(parts.shared, parts.own, dim)
    vectors = [np.zeros(size) for size in (n_arms, d_g, d_l, d_g, d_l, d_l, d_g, d_l, d_g + d_l)]
    return SplitScratch._make((*vectors, scratch_matrix(most), np.zeros((most, most))))


@compiled_lean
def mean_scores(
    theta_g: Array, theta_l: Array, X: Array, arms: Ints, parts: Parts, size: int, work: SplitScratch
) -> int:
    """Fill the scores with x^(g)ᵀθ^(g) + x^(l)ᵀθ^(l); the lowest position within TIE of the largest."""
    for a in range(arms.shape[0]):
        x = X[arms[a]]
        cut(x, parts, size, work.x_l)
        work.scores[a] = dot(theta_g, x[: parts.shared]) + dot(theta_l, work.x_l)
    return winner(work.scores, arms.shape[0])


@compiled_lean
def upper_bound(
    plan: PolicyPlan, row_g: Array, row_l: Array, x: Array, parts: Parts, size: int, work: SplitScratch
) -> float:
    """α_g ‖x^(g)‖ + α_l ‖x^(l)‖, each in the norm of its V(λ)⁻¹ (Async-LinUCB, Eq. 8)."""
    d_g, d_l = parts.shared, parts.own
    cut(x, parts, size, work.x_l)
    multiply_packed(inverse_of(row_g, d_g), x[:d_g], work.v_g)
    multiply_packed(inverse_of(row_l, d_l), work.x_l, work.v_l)
    first = bonus(width(plan, row_g), noise_width(plan, row_g), x[:d_g], work.v_g)
    return first + bonus(width(plan, row_l), 0.0, work.x_l, work.v_l)


@compiled_lean
def choose_split_ucb(
    plan: PolicyPlan, row_g: Array, row_l: Array, X: Array, arms: Ints, parts: Parts, size: int, work: SplitScratch
) -> int:
    """The arm with the largest bound. Arms that cannot have it are not scored, as in `choose_ucb`."""
    first = mean_scores(theta_of(row_g, parts.shared), theta_of(row_l, parts.own), X, arms, parts, size, work)
    s = row_g[SPECTRAL]
    reach = (
        width(plan, row_g) * math.sqrt(s)
        + noise_width(plan, row_g) * s
        + width(plan, row_l) * math.sqrt(row_l[SPECTRAL])
    )
    reach *= plan.bound
    best = work.scores[first] + upper_bound(plan, row_g, row_l, X[arms[first]], parts, size, work)
    for a in range(arms.shape[0]):
        if a == first:
            work.scores[a] = best
        elif work.scores[a] + reach < best - TIE:
            work.scores[a] = -math.inf
        else:
            work.scores[a] += upper_bound(plan, row_g, row_l, X[arms[a]], parts, size, work)
            best = max(best, work.scores[a])
    return winner(work.scores, arms.shape[0])


@compiled_lean
def choose_split(
    plan: PolicyPlan,
    row_g: Array,
    row_l: Array,
    client: int,
    X: Array,
    arms: Ints,
    parts: Parts,
    size: int,
    work: SplitScratch,
) -> int:
    """The position of the arm to pull; V(λ)⁻¹x of its two parts is left in `work`, and x^(l) too."""
    d_g, d_l = parts.shared, parts.own
    step = int(row_g[STEPS])
    if plan.code == UCB:
        a = choose_split_ucb(plan, row_g, row_l, X, arms, parts, size, work)
    elif plan.code == UNIFORM:
        a = uniform_index(plan.key, client, step, arms.shape[0])
    else:
        copy(theta_of(row_g, d_g), work.theta_g)
        copy(theta_of(row_l, d_l), work.theta_l)
        if plan.code != GREEDY:
            normal(plan.key, client, step, work.z)
            if plan.code == THOMPSON:
                spread_thompson(plan, row_g, work.z[:d_g], work.M, work.theta_g, work.V)
                spread_thompson(plan, row_l, work.z[d_g:], work.M, work.theta_l, work.V)
            else:
                spread_perturbed(plan, row_g, work.z[:d_g], work.M, work.theta_g, work.V)
                spread_perturbed(plan, row_l, work.z[d_g:], work.M, work.theta_l, work.V)
        a = mean_scores(work.theta_g, work.theta_l, X, arms, parts, size, work)
    x = X[arms[a]]
    cut(x, parts, size, work.x_l)
    multiply_packed(inverse_of(row_g, d_g), x[:d_g], work.u_g)
    multiply_packed(inverse_of(row_l, d_l), work.x_l, work.u_l)
    row_g[STEPS] += 1
    return a
