"""A part of the model for all clients, and a part for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit.errors import number, require, whole_number
from fedbandit.structures.structure import Structure
from fedbandit.structures.two_part_model import Parts, TwoPartModel
from fedbandit.types import Ints
from fedbandit.world import World


@dataclass(frozen=True)
class GlobalLocal(Structure):
    """E y = θ^(g)ᵀx^(g) + θ^(i)ᵀx^(l): the first d_global entries of a context concern all clients, others each one.

    Only statistics of the shared part are exchanged; see `two_part_model` for the alternating minimisation.

    d_global: d_g; what the world says if omitted. If the world does not know either, both parts see the whole
        context (x^(g) ≡ x^(l)): what all have in common, and how each differs.
    d_local: d_i, for all clients or for each; all entries that are not shared if omitted.
    overlap: whether x^(l) starts with the first entry instead of the one after x^(g); both may then be all of x.
    startup: whether a client learns alone, as LinUCB on the whole context, until its own data or those it was sent have
        full rank (Alg. 5). Without (Alg. 3) it shares from its first observation on.
    partial_noise: what is added to σ in widths for errors of partial rewards. Lemma 3.3 has 2, for contexts and
        parameters in unit balls; that is 20 times σ in its experiments and lets nothing be learnt in their horizon.
    projected: whether rewards are split by Eq. (7) as printed, with generalised inverses and projections to the unit
        ball, instead of ridge regressions.

    Reference: Li & Wang, Async-LinUCB, 2022: §3.4, Alg. 3, and Alg. 5 for the start-up.

    Deviations:
        D1. See `two_part_model`; `projected=True` undoes it.
        D2. partial_noise is 0 by default.
        D3. Clients with d_i = 0 have no start-up: there is nothing to keep apart, and they do what Async-LinUCB does.
    """

    d_global: int | None = None
    d_local: int | Sequence[int] | None = None
    overlap: bool = False
    startup: bool = True
    partial_noise: float = 0.0
    projected: bool = False

    has_personal_part: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check what can be checked without a world."""
        if self.d_global is not None:
            object.__setattr__(self, "d_global", whole_number("d_global", self.d_global))
        if self.d_local is not None:
            several = np.ndim(self.d_local) > 0 and np.size(self.d_local) > 0
            sizes = [whole_number("d_local", d, 0) for d in (self.d_local if several else [self.d_local])]  # type: ignore[union-attr]
            object.__setattr__(self, "d_local", tuple(sizes) if several else sizes[0])
        number(self.partial_noise, "partial_noise", "a finite number ≥ 0", at_least=0.0)

    def parts(self, world: World) -> Parts:
        """Which entries of a context belong to which part."""
        d = world.dim
        shared = world.d_global if self.d_global is None else self.d_global
        overlap = self.overlap or shared is None
        d_g = d if shared is None else shared
        require(d_g <= d, "d_global", d_g, f"at most {d}, the length of contexts")
        first = 0 if overlap else d_g
        largest = d - first if self.d_local is None else int(np.max(self.d_local))
        if overlap:
            require(largest <= d, "the largest d_local", largest, f"at most {d}, the length of contexts")
            require(
                max(d_g, largest) == d, "the larger of d_global and d_local", max(d_g, largest), f"{d}: all entries"
            )
        else:
            require(
                d_g + largest == d,
                "d_global + d_local",
                d_g + largest,
                f"{d}, the length of contexts (d_global = {d_g}, largest d_local = {largest})",
            )
        return Parts(d_g, first, largest)

    def model(self, world: World, member: int, ridge: float) -> TwoPartModel:
        """A shared and a personal part."""
        size = int(self.sizes(world)[member])
        return TwoPartModel(
            self.parts(world),
            size,
            world.dim,
            ridge,
            startup=self.startup,
            partial_noise=self.partial_noise,
            projected=self.projected,
        )

    def shared_dim(self, world: World) -> int:
        """That of the shared part."""
        return self.parts(world).shared

    def sizes(self, world: World) -> Ints:
        """d_i of each client."""
        own = self.parts(world).own if self.d_local is None else self.d_local
        sizes = np.asarray(own, dtype=np.int64)
        if sizes.ndim == 1:
            require(
                sizes.size == world.n_clients, "the length of d_local", sizes.size, f"{world.n_clients}, one a client"
            )
        return np.broadcast_to(sizes, (world.n_clients,)).copy()
