"""What the papers prove: regret and communication as functions of the horizon.

All of these are upper bounds up to a constant that the papers do not say, here 1; Õ leaves out logarithms that are
printed here if the theorem prints them. They tell how a curve may grow, not where it is: `result.plot(bounds=…)` scales
them by one factor. `T` is a number or an array of them; whose rounds it counts is said with each.

| function | of |
|---|---|
| `async_regret`, `async_communication`, `async_am_regret`, `async_table` | Async-LinUCB (Li & Wang 2022): Thm 3.2, 3.4, Table 1 |
| `feducb_regret`, `feducb_synchronisations`, `feducb_threshold` | FedUCB (Dubey & Pentland 2020): Thm 1 and 2, Prop. 1 |
| `hetofed_regret`, `hetofed_communication` | HetoFedBandit (Blaser et al. 2024): Thm 3.3 |
| `fclub_regret`, `fclub_communication`, `fclub_lag` | FCLUB (Liu et al. 2022): Thm 1 and 2, and Γ of the proof |
| `colin_regret` | private collaborative bandits (Wang et al. 2020): Thm 2 and 4 |

Their Theorems 6 and 8, for GOBLin, have the determinant |A_T| of the run, which is no function of T, and are not here.

FCLUB's Theorem 3 says that it is (ε, δ)-CDP: see `fb.cdp_fclub_dc(calibration="published").guarantee`.
"""  # noqa: E501 - a table

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from fedbandit.errors import FedbanditError, check_call, number, require, shown, whole_number
from fedbandit.types import Array

P = ParamSpec("P")
Made = TypeVar("Made")

WHOLE = ("n_clients", "n_agents", "n_users", "n_servers", "n_clusters", "dim", "d_global", "cliques", "ttl")
FACTORS = ("gamma_upload", "gamma_download", "upload", "download")
CHANCES = ("confidence", "delta", "failure")
POSITIVE = ("rho_min", "rho_max", "threshold", "gap", "regularity", "epsilon", "ridge")
LENGTHS = ("noise", "kappa", "hardness", "theta_bound", "bound")


class Bound(NamedTuple):
    """A row of Async-LinUCB's Table 1: regret, and messages if clients arrive evenly or not."""

    regret: float
    uniform: float
    skewed: float


def _checked(function: Callable[P, Made]) -> Callable[P, Made]:
    """The function, with a sentence for arguments with which its formula says nothing."""
    parameters = inspect.signature(function)

    @wraps(function)
    def checked(*args: P.args, **keywords: P.kwargs) -> Made:
        check_call(function.__name__, function, args, keywords)
        for name, value in parameters.bind(*args, **keywords).arguments.items():
            _check(name, value)
        return function(*args, **keywords)

    return checked


def _check(name: str, value: Any) -> None:
    if name in WHOLE:
        whole_number(name, value)
    elif name in FACTORS:
        number(value, name, "a number ≥ 1", at_least=1.0, finite=False)
    elif name in CHANCES:
        between = "a number between 0 and 1"
        require(0 < number(value, name, between) < 1, name, value, between)
    elif name in POSITIVE:
        require(number(value, name, "a number > 0", finite=False) > 0, name, value, "a number > 0")
    elif name in LENGTHS:
        number(value, name, "a finite number ≥ 0", at_least=0.0)
    elif name in ("sizes", "d_local"):
        listed = isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, str) and len(value) > 0
        require(listed, name, value, "a list of whole numbers")
        for one in value:
            whole_number(name, one, 1 if name == "sizes" else 0)


def _numbers(name: str, value: ArrayLike) -> Array:
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise FedbanditError(f"{name} is {shown(value)}, but must be numbers.") from None


def _horizon(T: ArrayLike) -> Array:
    horizon = _numbers("T", T)
    require(bool((horizon >= 1).all()), "T", T, "numbers ≥ 1")
    return horizon


