"""How large the noise can get: the shift that keeps V positive definite, and the terms that widths need.

With noise the ridge regression has V = Σ x xᵀ + H and b = Σ x y + h, where H = N + ρI is symmetric noise and a shift.
FedUCB (Def. 2, Prop. 2) needs three numbers that hold at every release with probability ≥ 1 − α,

    ρ_min ≤ λ_min(H),     λ_max(H) ≤ ρ_max,     ‖h‖_{H⁻¹} ≤ κ,      for the width  … + S √ρ_max + κ.

Recomputed here for the noise that is really added. N has variance s_k² off the diagonal and 2 s_k² on it at release k,
s_k from the factorisation, so its largest eigenvalue is s_k times that of a GOE matrix. By Markov's inequality

    P(λ_max > x) ≤ E #{eigenvalues > x} = ∫_x^∞ R₁,

R₁ the density of states at *finite* d, known in closed form: within a few per cent of the true quantile where α is
small. Then a union over releases, each with its own s_k, and over both ends of the spectrum. ‖h‖ is s_k χ_d exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from fedbandit.errors import require, whole_number
from fedbandit.privacy.calibration import check_budget, smallest, special_functions
from fedbandit.privacy.mechanism import Mechanism, noise_std
from fedbandit.privacy.published import feducb_depth
from fedbandit.types import Array

_STEP = 0.002  # of the table of E #{eigenvalues > x}; a table is read on the safe side
_LARGEST_TABLE = 256  # dimensions; above, Hermite functions underflow
_LEVELS = 1000  # different standard deviations to tell apart, rounding up


class NoiseBounds(NamedTuple):
    """FedUCB's three numbers; `shift`, `gram_noise` (largest ‖N‖) and `reward_noise` (largest ‖h‖) follow from them."""

    rho_min: float
    rho_max: float
    kappa: float

    @property
    def shift(self) -> float:
        """ρ: add ρI to the noisy V."""
        return (self.rho_min + self.rho_max) / 2

    @property
    def gram_noise(self) -> float:
        """Λ ≥ ‖N‖."""
        return (self.rho_max - self.rho_min) / 2

    @property
    def reward_noise(self) -> float:
        """A bound of ‖h‖."""
        return self.kappa * math.sqrt(self.rho_min)


def noise_bounds(
    mechanism: Mechanism,
    *,
    streams: int = 1,
    simultaneous: bool = True,
    failure: float = 0.01,
    theta_bound: float = 1.0,
) -> NoiseBounds:
    """The bounds for the sum of `streams` clients' releases, at all times together with probability ≥ 1 − failure.

    Independent noise adds up in variance, so that M clients need one shift of √M Λ at the coordinator, where FedUCB
    has every client shift by its own 2Λ. Clients that release together have n_max different sums; others (not
    `simultaneous`) have up to M n_max, each with the largest variance.

    The shift minimises the width's S √ρ_max + κ = S √(ρ_min + 2Λ) + ‖h‖/√ρ_min: ρ_min is the positive root of
    S²ρ³ = ‖h‖² (ρ + 2Λ). (FedUCB has ρ_min = Λ; the root is of that size too.)

    Where λ_min(V) is known, S ρ_max/√λ_min(V) and ‖h‖/√λ_min(V) bound the same two terms of the width, and vanish as
    data arrive; V is released, so its eigenvalues are too.

    >>> from fedbandit.privacy.mechanism import gram_mechanism
    >>> bounds = noise_bounds(gram_mechanism(1.0, 1e-5, n_max=128, dim=10))
    >>> round(bounds.shift), round(bounds.gram_noise), round(bounds.reward_noise)
    (319, 111, 145)
    """
    require(mechanism.noise == "symmetric", "noise", mechanism.noise, "'symmetric', of a mechanism for matrices")
    _check(streams, failure)
    require(theta_bound > 0, "theta_bound", theta_bound, "> 0")
    stds, counts = _looks(mechanism, streams, simultaneous)
    gram_noise = gram_bound(stds, counts, mechanism.dim, failure / 2)
    reward_noise = chi_bound(stds / mechanism.reward_weight, counts, mechanism.dim, failure / 2)
    if gram_noise == 0:
        return NoiseBounds(0.0, 0.0, 0.0)
    ratio = (reward_noise / theta_bound) ** 2
    rho_min = float(np.roots([1.0, 0.0, -ratio, -2 * gram_noise * ratio]).real.max())
    return NoiseBounds(rho_min, rho_min + 2 * gram_noise, reward_noise / math.sqrt(rho_min))


