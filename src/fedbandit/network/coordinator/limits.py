"""Plausibility of uploads: impossible statistics are refused before they change anything."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedbandit.errors import FedbanditError
from fedbandit.messages import Upload
from fedbandit.network.refusal import Refusal
from fedbandit.privacy.bounds import chi_bound, gram_bound, reward_noise_bound
from fedbandit.privacy.mechanism import Mechanism, noise_std
from fedbandit.structures import GlobalLocal
from fedbandit.sums import Form
from fedbandit.system import System
from fedbandit.types import Array
from fedbandit.world import World

FAILURE = 1e-9
"""The probability with which an honest client is ever refused because its noise was larger than what is allowed for."""

RESIDUALS = 1e6
"""Of a model of two parts: what is left of a reward after the personal part's estimate is no larger than this."""


@dataclass(frozen=True)
class Limits:
    """What n observations with ‖x‖ ≤ L and |y| ≤ B can add up to, give or take the noise that was declared.

    V = Σ x xᵀ, b = Σ x y:

        tr V ≤ n L²,      [[V, b], [bᵀ, n B²]] ⪰ 0

    The second is V ⪰ 0 and, by Cauchy–Schwarz in every direction, |⟨a, b⟩|² ≤ n B² aᵀVa. Noise N in V and h in b moves
    eigenvalues by at most ‖N‖ + ‖h‖: `gram` and `reward` bound these two (0 where nothing is noised, as follows from
    the system's privacy part). n, and everybody's n together, are at most the declared horizon, so that whatever was
    accepted can be added up and sent. With a θ for each action the second holds for each block, the first
    for all of them together. Where B is not finite, |b| ≤ `RESIDUALS` n L is all that is asked.
    """

    dim: int
    bound: float
    reward_bound: float
    gram: float = 0.0
    reward: float = 0.0
    horizon: int = 2**53 - 1
    actions: int = 0

    @classmethod
    def of(cls, system: System, world: World, reward_bound: float) -> Limits:
        """The limits of a system that was told the world.

        Rewards noised by Laplace(s) each exceed B by s log(T/α) with probability at most α, in T interactions. In a
        model of two parts b holds rewards minus the personal part's estimate, which has no bound B.
        """
        gram, reward = declared_noise(system, world)
        rule = system.privacy.reward_rule
        largest = min(reward_bound, max(abs(rule.low), abs(rule.high)))
        if rule.scale > 0:
            largest += rule.scale * math.log(world.horizon / FAILURE)
        if isinstance(system.structure, GlobalLocal):
            largest = math.inf
        dim = system.structure.shared_dim(world)
        return cls(dim, world.bound, largest, gram, reward, world.horizon, world.actions)

    def check(self, upload: Upload, before: int = 0) -> None:
        """Refuse an upload that no observations can have led to, or one too many after `before` of everybody."""
        V, b, n = upload.sums
        form = Form(self.dim, self.actions)
        if not form.fits(upload.sums):
            raise Refusal("statistics", f"The statistics are {form.said(upload.sums)}.")
        if not (np.isfinite(V).all() and np.isfinite(b).all() and np.isfinite(upload.known)):
            raise Refusal("statistics", "The statistics are not finite.")
        if n > self.horizon:
            raise Refusal("statistics", f"The statistics are of {n} observations, but horizon = {self.horizon}.")
        if before + n > self.horizon:
            raise Refusal(
                "horizon",
                f"The federation has {before} observations and cannot take {n} more, because horizon = {self.horizon}; "
                "its operator can raise that.",
            )
        if n == 0 and (V.any() or b.any()):
            raise Refusal("statistics", "The statistics are of no observation, but are not zero.")
        most = n * self.bound**2
        rounding = 1e-9 * max(1.0, most)
        trace = float(np.trace(V, axis1=-2, axis2=-1).sum())
        if trace > most + self.dim * self.gram + rounding:
            raise Refusal("statistics", f"The trace is {trace:.6g}, but {n} contexts allow at most {most:.6g}.")
        if math.isinf(self.reward_bound):
            if float(np.abs(b).max(initial=0.0)) > RESIDUALS * n * self.bound:
                raise Refusal("statistics", f"What is left of rewards cannot have been beyond ±{RESIDUALS:g}.")
            M, slack = V + 0.0, self.gram + rounding
        else:
            M, slack = np.empty((*b.shape[:-1], self.dim + 1, self.dim + 1)), self.gram + self.reward
            M[..., :-1, :-1] = V
            M[..., -1, :-1] = M[..., :-1, -1] = b
            M[..., -1, -1] = n * self.reward_bound**2
            slack += 1e-9 * max(1.0, most, n * self.reward_bound**2)
        M += slack * np.eye(M.shape[-1])
        if not _is_definite(M):
            if np.linalg.eigvalsh(V)[..., 0].min() < -self.gram - rounding:
                raise Refusal("statistics", "The matrix is not positive semi-definite.")
            raise Refusal("statistics", f"The rewards cannot have been within ±{self.reward_bound:g}.")
        if self.gram > 0 and self.reward > 0 and np.linalg.eigvalsh(V)[0] < -self.gram - rounding:
            raise Refusal("statistics", "The matrix is not positive semi-definite.")


def declared_noise(system: System, world: World) -> tuple[float, float]:
    """Bounds of ‖N‖ and ‖h‖ for the noise in any upload of any client, that all hold with probability 1 − FAILURE.

    An upload is the difference of two noisy sums, hence the factor 2.
    """
    if system.privacy.site != "client":
        return 0.0, 0.0
    gram = reward = 0.0
    for member in range(world.n_clients):
        stream = system.privacy.stream(member, _no_source)
        if stream is not None:
            noise = _bounds(stream.mechanism, world.n_clients)
            gram, reward = max(gram, noise[0]), max(reward, noise[1])
        if not isinstance(getattr(system.privacy, "epsilon", None), tuple):
            break  # one mechanism for all
    return gram, reward


def _bounds(mechanism: Mechanism, clients: int) -> tuple[float, float]:
    if mechanism.scale == 0:
        return 0.0, 0.0
    if mechanism.noise != "symmetric":  # √N pays, many times over, for all clients together
        return 0.0, 2 * reward_noise_bound(mechanism, failure=FAILURE) * math.sqrt(clients)
    std = np.array([float(noise_std(mechanism).max())])
    looks = np.array([float(clients * mechanism.n_max)])
    return (
        2 * gram_bound(std, looks, mechanism.dim, FAILURE / 2),
        2 * chi_bound(std / mechanism.reward_weight, looks, mechanism.dim, FAILURE / 2),
    )


def _no_source(_: int) -> np.random.Generator:
    raise FedbanditError("Nothing is drawn to know how large noise can be.")


def _is_definite(M: Array) -> bool:
    """Whether a Cholesky factorisation succeeds, which costs a tenth of the eigenvalues."""
    try:
        np.linalg.cholesky(M)
    except np.linalg.LinAlgError:
        return False
    return True
