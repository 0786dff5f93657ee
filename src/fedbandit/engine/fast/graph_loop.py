"""The compiled loop of models on a graph of users: choose with a block of P, learn by a rank-one change of all of it.

Theory of operation
-------------------
See `structures.user_graph` for P. An interaction changes all (dN)² entries of P, but the next one reads only the block
of its own user and, once the arm is chosen, that user's columns. So changes are kept as vectors, P = stored − Σ c cᵀ,
and m of them at a time are folded into the stored matrix by one BLAS product: an interaction costs O(m d²) for the
block, O(dN d + m dN) for v = P (e_u ⊗ x), and its share of the product. Only the lower triangle is stored.

Noise in the sums s_u (privacy) changes estimates only: θ̃ = P (vec(s) + h) + g with `shift` h and `lift` g.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedbandit.engine.fast.algebra import copy, dot, matrix_in, multiply, part_of, spectral_bound
from fedbandit.engine.fast.choose import Scratch, choose
from fedbandit.engine.fast.delayed import Late, send_later
from fedbandit.engine.fast.inversion import invert
from fedbandit.engine.fast.jit import compiled_free, compiled_inline, compiled_lean
from fedbandit.engine.fast.outcome import pull
from fedbandit.engine.fast.packed import add_to_diagonal, pack
from fedbandit.engine.fast.plan import PolicyPlan
from fedbandit.engine.fast.rewards import learnt
from fedbandit.engine.fast.rules import DONE, EVENT, REFUSED, Pause
from fedbandit.engine.fast.sampling import cholesky
from fedbandit.engine.fast.statistics import BIAS, LOGDET, SPECTRAL, STEPS, base_of, inverse_of, theta_of
from fedbandit.engine.outcome import Outcome
from fedbandit.environments.block import Block
from fedbandit.rewards import RewardPlan
from fedbandit.types import Array, Ints

CHANGES = 64
"""How many changes are kept before they are folded into P."""

SMALL = 400
"""Sizes dN up to which that is not left to BLAS."""

BOUND_EVERY = 8
"""A user's spectral bound is computed afresh in every so many of its steps: P_uu only shrinks, so an old one holds."""

FOLD = 16  # beyond the codes of `rules.Status`


class Kernel(NamedTuple):
    """All that a model on a graph knows."""

    P: Array  # (dN, dN)      lower triangle, without the changes
    changes: Array  # (CHANGES, dN)
    theta: Array  # (dN,)         P vec(s), without noise
    V: Array  # (N, d, d)     Σ x xᵀ of each user
    s: Array  # (N, d)        Σ x y of each user
    spectral: Array  # (N,)          an upper bound of λ_max(P_uu)
    steps: Ints  # (N,)          arms chosen
    own: Ints  # (N,)          observations
    logdet: Array  # (1,)          log det A/det λI
    kept: Ints  # (1,)          changes in use
    shift: Array  # (dN,)         h, or (0,)
    lift: Array  # (dN,)         g, or (0,)
    variance: Array  # (N,)          of a coordinate of each user's noise
    wider: Array  # (1,)          what the noise adds to the width, where that is given
    rows: Array  # (d, dN)       room for (P_u1, …, P_uN), or (0, 0)


class GraphRules(NamedTuple):
    """What the loop has to know beside the model."""

    bias: Array  # (N,) what each user's width has beyond √λ
    start: Array  # (N,) P_uu(0) = start · I
    whole: bool  # widths are those of the whole model
    spread: float  # how many times its root mean square the width takes noise to be
    effective: bool  # the policy needs the effective statistics V = P_uu⁻¹ − λI too
    noisy: bool  # return after each observation, for new noise
    perturbed: bool
    rewards: RewardPlan


def empty_kernel(K: Array, dim: int, ridge: float, *, noisy: bool, lifted: bool) -> Kernel:
    """The model of no observations: P = K ⊗ I/λ."""
    N = len(K)
    return Kernel(
        P=np.asarray(np.kron(K, np.eye(dim)) / ridge, dtype=np.float64),
        changes=np.zeros((CHANGES, N * dim)),
        theta=np.zeros(N * dim),
        V=np.zeros((N, dim, dim)),
        s=np.zeros((N, dim)),
        spectral=np.diagonal(K) / ridge,
        steps=np.zeros(N, dtype=np.int64),
        own=np.zeros(N, dtype=np.int64),
        logdet=np.zeros(1),
        kept=np.zeros(1, dtype=np.int64),
        shift=np.zeros(N * dim if noisy else 0),
        lift=np.zeros(N * dim if lifted else 0),
        variance=np.zeros(N),
        wider=np.zeros(1),
        rows=np.zeros((dim, N * dim) if noisy else (0, 0)),
    )


