"""Noise in the sums of a model on a graph whose data are in one place, drawn anew after each observation.

The very streams that clients or a trusted coordinator use on a network, with the same random numbers; in one place it
makes no difference to the numbers who draws them. Noise does not depend on data, so only noise is asked for.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from fedbandit.privacy import PublishedSums
from fedbandit.privacy.privacy import Releases
from fedbandit.sharing import NoiseInSums
from fedbandit.state import State, joined, parts_of, stored
from fedbandit.streams import Purpose, generator
from fedbandit.structures import OnGraph
from fedbandit.sums import Sums
from fedbandit.system import System
from fedbandit.types import Array
from fedbandit.world import World


class NoiseStreams:
    """One stream for each member that has one, and what it has come to: h (`NoiseOnGraph`)."""

    def __init__(self, system: System, world: World, seed: int) -> None:
        self.dim, self.seed = world.dim, seed
        self.privacy = system.privacy
        self.shift: Array = np.zeros(world.n_clients * world.dim)
        self.lift: Array | None = None
        self.observations = np.zeros(world.n_clients, dtype=np.int64)
        self.streams: dict[int, Releases] = {}

    def stream(self, member: int) -> Releases:
        """The stream of a member."""
        if member not in self.streams:
            stream = self.privacy.stream(member, partial(generator, self.seed, Purpose.NOISE, member))
            assert stream is not None, "sums of rewards are noised, but by nothing"
            self.streams[member] = stream
        return self.streams[member]

    def drawn(self, member: int, dim: int) -> Array:
        """How a member's noise changes by one more release."""
        return self.stream(member).release(Sums(np.zeros((0, 0)), np.zeros(dim), 1)).b

    def state(self) -> State:
        """The noise and all streams."""
        own = State({}, {"shift": self.shift.copy(), "observations": self.observations.copy()})
        streams = {
            f"stream.{i}": State({}, {key: np.asarray(value) for key, value in stream.state().items()})
            for i, stream in self.streams.items()
        }
        return joined({"streams": sorted(self.streams)}, {"noise": own, **streams})

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        parts = parts_of(state)
        self.shift = stored(parts["noise"], "shift", self.shift.shape).copy()
        self.observations = stored(parts["noise"], "observations", self.observations.shape).copy()
        for i in state.header["streams"]:
            self.stream(i).restore(parts[f"stream.{i}"].arrays)


class NoiseOnSums(NoiseStreams):
    """θ̃ = P (vec(s) + h): each user's sum has noise of its own."""

    def __init__(self, system: System, world: World, seed: int, known: NoiseInSums) -> None:
        super().__init__(system, world, seed)
        self.known = known

    def observed(self, user: int, V: Array) -> None:  # noqa: ARG002
        """User u has one more observation, and so one more release."""
        self.shift[user * self.dim : (user + 1) * self.dim] += self.drawn(user, self.dim)
        self.observations[user] += 1

    def radius(self, user: int, block: Array, columns: Array) -> float:  # noqa: ARG002
        """That of all users' noise, in the norm of P_uu⁻¹."""
        return self.known.radius(np.asarray(np.linalg.inv(block)), columns, self.observations)


class NoiseOnModel(NoiseStreams):
    """θ̃ = (M ⊗ I) A⁻¹ (b + η) with η ∈ R^dN (`PublishedSums`).

    With η' = (M ⊗ I) η: (M ⊗ I) A⁻¹ η = (λI + (K ⊗ I) D)⁻¹ η' = (I − P D) η'/λ, that is h = −D η'/λ and g = η'/λ, where
    D = blockdiag(V_1, …, V_N).
    """

    def __init__(self, system: System, world: World, seed: int, published: PublishedSums, M: Array) -> None:
        super().__init__(system, world, seed)
        self.lift: Array = self.shift.copy()
        self.published, self._M, self._ridge = published, M, system.ridge

    def observed(self, user: int, V: Array) -> None:
        """One more release: of the tree of all, which has the number after the last user's, or of user u's own."""
        N = len(self._M)
        self.observations[user] += 1
        lift = self.lift.reshape(N, -1)
        if self.published.separate:
            lift[user] += self.drawn(user, self.dim) / self._ridge
        else:
            change = self.drawn(N if self.published.site == "coordinator" else user, N * self.dim)
            lift += self._M @ change.reshape(N, -1) / self._ridge
        self.shift = -(V @ lift[:, :, None]).reshape(-1)

    def radius(self, user: int, block: Array, columns: Array) -> float:  # noqa: ARG002
        """The paper's term."""
        return self.published.wider(self.observations, user)

    def state(self) -> State:
        """Also g."""
        header, arrays = super().state()
        return State(header, {**arrays, "noise/lift": self.lift.copy()})

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        super().restore(state)
        self.lift = stored(parts_of(state)["noise"], "lift", self.lift.shape).copy()


def graph_noise(system: System, world: World, seed: int) -> NoiseOnSums | NoiseOnModel | None:
    """The noise of a graph model in one place; of a system that was told its world."""
    if system.privacy.perturbs != "reward sums" or not isinstance(system.structure, OnGraph):
        return None
    if isinstance(system.privacy, PublishedSums):
        return NoiseOnModel(system, world, seed, system.privacy, system.structure.mixing(world))
    known = system.pool_noise()
    assert isinstance(known, NoiseInSums), "noise on sums of rewards has to say what it does to widths"
    return NoiseOnSums(system, world, seed, known)
