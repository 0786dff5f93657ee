"""The papers' mechanisms with the papers' numbers, and what is true about them.

`Mechanism.epsilon` is the papers' claim; `epsilon_of` says what the noise really gives. FedUCB's and FCLUB's scales
give much more privacy than they claim, the collaborative paper's Laplace noise less. These facts are about the noise
alone: triggers and clusterings that read raw data leak on their own.
"""

from __future__ import annotations

import math

from fedbandit.errors import require, whole_number
from fedbandit.privacy.calibration import check_budget, check_epsilon
from fedbandit.privacy.mechanism import Mechanism, factorise
from fedbandit.privacy.noise import gram_sensitivity


def feducb_depth(n_max: int) -> int:
    """m = 1 + ⌈log₂ n⌉ (FedUCB, Alg. 2 line 2)."""
    return 1 + (n_max - 1).bit_length()


def fclub_depth(n_max: int) -> int:
    """ν = 1 + ⌈log₂(n + 1)⌉ (FCLUB, Alg. 5 line 2)."""
    return 1 + n_max.bit_length()


def feducb_privatiser(
    epsilon: float,
    delta: float,
    n_max: int,
    dim: int,
    *,
    context_bound: float = 1.0,
    reward_bound: float = 1.0,
) -> Mechanism:
    """FedUCB's tree: (N + Nᵀ)/√2 at each node, N_ij of variance 16 m (L²+1)² log(2/δ)²/ε².

    True: it is private, with 4 to 16 times the noise that a tree needs and 10 to 50 times that of a BLT.

    Reference: Dubey & Pentland 2020, Alg. 2 line 5.

    Deviations:
        D1. Nodes that no running sum uses are not drawn (`Tree`); what is released has the same distribution.

    >>> from fedbandit.privacy.mechanism import epsilon_of
    >>> mechanism = feducb_privatiser(1.0, 1e-5, n_max=128, dim=10)
    >>> round(mechanism.scale), round(epsilon_of(mechanism), 3)
    (276, 0.06)
    """
    check_budget(epsilon, delta)
    depth = feducb_depth(whole_number("n_max", n_max))
    scale = 4 * math.sqrt(depth) * (context_bound**2 + 1) * math.log(2 / delta) / epsilon
    return _published(epsilon, delta, n_max, dim, scale, "FedUCB", context_bound, reward_bound)


def fclub_privatiser(
    epsilon: float,
    delta: float,
    n_max: int,
    dim: int,
    *,
    context_bound: float = 1.0,
    reward_bound: float = 1.0,
) -> Mechanism:
    """FCLUB's tree: the same with variance 64 ν log(2/δ)²/ε², that is L = B = 1 and one level more.

    True: private as a mechanism. A privatiser that is built anew after a regrouping releases the same records again.

    Reference: Liu et al. 2022, Alg. 5 line 3.
    """
    check_budget(epsilon, delta)
    depth = fclub_depth(whole_number("n_max", n_max))
    scale = 8 * math.sqrt(depth) * math.log(2 / delta) / epsilon
    return _published(epsilon, delta, n_max, dim, scale, "FCLUB", context_bound, reward_bound)


def _published(
    epsilon: float,
    delta: float,
    n_max: int,
    dim: int,
    scale: float,
    paper: str,
    context_bound: float,
    reward_bound: float,
) -> Mechanism:
    return Mechanism(
        factorisation=factorise("tree", n_max),
        noise="symmetric",
        dim=whole_number("dim", dim),
        scale=scale,
        sensitivity=gram_sensitivity(context_bound, reward_bound),
        epsilon=epsilon,
        delta=delta,
        basis="none" if math.isinf(epsilon) else "as published",
        description=f"{paper}'s binary tree as published, at most {n_max} releases",
    )


def l2_laplace_tree(epsilon: float, n_max: int, dim: int, sensitivity: float = 1.0) -> Mechanism:
    """The collaborative paper's tree: Laplace(levels · Δ/ε) on each coordinate, with Δ an **ℓ2** sensitivity.

    True: coordinate-wise Laplace noise pays for the ℓ1 norm, so the true ε is the claim times ‖u‖₁/‖u‖₂ of the vector
    u = x ⊗ W_u that a reward multiplies: √dim for a dense one (`l1_ratio`), 5 for d = 25 and W = I, 15.8 for 10
    users with uniform W.

    Reference: Wang et al. 2020, Alg. 1 line 8 and the proof of Lemma 1.

    Deviations:
        D1. The paper's "log T" levels are counted as `Tree.levels`; ⌈log₂ T⌉ would be one too few at powers of two.

    >>> from fedbandit.privacy.mechanism import epsilon_of
    >>> round(epsilon_of(l2_laplace_tree(1.0, 1024, dim=25)), 9), round(epsilon_of(l2_laplace_tree(1.0, 1024, 250)), 1)
    (5.0, 15.8)
    """
    check_epsilon(epsilon)
    require(sensitivity > 0 and math.isfinite(sensitivity), "sensitivity", sensitivity, "a finite number > 0")
    tree = factorise("tree", n_max)
    return Mechanism(
        factorisation=tree,
        noise="laplace",
        dim=whole_number("dim", dim),
        scale=tree.column_norm(1) * sensitivity / epsilon,
        sensitivity=sensitivity,
        epsilon=epsilon,
        delta=0.0,
        basis="none" if math.isinf(epsilon) else "as published",
        description=f"coordinate-wise Laplace tree with an ℓ2 sensitivity as published, at most {n_max} releases",
    )
