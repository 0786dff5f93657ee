"""Plausibility of uploads: impossible statistics are refused before they change anything."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError
from fedbandit.messages import Restate, Upload
from fedbandit.network.refusal import Refusal
from fedbandit.privacy.bounds import chi_bound, gram_bound, reward_noise_bound
from fedbandit.privacy.mechanism import Mechanism, noise_std
from fedbandit.protocols.trigger import NOTHING_COUNTED
from fedbandit.sums import BlockSums, FactoredSums, Form, Sums
from fedbandit.system import System
from fedbandit.types import Array
from fedbandit.world import World

FAILURE = 1e-9
"""The probability with which an honest client is ever refused because its noise was larger than what is allowed for."""

RESIDUALS = 1e6
"""Of a model of two parts: what is left of a reward after the personal part's estimate is no larger than this."""

AT_ONCE = 2**16
"""Numbers in matrices that are looked at together: as many as a cache has room for."""

_NOT_FINITE = "The statistics are not finite."
_INDEFINITE = "The matrix is not positive semi-definite."


@dataclass(frozen=True)
class Limits:
    """What n observations with ‖x‖ ≤ L and |y| ≤ B can add up to, give or take the noise that was declared.

    V = Σ x xᵀ, b = Σ x y:

        tr V ≤ n L²,      [[V, b], [bᵀ, n B²]] ⪰ 0

    The second is V ⪰ 0 and, by Cauchy–Schwarz in every direction, |⟨a, b⟩|² ≤ n B² aᵀVa. Noise N in V and h in b moves
    eigenvalues by at most ‖N‖ + ‖h‖: `gram` and `reward` bound these two (0 where nothing is noised, as follows from
    the system's privacy part). n, and everybody's n together, are at most the declared horizon, so that whatever was
    accepted can be added up and sent. With a θ for each action, or blocks of time, the second holds for
    each block, the first for all of them together. Where counts are padded, the horizon takes the place of n.
    Where B is not finite, |b| ≤ `RESIDUALS` n L is all that is asked.

    What a client says that it knows is a log-determinant, at most d log(1 + T L²/λ) for each block, or the log of a
    count; `known` is twice as much, for what noise and other regularisers add. By how much a trigger is exceeded that
    multiplies it by a count is at most T times that.
    """

    dim: int
    bound: float
    reward_bound: float
    gram: float = 0.0
    reward: float = 0.0
    horizon: int = 2**53 - 1
    actions: int = 0
    dated: bool = False
    ridge: float = 1.0
    padded: bool = False
    known: float = math.inf
    counting: bool = False

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
        if system.structure.has_personal_part:
            largest = math.inf
        dim = system.structure.shared_dim(world)
        blocks, most, padded = system.forgetting(world).slots or world.actions, world.horizon, system.privacy.padded
        sizes = dim, world.bound, largest, gram, reward, most, blocks
        mass = (most * world.bound**2 + world.n_clients * gram) / system.ridge
        known = 2 * dim * max(blocks, 1) * math.log1p(mass) + math.log1p(most) + 1
        return cls(*sizes, system.forgets, system.ridge, padded, known, system.counts_only)

    def check(self, upload: Upload, before: int = 0) -> None:
        """Refuse an upload that no observations can have led to, or one too many after `before` of everybody."""
        (fault,) = self.faults([upload])
        if fault is not None:
            raise fault
        self.check_horizon(upload.sums.n, before)

    def check_horizon(self, n: int, before: int) -> None:
        """Refuse n more observations than everybody's `before`, if they are too many."""
        if before + n > self.horizon:
            raise Refusal(
                "horizon",
                f"The federation has {before} observations and cannot take {n} more, because horizon = {self.horizon}; "
                "its operator can raise that.",
            )

    def check_growth(self, growth: float) -> None:
        """Refuse a request that says of more growth than there can be."""
        most = self.horizon * self.known
        if not abs(growth) <= most:
            raise Refusal("statistics", f"The growth is {growth:.6g}, but it can be {most:.6g} at most.")

    def faults(self, uploads: Sequence[Upload | Restate]) -> list[Refusal | None]:
        """Of each upload: why no observations can have led to it, if so. Their matrices are looked at together."""
        sentences = [self._fault(upload) for upload in uploads]
        sound = [k for k, upload in enumerate(uploads) if not sentences[k] and upload.sums.n > 0]
        for k in [k for k in sound if isinstance(uploads[k].sums, FactoredSums)]:
            sentences[k] = self._impossible_factor(uploads[k].sums)
        sound = [k for k in sound if not isinstance(uploads[k].sums, FactoredSums)]
        left = [(k, block) for k in sound for block in _blocks(uploads[k].sums)]
        noise = [_streams(upload) for upload in uploads]
        size = max(1, AT_ONCE // (self.dim + 1) ** 2)
        for first in range(0, len(left), size):
            part = left[first : first + size]
            found = self._impossible([block for _, block in part], np.array([noise[k] for k, _ in part]))
            for (k, _), sentence in zip(part, found, strict=True):
                sentences[k] = sentences[k] or sentence
        return [Refusal("statistics", sentence) if sentence else None for sentence in sentences]

    def _fault(self, upload: Upload | Restate) -> str:
        V, b, n = upload.sums
        form = Form(self.dim, self.actions)
        if not form.fits(upload.sums):
            return f"The statistics are {form.said(upload.sums)}."
        if (upload.round is not None) != self.dated:
            return f"The statistics are {'not dated' if self.dated else 'dated, but nothing is forgotten here'}."
        if not math.isfinite(upload.known):
            return _NOT_FINITE
        if abs(upload.known) > self.known and not (self.counting and upload.known == NOTHING_COUNTED):
            return f"What is known is {upload.known:.6g}, but it can be {self.known:.6g} at most."
        if n > self.horizon:
            return f"The statistics are of {n} observations, but horizon = {self.horizon}."
        if n == 0 and (V.any() or b.any()):
            return "The statistics are of no observation, but are not zero."
        most = n * self.bound**2
        if isinstance(upload.sums, BlockSums) and (trace := float(np.einsum("kii->", V))) > most * (1 + 1e-9):
            return f"The trace is {trace:.6g}, but {n} contexts allow at most {most:.6g}."
        return ""

    def _impossible_factor(self, sums: Sums) -> str:
        """V = LLᵀ and b = Lc are possible if tr V ≤ n L² and ‖c‖² ≤ n B²: nothing has to be factorised."""
        assert isinstance(sums, FactoredSums)
        if self.gram > 0 or self.reward > 0 or math.isinf(self.reward_bound):
            return self._impossible([sums], np.ones(1))[0]
        n, trace = sums.n, float(np.vdot(sums.L, sums.L))
        most, largest = n * self.bound**2, n * self.reward_bound**2
        if trace > most + 1e-9 * max(1.0, most):
            return f"The trace is {trace:.6g}, but {n} contexts allow at most {most:.6g}."
        if float(sums.c @ sums.c) > largest + 1e-9 * max(1.0, most, largest):
            return f"The rewards cannot have been within ±{self.reward_bound:g}."
        return ""

    def _impossible(self, sums: Sequence[Sums], streams: Array) -> list[str]:
        """Of each, with the noise of so many times one upload's: why it cannot be, if so."""
        gram, reward = self.gram * streams, self.reward * streams
        d, n = self.dim, np.array([float(self.horizon if self.padded else s.n) for s in sums])
        M = np.empty((len(sums), d + 1, d + 1))  # [[V, b], [bᵀ, n B²]]
        V, b = M[:, :d, :d], M[:, d, :d]
        for k, one in enumerate(sums):
            V[k], b[k] = one.V, one.b
        most = n * self.bound**2
        rounding = self._rounding(n)
        trace = np.einsum("kii->k", V) + 0.0
        sentences = [""] * len(sums)

        def say(wrong: NDArray[np.bool_], sentence: Callable[[int], str]) -> None:
            for k in np.flatnonzero(wrong).tolist():
                sentences[k] = sentences[k] or sentence(k)

        with np.errstate(over="ignore", invalid="ignore"):
            say(~np.isfinite(M[:, :, :d].sum(axis=(1, 2))), lambda _: _NOT_FINITE)
        say(
            trace > most + self.dim * gram + 1e-9 * np.maximum(1.0, most),
            lambda k: f"The trace is {trace[k]:.6g}, but {sums[k].n} contexts allow at most {most[k]:.6g}.",
        )
        if math.isinf(self.reward_bound):
            beyond = np.abs(b).max(axis=1) > RESIDUALS * n * self.bound
            say(beyond, lambda _: f"What is left of rewards cannot have been beyond ±{RESIDUALS:g}.")
            b[:], largest, noise = 0.0, np.ones(len(sums)), gram
        else:
            largest, noise = n * self.reward_bound**2, gram + reward
        slack = noise + rounding
        M[:, :d, d], M[:, d, d] = b, largest + noise + 1e-9 * np.maximum(np.maximum(1.0, most), largest)
        np.einsum("kii->ki", V)[:] += slack[:, None]
        lowest = -gram - rounding
        for k in () if _are_definite(M) else range(len(sums)):
            if not sentences[k] and not _are_definite(M[k]):
                possible = np.linalg.eigvalsh(sums[k].V)[0] >= lowest[k]
                sentences[k] = (
                    f"The rewards cannot have been within ±{self.reward_bound:g}." if possible else _INDEFINITE
                )
        if self.gram > 0 and self.reward > 0:
            say(np.linalg.eigvalsh(V)[:, 0] - slack < lowest, lambda _: _INDEFINITE)
        return sentences

    def _rounding(self, n: Array) -> Array:
        """How far below 0 an eigenvalue of V may be.

        All uploads together, which have no more than `horizon` observations, must stay above −λ, or somebody could make
        V(λ) of everybody singular by many small lies, or by one of many observations.
        """
        scale = np.maximum(1.0, n * self.bound**2)
        return np.minimum(1e-9 * scale, np.maximum(0.25 * self.ridge * n / self.horizon, 1e-13 * scale))


def _streams(upload: Upload | Restate) -> float:
    """How many times the noise of one client's upload can be in this one.

    Of k releases of a relay's clients √k times: those of different clients are independent, and those of one client
    are differences of its noisy running sums, which add up to one such difference. A Restate does not say k, which is
    at most the number of observations.
    """
    if upload.relayed is None:
        return 1.0
    return math.sqrt(max(upload.relayed.releases if isinstance(upload, Upload) else upload.sums.n, 1))


def _blocks(sums: Sums) -> list[Sums]:
    """Each block by itself, as if all observations could be in it."""
    if not isinstance(sums, BlockSums):
        return [sums]
    return [Sums(V, b, sums.n) for V, b in zip(sums.V, sums.b, strict=True)]


def declared_noise(system: System, world: World) -> tuple[float, float]:
    """Bounds of ‖N‖ and ‖h‖ for the noise in any upload of any client, that all hold with probability 1 − FAILURE.

    An upload is the difference of two noisy sums, hence the factor 2.
    """
    gram = reward = 0.0
    for mechanism in client_mechanisms(system, world):
        noise = _bounds(mechanism, world.n_clients)
        gram, reward = max(gram, noise[0]), max(reward, noise[1])
    return gram, reward


def client_mechanisms(system: System, world: World) -> list[Mechanism]:
    """What clients noise their uploads with: of each, or one for all; none if they do not."""
    if system.privacy.site != "client":
        return []
    each = range(world.n_clients if system.privacy.by_client else 1)
    streams = [system.privacy.stream(member, _no_source) for member in each]
    return [stream.mechanism for stream in streams if stream is not None]


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


def _are_definite(M: Array) -> bool:
    """Whether the Cholesky factorisation of each matrix succeeds, which costs a tenth of the eigenvalues."""
    try:
        np.linalg.cholesky(M)
    except np.linalg.LinAlgError:
        return False
    return True