@compiled_lean
def read_block(kernel: Kernel, u: int, d: int, out: Array) -> None:
    """P_uu, with the changes."""
    first = u * d
    for i in range(d):
        row = kernel.P[first + i]
        for k in range(i + 1):
            out[i, k] = row[first + k]
    for m in range(kernel.kept[0]):
        c = kernel.changes[m, first : first + d]
        for i in range(d):
            ci = c[i]
            for k in range(i + 1):
                out[i, k] -= ci * c[k]
    for i in range(d):
        for k in range(i):
            out[k, i] = out[i, k]


@compiled_lean
def read_column(kernel: Kernel, u: int, x: Array, own: Array, v: Array) -> None:
    """V = P (e_u ⊗ x), of which block u is known: `own`."""
    d = x.shape[0]
    first = u * d
    after = first + d
    for k in range(first):
        v[k] = 0.0
    for i in range(d):
        row = kernel.P[first + i]
        xi = x[i]
        for k in range(first):
            v[k] += xi * row[k]
    for k in range(after, v.shape[0]):
        v[k] = dot(kernel.P[k, first:after], x)
    for m in range(kernel.kept[0]):
        c = kernel.changes[m]
        scale = dot(c[first:after], x)
        for k in range(v.shape[0]):
            v[k] -= scale * c[k]
    for i in range(d):
        v[first + i] = own[i]


@compiled_lean
def read_rows(kernel: Kernel, u: int, block: Array, out: Array) -> None:
    """(P_u1, …, P_uN), given P_uu."""
    d = block.shape[0]
    first = u * d
    after = first + d
    for i in range(d):
        row = out[i]
        for k in range(first):
            row[k] = kernel.P[first + i, k]
        for k in range(after, row.shape[0]):
            row[k] = kernel.P[k, first + i]
        for m in range(kernel.kept[0]):
            c = kernel.changes[m]
            ci = c[first + i]
            for k in range(row.shape[0]):
                row[k] -= ci * c[k]
        for k in range(d):
            row[first + k] = block[i, k]


@compiled_lean
def noise_radius(rows: Array, block: Array, variance: Array, work: Scratch) -> float:
    """√(Σ_j s_j² tr P_uu⁻¹ P_uj P_ju): the root mean square of the noise in θ̃_u, in the norm of P_uu⁻¹."""
    d = block.shape[0]
    precision = work.V
    for i in range(d):
        copy(block[i], precision[i])
    invert(precision, work.M)
    total = 0.0
    for i in range(d):
        for k in range(i + 1):
            entry = 0.0
            for j in range(variance.shape[0]):
                if variance[j] > 0.0:
                    entry += variance[j] * dot(rows[i, j * d : (j + 1) * d], rows[k, j * d : (j + 1) * d])
            total += entry * precision[i, k] * (1.0 if i == k else 2.0)
    return math.sqrt(max(total, 0.0))


@compiled_lean
def add_noise(kernel: Kernel, rules: GraphRules, u: int, block: Array, theta: Array, work: Scratch) -> float:
    """Theta += block u of P h + g, given P_uu; what the noise adds to the width."""
    d = theta.shape[0]
    read_rows(kernel, u, block, kernel.rows)
    for i in range(d):
        theta[i] += dot(kernel.rows[i], kernel.shift)
    if kernel.lift.shape[0] > 0:
        for i in range(d):
            theta[i] += kernel.lift[u * d + i]
        return kernel.wider[0]
    return rules.spread * noise_radius(kernel.rows, block, kernel.variance, work)


@compiled_lean
def own_logdet(block: Array, start: float, L: Array) -> float:
    """log det P_uu(0) − log det P_uu, with P_uu(0) = start · I."""
    cholesky(block, L)
    total = 0.0
    for i in range(block.shape[0]):
        total += math.log(start / (L[i, i] * L[i, i]))
    return total


