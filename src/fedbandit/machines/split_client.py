"""The client's machine for a model in two parts: the same messages, of the shared part only."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedbandit.engine.fast.choose import choose, scratch
from fedbandit.engine.fast.choose_split import choose_split, split_scratch
from fedbandit.engine.fast.packed import multiply_packed
from fedbandit.engine.fast.split_model import begin, cut, mask, may_begin, observe_split
from fedbandit.engine.fast.statistics import N_OWN, VERSION, empty_rows, inverse_of, observe, scratch_in, start_row
from fedbandit.errors import FedbanditError
from fedbandit.machines.client import Choice, ClientMachine
from fedbandit.messages import Message
from fedbandit.privacy.noise import Source
from fedbandit.state import State
from fedbandit.structures import GlobalLocal
from fedbandit.system import System
from fedbandit.types import Array
from fedbandit.world import World


class SplitClientMachine(ClientMachine):
    """A client whose `row` is the shared part; beside it there is a personal row, and at first one for the start-up.

    It takes and sends what `ClientMachine` does; messages have the dimension of the shared part.
    """

    def __init__(
        self, member: int, system: System, world: World, seed: int = 0, *, source: Source | None = None
    ) -> None:
        structure = system.structure
        if not isinstance(structure, GlobalLocal):
            raise FedbanditError(f"{system.name} has no model in two parts; its clients are ClientMachines.")
        super().__init__(member, system, world, seed, source=source)
        self.plan = self.plan._replace(sigma=self.plan.sigma + structure.partial_noise)
        self.parts = structure.parts(world)
        self.size = int(structure.sizes(world)[member])
        self.whole = world.dim
        self.own = empty_rows(1, max(self.parts.own, 1))[0]
        start_row(self.own, max(self.parts.own, 1), self.ridge)
        self.first = empty_rows(1, world.dim)[0]
        start_row(self.first, world.dim, self.ridge)
        self.starting = structure.startup and self.parts.own > 0 and self.size > 0
        self._looked = 0
        self._whole = scratch(1, world.dim)
        self._split = split_scratch(1, self.parts, world.dim)

    def select(self, arms: ArrayLike) -> Choice:
        """Choose one of the arms, given as a (K, d) array of contexts."""
        X = self.checked(arms, self.whole)
        if len(X) > self._split.scores.size:
            self._whole, self._split = scratch(len(X), self.whole), split_scratch(len(X), self.parts, self.whole)
        offered = np.arange(len(X))
        if self.starting:
            seen = np.empty_like(X)
            for x, masked in zip(X, seen, strict=True):
                mask(x, self.parts, self.size, masked)
            a = choose(self.plan, self.first, self.member, seen, offered, self._whole)
        elif self.parts.own == 0:
            a = choose(self.plan, self.row, self.member, X, offered, self._whole)
        else:
            a = choose_split(self.plan, self.row, self.own, self.member, X, offered, self.parts, self.size, self._split)
        return self.chosen(X[a], int(a))

    @property
    def acting(self) -> Array:
        """At first the row of the start-up."""
        return self.first if self.starting else self.row

    @property
    def observed(self) -> int:
        """Rewards learnt from, those of the start-up included."""
        return int(self.acting[N_OWN])

    @property
    def pending(self) -> int:
        """All of them, before the start-up is over."""
        return int(self.first[N_OWN]) if self.starting else super().pending

    def perceive(self, reward: float) -> float:
        """The reward to learn from; the start-up counts its observations apart."""
        return self.perceived(reward, self.observed)

    def learn(self, x: Array, y: float) -> None:
        """Learn from one observation, with the part of the model that is due."""
        d_g, d_l, work = self.parts.shared, self.parts.own, self._split
        if self.starting:
            self._start(x, y)
            return
        multiply_packed(inverse_of(self.row, d_g), x[:d_g], work.u_g)
        M = work.M
        if d_l == 0:
            observe(self.row, x, y, work.u_g, self.ridge, scratch_in(M, d_g))
        else:
            cut(x, self.parts, self.size, work.x_l)
            multiply_packed(inverse_of(self.own, d_l), work.x_l, work.u_l)
            observe_split(self.row, self.own, x[:d_g], work.x_l, y, work.u_g, work.u_l, self.ridge, M)

    def speak(self) -> list[Message]:
        """What to send now; nothing before the start-up is over."""
        return [] if self.starting else super().speak()

    def state(self) -> State:
        """Also the personal row and the start-up's."""
        header, arrays = super().state()
        header |= {"starting": self.starting, "looked": self._looked}
        return State(header, {**arrays, "own": self.own, "first": self.first})

    def restore(self, state: State) -> None:
        """Go on from there."""
        super().restore(state)
        self.starting, self._looked = state.header["starting"], state.header["looked"]
        self.own, self.first = state.arrays["own"], state.arrays["first"]

    def _start(self, x: Array, y: float) -> None:
        seen = np.empty_like(x)
        mask(x, self.parts, self.size, seen)
        multiply_packed(inverse_of(self.first, self.whole), seen, self._whole.best_u)
        observe(self.first, seen, y, self._whole.best_u, self.ridge, self._whole.M)
        if self.row[VERSION] == self._looked and self.first[N_OWN] < self.parts.shared:
            return
        if may_begin(self.first, self.row, self.parts, self.size, self.whole):
            begin(self.first, self.row, self.own, self.parts, self.size, self.whole, self.ridge)
            self.starting = False
        else:
            self._looked = int(self.row[VERSION])


def make_client(
    member: int, system: System, world: World, seed: int = 0, *, source: Source | None = None
) -> ClientMachine:
    """The machine that a client of this system needs."""
    kind = SplitClientMachine if system.structure.model == "split" else ClientMachine
    return kind(member, system, world, seed, source=source)