def psd_shift(mechanism: Mechanism, *, streams: int = 1, simultaneous: bool = True, failure: float = 0.01) -> float:
    """The smallest ρ for which noise + ρI is positive semi-definite at all times, with probability ≥ 1 − failure.

    One end of the spectrum is enough for this; `noise_bounds` needs both.

    >>> from fedbandit.privacy.mechanism import gram_mechanism
    >>> round(psd_shift(gram_mechanism(1.0, 1e-5, n_max=128, dim=10)))
    107
    """
    _check(streams, failure)
    stds, counts = _looks(mechanism, streams, simultaneous)
    return _union(lambda x: largest_eigenvalue_tail(x, mechanism.dim), stds, counts, failure)


def reward_noise_bound(
    mechanism: Mechanism, *, streams: int = 1, simultaneous: bool = True, failure: float = 0.01
) -> float:
    """The bound of ‖h‖ where only b is noisy (`reward_mechanism`); κ is this over √λ with the ridge λ.

    For gamma noise on a tree the sum of r nodes is exactly √(2W) g (`draw_gamma`), so its norm has a computable tail.
    """
    _check(streams, failure)
    if mechanism.noise == "vector":
        return chi_bound(*_looks(mechanism, streams, simultaneous), mechanism.dim, failure)
    require(mechanism.noise == "gamma", "noise", mechanism.noise, "'vector' or 'gamma'")
    squares = np.rint(mechanism.factorisation.row_norms() ** 2).astype(np.int64)  # B is 0 and 1: nodes in a sum
    if not simultaneous:
        squares = np.full(streams * mechanism.n_max, squares.max())
    nodes, counts = np.unique(squares, return_counts=True)

    def holds(radius: float) -> bool:
        pairs = zip(nodes.tolist(), counts.tolist(), strict=True)
        return sum(n * gamma_norm_tail(radius, r * streams, mechanism.dim) for r, n in pairs) <= failure

    return mechanism.scale * smallest(holds) if mechanism.scale > 0 else 0.0


def published_bounds(
    epsilon: float,
    delta: float,
    n_max: int,
    dim: int,
    *,
    streams: int = 1,
    failure: float = 0.01,
    context_bound: float = 1.0,
) -> NoiseBounds:
    """FedUCB's ρ_min = Λ, ρ_max = 3Λ and κ for *one* client, as printed (§4.3 and Prop. 4).

        Λ = √32 m (L²+1) log(4/δ) (4√d + 2 log(2nM/α)) / ε,       κ = √(m (L²+1) (√d + 2 log(2nM/α)) / (√2 ε))

    True: Λ holds, many times over. κ lacks a factor of about √log(2/δ): it holds at d = 10, and fails as a rule at
    d = 100 (δ = 10⁻⁵, 128 releases).

    >>> bounds = published_bounds(1.0, 1e-5, n_max=128, dim=10)
    >>> round(bounds.shift), round(bounds.gram_noise)
    (76938, 38469)
    """
    check_budget(epsilon, delta)
    _check(streams, failure)
    m = feducb_depth(whole_number("n_max", n_max))
    R2 = context_bound**2 + 1
    union = 2 * math.log(2 * n_max * streams / failure)
    spectral = math.sqrt(32) * m * R2 * math.log(4 / delta) * (4 * math.sqrt(dim) + union) / epsilon
    kappa = math.sqrt(m * R2 * (math.sqrt(dim) + union) / (math.sqrt(2) * epsilon))
    return NoiseBounds(spectral, 3 * spectral, kappa)


def gram_bound(stds: Array, counts: Array, dim: int, failure: float) -> float:
    """Λ with P(some ‖N_k‖ > Λ) ≤ failure, for counts[k] symmetric matrices of each off-diagonal std stds[k]."""
    return _union(lambda x: 2 * largest_eigenvalue_tail(x, dim), stds, counts, failure)


def chi_bound(stds: Array, counts: Array, dim: int, failure: float) -> float:
    """The same for the norms of normal vectors."""
    chdtrc = special_functions().chdtrc
    return _union(lambda x: np.asarray(chdtrc(dim, x * x)), stds, counts, failure)


