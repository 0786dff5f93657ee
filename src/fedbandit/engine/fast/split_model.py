"""A model in two parts, one shared by all clients and one of the client's own, learnt by alternating minimisation.

    E y = θ^(g)ᵀ x^(g) + θ^(i)ᵀ x^(l)                                                    (Async-LinUCB, Eq. 2)

Each part is an ordinary row of ridge statistics. An observation (x, y) is split into partial rewards ŷ^(g), ŷ^(l), and
each row observes its own (Alg. 3 lines 9–10). The alternation that finds them (Eq. 7) is

    start     θ̂^(g), θ̂^(l) as they are before the observation
    repeat    θ̂^(l) ← ridge regression with (x^(l), ŷ^(l)) added, ŷ^(l) = y − x^(g)ᵀθ̂^(g)
              θ̂^(g) ← ridge regression with (x^(g), ŷ^(g)) added, ŷ^(g) = y − x^(l)ᵀθ̂^(l)
    until     it does not change any more.

With p = xᵀθ̂ before and q = xᵀV(λ)⁻¹x of each part, ridge regression takes xᵀθ̂ to (p + q ŷ)/(1 + q). So the alternation
is a recursion of two numbers that contracts by q_g q_l/((1+q_g)(1+q_l)) < 1, to the same limit from any start:

    r = (y − p_g − p_l)/(1 + q_g + q_l),    ŷ^(g) = p_g + (1 + q_g) r,    ŷ^(l) = p_l + (1 + q_l) r.

That limit is computed directly (`split_reward`). The start-up (Alg. 5) ends with the same alternation on all of a
client's own data (line 12); its limit solves one linear system (`begin`), which needs V and b of these data only.

Deviations from the paper:
    D1. Ridge regression with λ in place of generalised inverses with projections to the unit ball; the alternation is
        run to its limit. (The authors' code runs 100 alternations.)
    D2. "Full rank" (Alg. 5 line 11) means: the smallest eigenvalue is above 10⁻⁶ of the largest. For a client whose two
        parts see the same features, of the contexts.
"""

from __future__ import annotations

import numpy as np

from fedbandit.engine.fast.algebra import copy, dot
from fedbandit.engine.fast.jit import compiled_inline, compiled_lean
from fedbandit.engine.fast.packed import pack, unpacked
from fedbandit.engine.fast.statistics import (
    N_LISTED,
    N_OWN,
    N_PENDING,
    STEPS,
    VERSION,
    N,
    add_pending_unpacked,
    base_b_of,
    base_of,
    folded_of,
    observe,
    pending_b_of,
    refresh,
    scratch_in,
    scratch_matrix,
    theta_of,
)
from fedbandit.structures.two_part_model import Parts
from fedbandit.types import Array

FULL_RANK = 1e-6


@compiled_inline
def cut(x: Array, parts: Parts, size: int, out: Array) -> None:
    """x^(l) of a client with d_i = size."""
    for k in range(parts.own):
        out[k] = x[parts.first + k] if k < size else 0.0


@compiled_lean
def split_reward(row_g: Array, row_l: Array, x_g: Array, x_l: Array, y: float, u_g: Array, u_l: Array) -> float:
    """The residual r of the limit of Eq. (7), given u = V(λ)⁻¹x of each part."""
    p = dot(x_g, theta_of(row_g, x_g.shape[0])) + dot(x_l, theta_of(row_l, x_l.shape[0]))
    return (y - p) / (1.0 + dot(x_g, u_g) + dot(x_l, u_l))