@_checked
def async_lag(n_clients: int, gamma_upload: float, gamma_download: float) -> float:
    """min(√N, √(γ_D [1 + (N − 1)(γ_U − 1)])): how far asynchrony may inflate the regret of a centralised learner.

    >>> async_lag(100, 1.0, 1.0), async_lag(100, math.inf, math.inf)
    (1.0, 10.0)
    """
    return math.sqrt(min(n_clients, gamma_download * (1 + (n_clients - 1) * (gamma_upload - 1))))


@_checked
def async_regret(
    T: ArrayLike, n_clients: int, dim: int, gamma_upload: float, gamma_download: float, confidence: float = 0.1
) -> Array:
    """d √T log(T/δ) min(√N, √(γ_D [1 + (N − 1)(γ_U − 1)])), T interactions of all clients together (Thm 3.2)."""
    horizon = _horizon(T)
    return dim * np.sqrt(horizon) * np.log(horizon / confidence) * async_lag(n_clients, gamma_upload, gamma_download)


@_checked
def async_communication(T: ArrayLike, n_clients: int, dim: int, gamma_upload: float, gamma_download: float) -> Array:
    """d N log T/log min(γ_U, γ_D), and never more than N T (Thm 3.2, Table 1).

    For Thm 3.4 (Async-LinUCB-AM) `dim` is d_g, the length of the shared part.

    >>> async_communication(1000, 10, 5, 1.0, 1.0).item(), async_communication(1000, 10, 5, math.inf, math.inf).item()
    (10000.0, 0.0)
    """
    horizon, least = _horizon(T), math.log(min(gamma_upload, gamma_download))
    every = n_clients * horizon
    return every if least == 0 else np.minimum(every, dim * n_clients * np.log(horizon) / least)


@_checked
def async_am_regret(
    T: ArrayLike,
    d_global: int,
    d_local: Sequence[int],
    gamma_upload: float,
    gamma_download: float,
    *,
    arrivals: Sequence[float] | None = None,
    confidence: float = 0.1,
) -> Array:
    """Thm 3.2 for the d_g shared entries and Σ_i d_i √|N_i(T)| log(|N_i(T)|/δ) for the clients' own (Thm 3.4).

    `d_local` has an entry for each client; `arrivals` are their probabilities, by default equal.
    """
    horizon, N = _horizon(T), len(d_local)
    p = np.full(N, 1 / N) if arrivals is None else _numbers("arrivals", arrivals)
    require(p.shape == (N,), "the shape of arrivals", p.shape, f"({N},), one for each entry of d_local")
    shared = async_regret(horizon, N, d_global, gamma_upload, gamma_download, confidence)
    own = np.zeros_like(horizon)
    for d_i, p_i in zip(d_local, p, strict=True):
        times = np.maximum(p_i * horizon, 1.0)
        own = own + d_i * np.sqrt(times) * np.log(times / confidence)
    return shared + own


@_checked
def async_table(T: float, n_clients: int, dim: int) -> dict[str, Bound]:
    """Async-LinUCB's Table 1 (App. E).

    >>> rows = async_table(30_000, 1000, 25)
    >>> rows["async, exp(1/N)"].regret == rows["sync, T/(N^2 d log T)"].regret
    True
    >>> round(rows["sync, T/(N^1.5 d log T)"].skewed / rows["async, exp(1/sqrt(N))"].skewed, 3) == round(1000**0.25, 3)
    True
    """
    horizon, N = float(_horizon(T)), n_clients
    base, per = dim * math.sqrt(horizon) * math.log(horizon), dim * math.log(horizon)
    return {
        "async, 1": Bound(base, N * horizon, N * horizon),
        "async, exp(1/N)": Bound(base, N**2 * per, N**2 * per),
        "async, exp(1/sqrt(N))": Bound(N**0.25 * base, N**1.5 * per, N**1.5 * per),
        "async, inf": Bound(N**0.5 * base, 0.0, 0.0),
        "sync, T/(N^2 d log T)": Bound(base, N**1.5 * per, N**2 * per),
        "sync, T/(N^1.5 d log T)": Bound(N**0.25 * base, N**1.25 * per, N**1.75 * per),
    }