@compiled_lean
def seat_user(kernel: Kernel, rules: GraphRules, plan: PolicyPlan, u: int, d: int, bench: Array, work: Scratch) -> None:
    """Make `bench` the row of user u: what a policy scores arms with."""
    block = matrix_in(work.M, d + 9, d)  # what is before that is scratch of others
    read_block(kernel, u, d, block)
    pack(block, inverse_of(bench, d))
    theta = theta_of(bench, d)
    copy(kernel.theta[u * d : (u + 1) * d], theta)
    bench[BIAS] = rules.bias[u]
    if kernel.shift.shape[0] > 0:
        bench[BIAS] += add_noise(kernel, rules, u, block, theta, work)
    bench[LOGDET] = kernel.logdet[0]
    if not rules.whole and math.isnan(plan.alpha):
        bench[LOGDET] = own_logdet(block, rules.start[u], work.M)
    bench[STEPS] = kernel.steps[u]
    if rules.effective:
        V = part_of(work.V, d, d)
        for i in range(d):
            copy(block[i], V[i])
        invert(V, work.M)
        pack(V, base_of(bench, d))
        add_to_diagonal(base_of(bench, d), d, -plan.ridge)
    if kernel.steps[u] % BOUND_EVERY == 0:
        kernel.spectral[u] = min(kernel.spectral[u], spectral_bound(block, work.M))
    bench[SPECTRAL] = kernel.spectral[u]


@compiled_lean
def fold_small(kernel: Kernel) -> None:
    """P −= Σ c cᵀ without BLAS, whose threads cost more than a small product does."""
    m = kernel.kept[0]
    for i in range(kernel.P.shape[0]):
        row = kernel.P[i]
        for q in range(m):
            c = kernel.changes[q]
            ci = c[i]
            for k in range(i + 1):
                row[k] -= ci * c[k]
    kernel.kept[0] = 0


@compiled_inline
def learn(kernel: Kernel, u: int, x: Array, y: float, v: Array, d: int) -> None:
    """Add user u's observation (x, y), given v = P (e_u ⊗ x)."""
    first = u * d
    growth = 1.0 + dot(x, v[first : first + d])
    step = (y - dot(x, kernel.theta[first : first + d])) / growth
    scale = 1.0 / math.sqrt(growth)
    change = kernel.changes[kernel.kept[0]]
    for k in range(v.shape[0]):
        kernel.theta[k] += step * v[k]
        change[k] = scale * v[k]
    kernel.kept[0] += 1
    kernel.logdet[0] += math.log(growth)
    kernel.own[u] += 1
    V, total = kernel.V[u], kernel.s[u]
    for i in range(d):
        total[i] += y * x[i]
        for k in range(d):
            V[i, k] += x[i] * x[k]


@compiled_free
def run_graph(
    start: int,
    stop: int,
    before: int,
    block: Block,
    kernel: Kernel,
    bench: Array,
    column: Array,
    late: Late,
    plan: PolicyPlan,
    rules: GraphRules,
    work: Scratch,
    out: Outcome,
) -> Pause:
    """Interactions start, …, stop − 1 of a block that `before` interactions precede, until Python is needed."""
    ring = late.first.shape[0]
    delayed = block.delays.shape[0] > 0
    d = block.X.shape[1]
    s = start
    while s < stop:
        if kernel.kept[0] == kernel.changes.shape[0]:
            if kernel.P.shape[0] > SMALL:
                return Pause(s, FOLD, -1, s)
            fold_small(kernel)
        now = before + s
        entry = late.first[now % ring] if delayed else -1
        acting = entry < 0
        u = block.clients[s] if acting else late.row[entry]
        at = s
        if acting:
            seat_user(kernel, rules, plan, u, d, bench, work)
            offered = block.arms[s, : block.counts[s]]
            a = choose(plan, bench, u, block.X, offered, work)
            kernel.steps[u] += 1
            x = block.X[offered[a]]
            y = pull(block, s, a, out)
            s += 1
            if delayed and block.delays[at] > 0:
                send_later(late, now, block.delays[at], u, x, y)
                continue
        else:
            late.first[now % ring] = late.following[entry]
            x = late.x[entry]
            y = late.y[entry]
            whole = matrix_in(work.M, 0, d)
            read_block(kernel, u, d, whole)
            multiply(whole, x, work.best_u)
        if rules.perturbed:
            y = learnt(rules.rewards, y, u, kernel.own[u])
            if math.isnan(y):
                return Pause(s, REFUSED, u, at)
        read_column(kernel, u, x, work.best_u, column)
        learn(kernel, u, x, y, column, d)
        if rules.noisy:
            return Pause(s, EVENT, u, at)
    return Pause(stop, DONE, -1, stop)
