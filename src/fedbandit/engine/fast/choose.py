"""From a plan and a row of statistics to an arm: sampled parameters, and the branch between the compiled choosers."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedbandit.engine.fast.algebra import dot, dot_each, part_of, winner
from fedbandit.engine.fast.choose_ucb import choose_squared, choose_ucb, choose_widest
from fedbandit.engine.fast.coarse import Coarse, coarse_copy, no_copy
from fedbandit.engine.fast.jit import compiled_apart, compiled_inline, compiled_lean
from fedbandit.engine.fast.known import Code
from fedbandit.engine.fast.packed import multiply_packed, unpack
from fedbandit.engine.fast.plan import PolicyPlan, sampling_width
from fedbandit.engine.fast.row import STEPS, base_of, inverse_of, theta_of
from fedbandit.engine.fast.statistics import add_pending_unpacked, scratch_matrix
from fedbandit.engine.fast.streams import normal, uniform_index
from fedbandit.types import Array, Ints


@compiled_lean
def cholesky(A: Array, L: Array) -> None:
    """Write to L the lower triangular factor of a positive *semi*-definite A: L Lᵀ = A.

    A pivot that is zero to rounding has nothing below it either, since A is semi-definite; its column is left zero.
    """
    d = A.shape[0]
    largest = 0.0
    for i in range(d):
        largest = max(largest, A[i, i])
    for i in range(d):
        for j in range(i):
            rest = A[i, j] - dot(L[i, :j], L[j, :j])
            L[i, j] = rest / L[j, j] if L[j, j] > 0.0 else 0.0
        pivot = A[i, i] - dot(L[i, :i], L[i, :i])
        L[i, i] = math.sqrt(pivot) if pivot > 1e-12 * largest else 0.0


@compiled_lean
def spread_thompson(plan: PolicyPlan, row: Array, z: Array, M: Array, theta: Array, V: Array) -> None:
    """θ = θ̂ + α L z with L Lᵀ = V(λ)⁻¹; M and V may be larger than d."""
    alpha = sampling_width(plan, row)
    d = z.shape[0]
    A = part_of(V, d, d)
    unpack(inverse_of(row, d), A)
    cholesky(A, M)
    estimate = theta_of(row, d)
    for i in range(d):
        theta[i] = estimate[i] + alpha * dot(M[i, : i + 1], z[: i + 1])


@compiled_lean
def spread_perturbed(plan: PolicyPlan, row: Array, z: Array, M: Array, theta: Array, V: Array) -> None:
    """θ = θ̂ + α V(λ)⁻¹ L z with L Lᵀ = V (without ridge); M and V may be larger than d."""
    d = z.shape[0]
    alpha = sampling_width(plan, row)
    A = part_of(V, d, d)
    unpack(base_of(row, d), A)
    add_pending_unpacked(row, d, A)
    cholesky(A, M)
    perturbed = M[d, :d]
    for i in range(d):
        perturbed[i] = alpha * dot(M[i, : i + 1], z[: i + 1])
    multiply_packed(inverse_of(row, d), perturbed, theta)
    estimate = theta_of(row, d)
    for i in range(d):
        theta[i] += estimate[i]


UNIFORM, GREEDY, UCB = int(Code.UNIFORM), int(Code.GREEDY), int(Code.UCB)
THOMPSON, PERTURBED, SQUARED, WIDEST = int(Code.THOMPSON), int(Code.PERTURBED), int(Code.SQUARED), int(Code.WIDEST)


class Scratch(NamedTuple):
    """Memory that a chooser writes to, allocated once."""

    scores: Array  # (K rounded up to fours,)
    forms: Array  # (K rounded up to fours,)
    u: Array  # (d,)
    best_u: Array  # (d,)  V(λ)⁻¹ x of the arm chosen
    theta: Array  # (d,)  sampled parameter
    z: Array  # (d,)
    M: Array  # as `scratch_matrix`
    V: Array  # (d, d)
    coarse: Coarse


def scratch(n_arms: int, dim: int) -> Scratch:
    """Memory for sets of up to `n_arms` arms."""
    vectors = [np.zeros(size) for size in (n_arms + -n_arms % 4, n_arms + -n_arms % 4, dim, dim, dim, dim)]
    return Scratch._make((*vectors, scratch_matrix(dim), np.zeros((dim, dim)), no_copy(np.zeros((0, dim)))))


def ready_for(work: Scratch, X: Array, offers: int) -> Scratch:
    """The same memory, with a copy of the contexts that are offered next if that will be of use."""
    return work if work.coarse.of is X else work._replace(coarse=coarse_copy(X, offers))


@compiled_lean
def choose_best_mean(theta: Array, X: Array, arms: Ints, scores: Array) -> int:
    """The lowest index within TIE of the largest xᵀθ."""
    dot_each(theta, X, arms, scores)
    return winner(scores, arms.shape[0])


@compiled_apart
def choose_other(plan: PolicyPlan, row: Array, client: int, step: int, X: Array, arms: Ints, work: Scratch) -> int:
    """`choose_at` for every policy but UCB."""
    d = X.shape[1]
    if plan.code == UNIFORM:
        a = uniform_index(plan.key, client, step, arms.shape[0])
    elif plan.code == GREEDY:
        a = choose_best_mean(theta_of(row, d), X, arms, work.scores)
    elif plan.code == SQUARED:
        a = choose_squared(plan, row, X, arms, work.scores, work.u)
    elif plan.code == WIDEST:
        a = choose_widest(inverse_of(row, d), X, arms, work.scores)
    elif plan.code == THOMPSON:
        normal(plan.key, client, step, work.z)
        spread_thompson(plan, row, work.z, work.M, work.theta, work.V)
        a = choose_best_mean(work.theta, X, arms, work.scores)
    elif plan.code == PERTURBED:
        normal(plan.key, client, step, work.z)
        spread_perturbed(plan, row, work.z, work.M, work.theta, work.V)
        a = choose_best_mean(work.theta, X, arms, work.scores)
    else:
        raise NotImplementedError("a policy without a kernel")
    multiply_packed(inverse_of(row, d), X[arms[a]], work.best_u)
    return a


@compiled_inline
def choose_at(plan: PolicyPlan, row: Array, client: int, step: int, X: Array, arms: Ints, work: Scratch) -> int:
    """The position in `arms` (row numbers of X) of the arm to pull; its V(λ)⁻¹x is left in `work.best_u`.

    `step` is the position in the client's random stream. Ties go to the lowest position within 1e-9 of the largest
    score.
    """
    if plan.code == UCB:
        return choose_ucb(plan, row, X, work.coarse, arms, work.scores, work.u, work.best_u, work.forms)
    return choose_other(plan, row, client, step, X, arms, work)


@compiled_inline
def choose(plan: PolicyPlan, row: Array, client: int, X: Array, arms: Ints, work: Scratch) -> int:
    """`choose_at` the next step of the row."""
    a = choose_at(plan, row, client, int(row[STEPS]), X, arms, work)
    row[STEPS] += 1
    return a