def _log_spectrum(T: Array, dim: int, rho_min: float, rho_max: float, bound: float) -> Array:
    return np.asarray(np.log(rho_max / rho_min + T * bound**2 / (dim * rho_min)))


@_checked
def feducb_threshold(T: ArrayLike, dim: int, rho_min: float, rho_max: float, bound: float = 1.0) -> Array:
    """D = 2Td/(log(ρ_max/ρ_min + TL²/(dρ_min)) + 1), T rounds in which all agents act (Theorem 1)."""
    horizon = _horizon(T)
    return 2 * horizon * dim / (_log_spectrum(horizon, dim, rho_min, rho_max, bound) + 1)


@_checked
def feducb_synchronisations(
    T: ArrayLike, dim: int, threshold: float, rho_min: float, rho_max: float, bound: float = 1.0
) -> Array:
    """2 √(dT/D · log(ρ_max/ρ_min + TL²/(dρ_min))) + 4 synchronisations, each of M uploads and downloads (Prop. 1).

    Printed so. It does not hold for Alg. 1's trigger, in which M(ρ_max − ρ_min)I counts anew after each of them:
    `Synchronous.releases`.
    """
    horizon = _horizon(T)
    return 2 * np.sqrt(dim * horizon / threshold * _log_spectrum(horizon, dim, rho_min, rho_max, bound)) + 4


@_checked
def feducb_regret(
    T: ArrayLike,
    n_agents: int,
    dim: int,
    rho_min: float,
    rho_max: float,
    kappa: float,
    *,
    noise: float = 0.5,
    confidence: float = 0.1,
    theta_bound: float = 1.0,
    bound: float = 1.0,
    cliques: int = 1,
    ttl: int = 1,
) -> Array:
    """σ √(M χ̄γ T d) (log(ρ_max/ρ_min + TL²/(γdρ_min)) + √(log 2/α) + S √(Mρ_max) + κ √M): Theorems 1 and 2.

    T rounds in which all M agents act. With a controller χ̄ = γ = 1; peers have `ttl` = γ and `cliques` = χ̄(G_γ), the
    number of cliques that cover G_γ (`protocols.topology.clique_cover`). ρ_min, ρ_max and κ are those of
    `privacy.bounds.published_bounds`. Brackets are ours: the text that we have lost them.

    >>> import fedbandit.privacy.bounds as noise
    >>> low, high, kappa = noise.published_bounds(1.0, 0.1, n_max=1000, dim=10, streams=10, failure=0.1)
    >>> line, whole = (feducb_regret(1000, 10, 10, low, high, kappa, cliques=c).item() for c in (5, 1))
    >>> round(line / whole, 3) == round(5**0.5, 3)
    True
    """
    horizon, M = _horizon(T), n_agents
    logs = _log_spectrum(horizon / ttl, dim, rho_min, rho_max, bound)
    extra = math.sqrt(math.log(2 / confidence)) + theta_bound * math.sqrt(M * rho_max) + kappa * math.sqrt(M)
    return noise * np.sqrt(M * cliques * ttl * horizon * dim) * (logs + extra)


@_checked
def hetofed_regret(T: ArrayLike, sizes: Sequence[int], dim: int, hardness: float = 0.0) -> Array:
    """N · hardness + Σ_k (d √(|C_k|T) log²(|C_k|T) + d|C_k|² M log(|C_k|T)), T rounds in which all act (Thm 3.3).

    `sizes` are those of the M clusters; `hardness` is ψᵈσ²/(λ_c γ²), which T does not change.
    """
    horizon, M = _horizon(T), len(sizes)
    total = np.full_like(horizon, hardness * sum(sizes))
    for size in sizes:
        logs = np.log(np.maximum(size * horizon, math.e))
        total = total + dim * np.sqrt(size * horizon) * logs**2 + dim * size**2 * M * logs
    return total


