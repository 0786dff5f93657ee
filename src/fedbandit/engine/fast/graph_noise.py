"""Noise in the sums of a model on a graph, drawn anew after each observation.

The very streams that clients or a trusted coordinator use on a network, with the same random numbers; in one place it
makes no difference to the numbers who draws them. Noise does not depend on data, so only noise is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from fedbandit.engine.fast.graph_loop import Kernel
from fedbandit.privacy import PublishedSums, RewardSums
from fedbandit.privacy.reward_stream import RewardStream
from fedbandit.streams import Stream, generator
from fedbandit.system import System
from fedbandit.types import Array
from fedbandit.world import World


class NoiseStreams:
    """One stream for each member that has one, and their states."""

    def __init__(self, privacy: RewardSums | PublishedSums, seed: int) -> None:
        self.privacy = privacy
        self.seed = seed
        self.streams: dict[int, RewardStream] = {}

    def stream(self, member: int) -> RewardStream:
        """The stream of a member."""
        if member not in self.streams:
            source = partial(generator, self.seed, Stream.NOISE, member)
            self.streams[member] = self.privacy.stream(member, source)
        return self.streams[member]

    def state(self) -> dict[str, Any]:
        """All streams."""
        return {
            f"stream.{i}.{key}": np.asarray(value)
            for i, stream in self.streams.items()
            for key, value in stream.state().items()
        }

    def restore(self, arrays: Mapping[str, Any]) -> None:
        """Go on from there."""
        saved: dict[int, dict[str, Any]] = {}
        for name, value in arrays.items():
            if name.startswith("stream."):
                _, member, key = name.split(".")
                saved.setdefault(int(member), {})[key] = value
        for i, state in saved.items():
            self.stream(i).restore(state)


class NoiseOnSums(NoiseStreams):
    """θ̃ = P (vec(s) + h): each user's sum has noise of its own."""

    def __init__(self, privacy: RewardSums, seed: int, dim: int) -> None:
        super().__init__(privacy, seed)
        self.dim = dim
        self.variance = privacy.pool_noise(together=False).std ** 2

    def observed(self, u: int, kernel: Kernel) -> None:
        """User u has one more observation, and so one more release."""
        kernel.shift[u * self.dim : (u + 1) * self.dim] += self.stream(u).noise()
        kernel.variance[u] = self.variance


class NoiseOnModel(NoiseStreams):
    """θ̃ = (M ⊗ I) A⁻¹ (b + η) with η ∈ R^dN (`PublishedSums`).

    With η' = (M ⊗ I) η: (M ⊗ I) A⁻¹ η = (λI + (K ⊗ I) D)⁻¹ η' = (I − P D) η'/λ, that is h = −D η'/λ and g = η'/λ.
    """

    def __init__(self, privacy: PublishedSums, seed: int, M: Array, ridge: float) -> None:
        super().__init__(privacy, seed)
        self.published = privacy
        self.M = M
        self.ridge = ridge

    def observed(self, u: int, kernel: Kernel) -> None:
        """One more release: of the tree of all, which has the number after the last user's, or of user u's own."""
        N = len(self.M)
        change = self.stream(N if self.published.site == "coordinator" else u).noise()
        lift = kernel.lift.reshape(N, -1)
        lift += self.M @ change.reshape(N, -1) / self.ridge
        kernel.shift[:] = -np.einsum("uij,uj->ui", kernel.V, lift).reshape(-1)
        kernel.wider[0] = self.published.wider(kernel.own)


def graph_noise(system: System, M: Array, world: World, seed: int) -> NoiseOnSums | NoiseOnModel | None:
    """The noise of a system that has been told its world."""
    match system.privacy:
        case RewardSums() as privacy:
            return NoiseOnSums(privacy, seed, world.dim)
        case PublishedSums() as privacy:
            return NoiseOnModel(privacy, seed, M, system.ridge)
    return None
