"""Attacks on a mechanism: what its code really does, exactly and by experiment.

Three checks, from exact to empirical. All see *every* release of a stream and know everything but which of two
neighbouring data sets was used (they differ in the first increment, which is the worst for every factorisation here).

1. `released_epsilon` runs the release code on unit impulses instead of random numbers, which gives the matrix from
   draws to released numbers as implemented, and with it the ε of neighbouring streams, for every kind of noise.
   `handed_epsilon` looks at what is handed to the noise instead, at any dimension and number of releases. No chance.
2. `scale_interval` tests that sampled noise has the claimed scale (exact χ² or gamma interval): 10⁵ numbers see 2 %.
3. `attack` draws streams from both worlds, scores them by the likelihood ratio, and returns a lower bound on ε that
   holds with the given confidence (Clopper–Pearson, thresholds chosen on other samples).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from fedbandit.errors import require
from fedbandit.privacy.calibration import gaussian_epsilon, special_functions
from fedbandit.privacy.mechanism import Mechanism, release, start
from fedbandit.privacy.noise import ENERGY, UNIT, Kind, Size, Source
from fedbandit.types import Array, Ints

Sampler: TypeAlias = Callable[[Array, int, np.random.Generator], Array]
"""(increments of shape n × …, number of streams, generator) → releases of shape n × streams × …"""
_CHUNK = 2_000_000  # numbers in memory at a time
_THRESHOLDS = 400
_DECIMALS = 9
"""Of scores. Laplace and gamma scores have atoms, and how an atom's rounding errors scatter depends on the data: the
last bits of floating-point noise leak (Mironov 2012). That is why NumPy's noise is for simulation; here the claim for
real numbers is on trial, so rounding must not decide."""


class Audit(NamedTuple):
    """What an attack found out: ε is at least `lower_bound`, with the given confidence; the scores in both worlds."""

    lower_bound: float
    delta: float
    confidence: float
    trials: int
    null: Array
    alternative: Array


def run_stream(mechanism: Mechanism, increments: Array, streams: int, source: Source) -> Array:
    """The releases of many independent streams over the same increments: n × streams × shape."""
    state = start(mechanism, (streams,))
    releases = []
    for increment in increments:
        noisy, state = release(mechanism, state, np.broadcast_to(increment, state.total.shape), source)
        releases.append(noisy)
    return np.stack(releases)


def whiten(mechanism: Mechanism, increments: Array, releases: Array) -> Array:
    """z/scale = B⁻¹(releases − A x)/scale, given what the data were: n × streams × shape."""
    exact = np.cumsum(increments, axis=0)[:, None]
    steps = np.diff(releases - exact, axis=0, prepend=0.0)  # A⁻¹
    return np.tensordot(mechanism.factorisation.encoder(len(increments)), steps, axes=1) / mechanism.scale


class _Impulses:
    """A source that draws 1 once in every stream and 0 otherwise: stream i has it in draw i.

    For gamma noise a draw is a length, and all directions are the first one.
    """

    def __init__(self, *, lengths: bool) -> None:
        self.lengths = lengths
        self.drawn = 0

    def standard_normal(self, size: Size) -> Array:
        """Identity matrices, one below the other."""
        if self.lengths:
            return np.broadcast_to(np.eye(size[-1])[0], size)
        return self.laplace(0.0, 1.0, size)

    def standard_gamma(self, shape: float, size: Size) -> Array:  # noqa: ARG002 - of any
        return self.laplace(0.0, 1.0, size)

    def laplace(self, loc: float, scale: float, size: Size) -> Array:  # noqa: ARG002 - around 0
        streams, numbers = size[0], math.prod(size[1:])
        draws = np.eye(streams)[:, self.drawn : self.drawn + numbers]
        self.drawn += numbers
        return scale * draws.reshape(size)


class Handed:
    """A source that adds nothing, and remembers what noise of which scale it was to be added to."""

    label = "none"

    def __init__(self) -> None:
        self.values: list[Array] = []
        self.scales: list[float] = []

    def perturb(self, kind: Kind, values: Array, scale: float) -> Array:  # noqa: ARG002 - whatever it is
        self.values.append(np.array(values))
        self.scales.append(scale)
        return values

    def standard_normal(self, size: Size) -> Array:
        raise NotImplementedError("noise is added by `perturb`")

    def standard_gamma(self, shape: float, size: Size) -> Array:
        raise NotImplementedError("noise is added by `perturb`")

    def laplace(self, loc: float, scale: float, size: Size) -> Array:
        raise NotImplementedError("noise is added by `perturb`")


def handed_epsilon(mechanism: Mechanism, difference: Array, releases: int) -> float:
    """The exact ε of all that is handed to the noise if the first of so many increments differs: C x and scales.

    Together with a source whose noise has the scale it is asked for, this is the ε of the code at its own dimension and
    number of releases.
    """
    source = Handed()
    state, moved = start(mechanism), difference
    for _ in range(releases):
        _, state = release(mechanism, state, moved, source)
        moved = np.zeros_like(difference)
    z = np.stack(source.values) / np.array(source.scales).reshape((-1,) + (1,) * difference.ndim)
    return epsilon_of_shift(mechanism, z)


def epsilon_of_shift(mechanism: Mechanism, z: Array) -> float:
    """The ε of whitened noise that is moved by z: `ENERGY` is half of a squared distance, or an ε itself."""
    energy = float(ENERGY[mechanism.noise](z).sum())
    if mechanism.noise in ("symmetric", "vector"):
        return gaussian_epsilon(math.sqrt(2 * energy), mechanism.delta)
    return energy


def released_epsilon(mechanism: Mechanism, difference: Array, releases: int | None = None) -> float:
    """The exact ε of streams whose data differ by `difference` in one increment, the worst one.

    >>> from fedbandit.privacy.mechanism import reward_mechanism
    >>> mechanism = reward_mechanism(1.0, 0.0, n_max=6, dim=3, kind="tree")
    >>> round(released_epsilon(mechanism, np.array([1.0, 0.0, 0.0])), 6)
    1.0
    """
    if mechanism.noise in ("symmetric", "vector"):
        return gaussian_epsilon(released_distance(mechanism, [difference], releases), mechanism.delta)
    n = mechanism.n_max if releases is None else releases
    zeros, d = np.zeros((n, *mechanism.shape)), mechanism.dim
    if mechanism.noise == "gamma":  # one length a release, along the first coordinate: the others are alike
        matrix = run_stream(mechanism, zeros, n, _Impulses(lengths=True))[..., 0]
        lengths = np.linalg.solve(matrix, np.tril(np.ones((n, n))))
        return float(np.abs(lengths).sum(axis=0).max() * np.linalg.norm(difference))
    responses = run_stream(mechanism, zeros, n * d, _Impulses(lengths=False))
    matrix = responses.swapaxes(1, 2).reshape(n * d, n * d)
    moved = np.stack([np.concatenate((np.zeros(k * d), np.tile(difference, n - k))) for k in range(n)], axis=1)
    return float(np.abs(np.linalg.solve(matrix, moved)).sum(axis=0).max())


def noise_matrix(mechanism: Mechanism, releases: int) -> Array:
    """The matrix from standard normals to all released numbers (upper triangles), as the code has it."""
    zeros = np.zeros((releases, *mechanism.shape))
    responses = run_stream(mechanism, zeros, zeros.size, _Impulses(lengths=False))
    return _entries(mechanism, responses).swapaxes(1, 2).reshape(-1, zeros.size)


def released_distance(mechanism: Mechanism, differences: Sequence[Array], releases: int | None = None) -> float:
    """The exact distance, in standard deviations, of streams whose data differ by one of `differences` in one
    increment; the largest over differences and increments. `gaussian_epsilon` of it is the ε that the code gives.

    >>> from fedbandit.privacy.mechanism import gram_mechanism
    >>> from fedbandit.privacy.noise import gram_neighbours
    >>> mechanism = gram_mechanism(1.0, 1e-5, n_max=16, dim=2)
    >>> a, b = gram_neighbours(1.0, 1.0, 0.5, dim=2)
    >>> round(gaussian_epsilon(released_distance(mechanism, [a - b]), 1e-5), 6)
    1.0
    """
    n = mechanism.n_max if releases is None else releases
    moved = []
    for difference in differences:
        entries = _entries(mechanism, np.asarray(difference)[None])[0]
        moved += [np.concatenate((np.zeros(k * entries.size), np.tile(entries, n - k))) for k in range(n)]
    matrix = noise_matrix(mechanism, n)
    shortest = np.linalg.lstsq(matrix, np.stack(moved, axis=1), rcond=None)[0]  # draws that explain the difference
    return float(np.linalg.norm(shortest, axis=0).max())


def _entries(mechanism: Mechanism, values: Array) -> Array:
    """The numbers that are released: of a symmetric matrix the upper triangle, without the corner."""
    if mechanism.noise != "symmetric":
        return values
    rows, columns = np.triu_indices(mechanism.dim + 1)
    return np.asarray(values[..., rows[:-1], columns[:-1]])


def independent_numbers(mechanism: Mechanism, z: Array) -> Array:
    """Whitened noise with a row for each draw and a column for each number that was drawn by itself, of one scale."""
    if mechanism.noise != "symmetric":
        return z.reshape(-1, z.shape[-1])
    rows, columns = np.triu_indices(z.shape[-1])
    numbers = z[..., rows, columns] / np.where(rows == columns, math.sqrt(2), 1.0)
    return np.asarray(numbers.reshape(-1, rows.size))


def scale_interval(mechanism: Mechanism, z: Array, confidence: float = 0.99) -> tuple[float, float]:
    """A confidence interval for actual scale / claimed scale, from whitened noise (`whiten`). Right if 1 is inside.

    Σ z² has a χ² distribution, Σ ‖z‖₂ (gamma) and Σ |z| (Laplace) a gamma distribution: the interval is exact.
    """
    energy = float(ENERGY[mechanism.noise](z).sum())
    numbers = z.size
    if mechanism.noise == "symmetric":
        d = mechanism.dim + 1
        numbers = z.size // (d * d) * (d * (d + 1) // 2)  # independent ones
    gaussian = mechanism.noise in ("symmetric", "vector")
    shape = numbers / 2 if gaussian else numbers
    tail = (1 - confidence) / 2
    gammaincinv = special_functions().gammaincinv
    low, high = energy / float(gammaincinv(shape, 1 - tail)), energy / float(gammaincinv(shape, tail))
    return (math.sqrt(low), math.sqrt(high)) if gaussian else (low, high)


def irregular(kind: Kind, z: Array, chance: float = 1e-9) -> str:
    """What is wrong with draws of unit noise, but for its scale: z has a row for each draw; "" if nothing is.

    Numbers of one draw must not tell each other, and their distribution must be that of their kind, whatever its scale:
    by the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart, and by all correlations of two columns.

    >>> draws = np.random.default_rng(0).standard_normal((4000, 3))
    >>> irregular("vector", draws), irregular("vector", draws[:, [0, 1, 0]])
    ('', 'two numbers of one draw have a correlation of 1.00')
    >>> irregular("laplace", draws)
    'their distribution is not that of laplace noise'
    """
    (n, p), special = z.shape, special_functions()
    with np.errstate(over="ignore"):
        y = np.sort(z, axis=None) / (np.abs(z).mean() if kind == "laplace" else math.sqrt(float((z * z).mean())))
        below = special.ndtr(y) if kind != "laplace" else np.where(y < 0, np.exp(y) / 2, 1 - np.exp(-y) / 2)
    rank = np.arange(1, y.size + 1) / y.size
    if max(float((rank - below).max()), float((below - rank).max()) + 1 / y.size) > math.sqrt(
        math.log(2 / chance) / (2 * y.size)
    ):
        return f"their distribution is not that of {'laplace' if kind == 'laplace' else 'Gaussian'} noise"
    products = z.T @ z
    length = np.sqrt(products.diagonal())
    found = float(np.abs(products / np.outer(length, length) - np.eye(p)).max())
    limit = math.sqrt(1 - (chance / p**2) ** (2 / max(n - 1, 1)))  # r² has a beta distribution, if they are normal
    if found > min((1.5 if kind == "laplace" else 1.0) * limit, 1 - 1e-9):
        return f"two numbers of one draw have a correlation of {found:.2f}"
    return ""


def attack(
    mechanism: Mechanism,
    record: Array,
    other: Array,
    rng: np.random.Generator,
    *,
    sample: Sampler | None = None,
    releases: int | None = None,
    trials: int = 200_000,
    confidence: float = 0.99,
) -> Audit:
    """Try to tell a stream whose first increment holds `record` from one with `other`.

    `sample` is the code under attack (by default the mechanism's own); `mechanism` is what it claims to be, from which
    the attacker computes the likelihood ratio. For Gaussian noise the bound is on the distance of the two worlds and
    becomes an ε by the exact formula, because at δ = 10⁻⁵ the events that decide are too rare to be counted.

    *Guarantee.* If the code is (ε, δ)-DP (and, for Gaussian kinds, its scores are normal, as those of any linear
    mechanism are), then lower_bound ≤ ε with probability ≥ confidence.
    """
    require(mechanism.scale > 0, "scale", mechanism.scale, "> 0: there is nothing to attack without noise")
    n = mechanism.n_max if releases is None else releases
    run = sample or (lambda increments, streams, rng: run_stream(mechanism, increments, streams, rng))
    null, alternative = (
        likelihood_ratios(mechanism, run, np.asarray(record), np.asarray(other), world, n, trials, rng)
        for world in (record, other)
    )
    bound = gaussian_bound if mechanism.noise in ("symmetric", "vector") else counting_bound
    found = bound(null, alternative, mechanism.delta, confidence)
    return Audit(found, mechanism.delta, confidence, trials, null, alternative)


def likelihood_ratios(
    mechanism: Mechanism,
    sample: Sampler,
    record: Array,
    other: Array,
    world: Array,
    n: int,
    trials: int,
    rng: np.random.Generator,
) -> Array:
    """log p(stream | other) − log p(stream | record) under the claim, for streams drawn from `world`."""
    known, drawn = np.zeros((2, n, *mechanism.shape))
    known[0], drawn[0] = record, world
    chunk = max(1, _CHUNK // known.size)
    scores: list[Array] = []
    for first in range(0, trials, chunk):
        releases = sample(drawn, min(chunk, trials - first), rng)
        if mechanism.noise in ("symmetric", "vector"):
            scores.append(_linear_score(mechanism, known, releases, other - record))
        else:
            scores.append(_energy_score(mechanism, known, releases, other - record))
    return np.concatenate(scores).round(_DECIMALS)


def _energy_score(mechanism: Mechanism, known: Array, releases: Array, difference: Array) -> Array:
    """Energy in the one world minus energy in the other, where the whitened noise is moved by C e₁ · difference."""
    column = mechanism.factorisation.encoder(len(known))[:, 0]
    column = column.reshape((-1, 1) + (1,) * difference.ndim)
    z = whiten(mechanism, known, releases)
    energy = ENERGY[mechanism.noise]
    return np.asarray((energy(z) - energy(z - column * difference / mechanism.scale)).sum(axis=0))


def _linear_score(mechanism: Mechanism, known: Array, releases: Array, difference: Array) -> Array:
    """The same for quadratic energies, where it is linear in the releases: ⟨C e₁, C A⁻¹⟨Y − A x, difference⟩⟩."""
    C = mechanism.factorisation.encoder(len(known))
    weights = -np.diff(C.T @ C[:, 0], append=0.0)  # A⁻ᵀ
    axes = difference.ndim
    along = np.tensordot(releases, difference, axes) - np.tensordot(known.cumsum(axis=0), difference, axes)[:, None]
    moved = C[:, 0] @ C[:, 0] * float((difference**2).sum())
    return np.asarray((weights @ along - moved / 2) / (UNIT[mechanism.noise] * mechanism.scale) ** 2)


def counting_bound(null: Array, alternative: Array, delta: float, confidence: float = 0.99) -> float:
    """A lower bound on ε from scores in two worlds, with no assumption on their distribution.

    For every event E and (ε, δ)-DP code: P₁(E) ≤ e^ε P₀(E) + δ, and with the worlds exchanged. Events are "score above"
    and "score below" a threshold; the best is chosen on the first half of the scores and counted on the second.
    """
    half = min(null.size, alternative.size) // 2
    thresholds = np.quantile(np.concatenate((null[:half], alternative[:half])), np.linspace(0, 1, _THRESHOLDS))
    chosen = _event_bounds(null[:half], alternative[:half], thresholds, delta, confidence)
    direction, best = np.unravel_index(np.argmax(chosen), chosen.shape)
    counted = _event_bounds(null[half:], alternative[half:], thresholds[best : best + 1], delta, confidence)
    return max(0.0, float(counted[direction, 0]))


def _event_bounds(null: Array, alternative: Array, thresholds: Array, delta: float, confidence: float) -> Array:
    """log((P(E) − δ)/P'(E)) with P(E) at its lower and P'(E) at its upper bound; rows: above, below the thresholds."""
    n, m = null.size, alternative.size
    rare = n - np.searchsorted(np.sort(null), thresholds, side="right")
    likely = m - np.searchsorted(np.sort(alternative), thresholds, side="right")
    rows = []
    for hits, trials, others, other_trials in ((likely, m, rare, n), (n - rare, n, m - likely, m)):
        low = clopper_pearson(hits, trials, confidence)[0] - delta
        high = clopper_pearson(others, other_trials, confidence)[1]
        rows.append(np.where(low > 0, np.log(np.maximum(low, 1e-300) / high), -np.inf))
    return np.stack(rows)


def gaussian_bound(null: Array, alternative: Array, delta: float, confidence: float = 0.99) -> float:
    """The same for scores that are normal with equal variance (μ-GDP: Nasr et al. 2023, §4).

    The two error rates at one threshold, the middle of the first tenth of the scores, bound the distance μ of the
    worlds from below, and `gaussian_epsilon` gives the ε of that distance at δ.
    """
    tenth = min(null.size, alternative.size) // 10
    threshold = np.median(np.concatenate((null[:tenth], alternative[:tenth])))
    false = int((null[tenth:] > threshold).sum())
    true = int((alternative[tenth:] > threshold).sum())
    low = float(clopper_pearson(np.array(true), alternative.size - tenth, confidence)[0])
    high = float(clopper_pearson(np.array(false), null.size - tenth, confidence)[1])
    ndtri = special_functions().ndtri
    return gaussian_epsilon(max(0.0, float(ndtri(low) - ndtri(high))), delta)


def clopper_pearson(hits: Ints, trials: int, confidence: float) -> tuple[Array, Array]:
    """Exact bounds of a probability; each side fails with probability (1 − confidence)/2.

    >>> [round(float(bound), 4) for bound in clopper_pearson(np.array(5), 10, 0.95)]
    [0.1871, 0.8129]
    """
    tail = (1 - confidence) / 2
    betaincinv = special_functions().betaincinv
    low = betaincinv(np.maximum(hits, 1), trials - hits + 1, tail)
    high = betaincinv(hits + 1, np.maximum(trials - hits, 1), 1 - tail)
    return np.where(hits > 0, low, 0.0), np.where(hits < trials, high, 1.0)