@_checked
def hetofed_communication(sizes: Sequence[int], dim: int) -> float:
    """N d² + Σ_k |C_k|^1.5 d³, whatever T is (Thm 3.3).

    >>> hetofed_communication([4], 2), hetofed_communication([1, 1, 1, 1], 2)
    (80.0, 48.0)
    """
    return float(sum(sizes) * dim**2 + sum(size**1.5 for size in sizes) * dim**3)


@_checked
def fclub_lag(n_servers: int, upload: float, download: float) -> float:
    """Γ = √(D(1 + (L − 1)(U − 1)) + U − 1): how far lagging statistics may widen an ellipsoid (proof of Theorem 1).

    >>> fclub_lag(5, 1.0, 1.0)
    1.0
    """
    return math.sqrt(download * (1 + (n_servers - 1) * (upload - 1)) + upload - 1)


@_checked
def fclub_regret(
    T: ArrayLike,
    n_users: int,
    dim: int,
    *,
    n_servers: int,
    n_clusters: int,
    gap: float,
    regularity: float,
    noise: float = 0.5,
    epsilon: float = math.inf,
    delta: float = 0.1,
) -> Array:
    """n (log T/λ_x² + σ₀² d log T/(λ_x γ²) + log(1/δ) log T/(λ_x ε γ²)) + dL √(mT log(1/δ)/ε) log^1.5 T (Theorem 1).

    T interactions of all users together; `gap` is γ, `regularity` λ_x. Without privacy (ε = ∞) the second term is the
    theorem's without its factor √(log(1/δ)/ε), as for FCLUB-DC.
    """
    horizon = _horizon(T)
    logs = np.log(horizon)
    private = math.isfinite(epsilon)
    cost = math.log(1 / delta) / epsilon if private else 0.0
    finding = n_users * (1 / regularity**2 + (noise**2 * dim + cost) / (regularity * gap**2)) * logs
    return finding + dim * n_servers * np.sqrt(n_clusters * horizon * (cost if private else 1.0)) * logs**1.5


@_checked
def fclub_communication(
    T: ArrayLike, dim: int, *, n_servers: int, n_clusters: int, upload: float, download: float
) -> Array:
    """d m L log T/log min(U, D) (Theorem 2)."""
    least = min(upload, download)
    require(least > 1, "the smaller of upload and download", least, "> 1")
    return dim * n_clusters * n_servers * np.log(_horizon(T)) / math.log(least)


@_checked
def colin_regret(
    T: ArrayLike,
    graph: ArrayLike,
    dim: int,
    epsilon: float = math.inf,
    *,
    local: bool = False,
    ridge: float = 1.0,
    bound: float = 1.0,
    failure: float = 0.1,
) -> Array:
    """2 √(2dNT g) (√(λN) + √(dN g + 2 log 1/δ) + p), g = log(1 + T ‖W‖²/(λdN²)): DP- and LDP-CoLin (Thm 2 and 4).

    p is max_i L‖W_i‖ log^1.5 T · log(1/δ)/ε where the coordinator is trusted, and with `local`
    L √(Σ_i ‖W_i‖² log³ T_i) · log(1/δ)/ε; without privacy (ε = ∞) it is 0. T interactions of all users together, who
    arrive evenly (T_i = T/N); ‖θ‖ = √N. `graph` is W, one row a user; `failure` δ.
    """
    horizon, W = _horizon(T), _numbers("graph", graph)
    require(W.ndim == 2 and W.shape[0] == W.shape[1], "the shape of graph", W.shape, "(N, N), a row a user")
    n, rows = len(W), bound * np.sqrt((W**2).sum(axis=1))
    grown = np.log1p(horizon * (W**2).sum() / (n * ridge * dim * n))
    each = np.log(np.maximum(horizon / n, 1.0))
    noise = np.sqrt((rows**2).sum() * each**3) if local else rows.max() * np.log(horizon) ** 1.5
    width = math.sqrt(ridge * n) + np.sqrt(dim * n * grown + 2 * math.log(1 / failure))
    width = width + noise * math.log(1 / failure) / epsilon
    return np.asarray(2 * np.sqrt(2 * dim * n * horizon * grown) * width)