@compiled_lean
def observe_split(
    row_g: Array, row_l: Array, x_g: Array, x_l: Array, y: float, u_g: Array, u_l: Array, ridge: float, M: Array
) -> None:
    """Both rows observe their partial rewards; M is room for the larger one's `refresh`."""
    r = split_reward(row_g, row_l, x_g, x_l, y, u_g, u_l)
    d_g, d_l = x_g.shape[0], x_l.shape[0]
    partial_g = dot(x_g, theta_of(row_g, d_g)) + (1.0 + dot(x_g, u_g)) * r
    partial_l = dot(x_l, theta_of(row_l, d_l)) + (1.0 + dot(x_l, u_l)) * r
    observe(row_g, x_g, partial_g, u_g, ridge, scratch_in(M, d_g))
    observe(row_l, x_l, partial_l, u_l, ridge, scratch_in(M, d_l))


def full_rank(V: Array) -> bool:
    """Whether V has full rank (D2)."""
    values = np.linalg.eigvalsh(V)
    return bool(values[0] > FULL_RANK * values[-1])


def may_begin(row: Array, row_g: Array, parts: Parts, size: int, dim: int) -> bool:
    """Alg. 5 line 11: a client's own data, or what it was sent, have full rank."""
    if row_g[VERSION] > 0 and full_rank(unpacked(base_of(row_g, parts.shared), parts.shared)):
        return True
    used = np.unique(np.r_[0 : parts.shared, parts.first : parts.first + size])
    return row[N_OWN] >= used.size and full_rank(_own_data(row, dim)[np.ix_(used, used)])


def begin(row: Array, row_g: Array, row_l: Array, parts: Parts, size: int, dim: int, ridge: float) -> None:
    """Alg. 5 lines 12–14: split the data of the start-up `row` into both parts; the shared one has them pending.

    The limit of the alternation solves, with V, b what the client was sent and S = Σ x xᵀ, s = Σ x y its own data,

        (V + S_gg + λI) θ_g + S_gl θ_l = b + s_g,        S_lg θ_g + (S_ll + λI) θ_l = s_l,

    and then Σ x^(g) ŷ^(g) = s_g − S_gl θ_l, Σ x^(l) ŷ^(l) = s_l − S_lg θ_g.
    """
    d_g, d_l = parts.shared, parts.own
    S, s, n = _own_data(row, dim), base_b_of(row, dim) + pending_b_of(row, dim), int(row[N_OWN])
    G, L = slice(0, d_g), slice(parts.first, parts.first + size)
    joint = np.zeros((d_g + size, d_g + size))
    joint[:d_g, :d_g] = unpacked(base_of(row_g, d_g), d_g) + S[G, G]
    joint[:d_g, d_g:], joint[d_g:, :d_g] = S[G, L], S[L, G]
    joint[d_g:, d_g:] = S[L, L]
    theta = np.linalg.solve(joint + ridge * np.eye(d_g + size), np.r_[base_b_of(row_g, d_g) + s[G], s[L]])
    moved = s[G] - S[G, L] @ theta[d_g:]
    pack(np.ascontiguousarray(S[G, G]), folded_of(row_g, d_g))
    pending_b_of(row_g, d_g)[:] = moved
    row_g[N_LISTED] = 0
    row_g[N_PENDING] = row_g[N_OWN] = n
    row_g[N] += n
    row_g[STEPS] = row[STEPS]
    refresh(row_g, d_g, ridge, scratch_matrix(d_g))
    own = np.zeros((d_l, d_l))
    own[:size, :size] = S[L, L]
    pack(own, base_of(row_l, d_l))
    base_b_of(row_l, d_l)[:size] = s[L] - S[L, G] @ theta[:d_g]
    row_l[N] = row_l[N_OWN] = n
    refresh(row_l, d_l, ridge, scratch_matrix(d_l))


def _own_data(row: Array, dim: int) -> Array:
    S = unpacked(base_of(row, dim), dim)
    add_pending_unpacked(row, dim, S)
    return S


@compiled_lean
def mask(x: Array, parts: Parts, size: int, out: Array) -> None:
    """A context without the entries that a client with d_i = size does not use."""
    copy(x, out)
    for k in range(max(parts.first + size, parts.shared), x.shape[0]):
        out[k] = 0.0