def largest_eigenvalue_tail(x: Array, dim: int) -> Array:
    """An upper bound of P(λ_max > x) for a symmetric matrix with variance 1 off the diagonal, 2 on it.

    Up to d = 256 the expected number of eigenvalues above x. Beyond, and where the table ends, Gaussian concentration:
    λ_max is convex and √2-Lipschitz, its median is below its mean (Kwapień 1994), which is ≤ 2 E‖g‖
    (Sudakov–Fernique), so P(λ_max > 2 E‖g‖ + √2 t) ≤ Φ(−t).
    """
    mean_norm = math.sqrt(2) * math.exp(math.lgamma((dim + 1) / 2) - math.lgamma(dim / 2))
    coarse = np.asarray(special_functions().ndtr((2 * mean_norm - x) / math.sqrt(2)))
    if dim > _LARGEST_TABLE:
        return coarse
    table = _eigenvalues_above(dim)
    index = np.minimum(np.maximum(x, 0.0) / (math.sqrt(2) * _STEP), table.size - 1)
    fine = table[index.astype(np.int64)]  # rounded down: a larger probability
    return np.where(index < table.size - 1, fine, coarse)


@cache
def _eigenvalues_above(dim: int) -> Array:
    """E #{eigenvalues > √2 u} for u = 0, _STEP, 2 _STEP, …

    The density of states of the GOE (variances ½ and 1, joint density ∝ Π|u_i − u_j| exp(−Σu²/2)) is

        R₁(u) = Σ_{j<d} φ_j(u)² + √(d/2) φ_{d−1}(u) ∫ ½ sign(u − t) φ_d(t) dt  [+ φ_{d−1}(u) / ∫ φ_{d−1} for odd d]

    with the Hermite functions φ_j. Reference: Mehta, Random Matrices (3rd ed.), Eq. (7.2.28)–(7.2.32).
    """
    u = np.arange(0.0, math.sqrt(2 * dim) + 9.0, _STEP)
    phi = np.zeros((dim + 1, u.size))
    phi[0] = math.pi**-0.25 * np.exp(-u * u / 2)
    for j in range(dim):
        phi[j + 1] = math.sqrt(2 / (j + 1)) * u * phi[j] - math.sqrt(j / (j + 1)) * phi[j - 1]
    above = _integral_above(phi[dim])
    signed = above[0] - above if dim % 2 == 0 else -above  # φ_d is even or odd, like d
    density = (phi[:dim] ** 2).sum(axis=0) + math.sqrt(dim / 2) * phi[dim - 1] * signed
    if dim % 2 == 1:
        density += phi[dim - 1] / (2 * _integral_above(phi[dim - 1])[0])
    return _integral_above(density) + 1e-16  # more than what lies beyond the table


def _integral_above(f: Array) -> Array:
    """∫_u^∞ f at each point of the table, by the trapezoidal rule."""
    pieces = (f[:-1] + f[1:]) * (_STEP / 2)
    return np.append(np.cumsum(pieces[::-1])[::-1], 0.0)


def gamma_norm_tail(radius: float, copies: int, dim: int) -> float:
    """P(‖z₁ + … + z_r‖ > radius) for gamma noise of scale 1: P(2 W χ²_d > radius²), W ~ Gamma(r(d+1)/2).

    Rounded up: W is cut into cells, each taken at its upper end.
    """
    shape = copies * (dim + 1) / 2
    special = special_functions()
    edges = np.geomspace(shape / 100, float(special.gammainccinv(shape, 1e-18)), 5000)
    cells = -np.diff(special.gammaincc(shape, edges), prepend=1.0)
    return float(cells @ special.chdtrc(dim, radius**2 / (2 * edges))) + 1e-18


def _union(tail: Callable[[Array], Array], stds: Array, counts: Array, failure: float) -> float:
    """The smallest bound that holds for all together, by the union bound."""
    largest = float(stds.max())
    if largest == 0:
        return 0.0
    return largest * smallest(lambda x: float(counts @ tail(x * largest / stds)) <= failure)


def _looks(mechanism: Mechanism, streams: int, simultaneous: bool) -> tuple[Array, Array]:
    """The standard deviations of the sums that are ever looked at, rounded up, and how many there are of each."""
    stds = math.sqrt(streams) * noise_std(mechanism)
    largest = float(stds.max())
    if not simultaneous or largest == 0:
        return np.array([largest]), np.array([float(streams * mechanism.n_max)])
    level, counts = np.unique(np.ceil(stds / largest * _LEVELS), return_counts=True)
    return level * largest / _LEVELS, counts.astype(np.float64)


def _check(streams: int, failure: float) -> None:
    require(streams >= 1, "streams", streams, "a whole number ≥ 1")
    require(1e-9 <= failure < 1, "failure", failure, "between 1e-9 and 1")
