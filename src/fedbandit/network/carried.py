"""What was learnt under old terms as what it is under new ones: for `fedbandit migrate`, of federations and clients.

Features. V = Σ x xᵀ and b = Σ x y of fewer features are those rows and columns; a feature that is new has been 0 in all
contexts so far, and has zeros: V' = M V Mᵀ, b' = M b, where M (new × old) has a 1 where a new feature is an old one.

One θ for each action. The same for each block; an action that is new has a block of zeros, and one that is gone takes
its block along, which the others do not depend on. If the new terms have one θ for all, it is that of the sum of all
blocks. All of this is exact. The way back does not exist: a sum does not say which action an observation was of.

Two parts, one for all clients and one for each. A new feature has zeros in its part. What was learnt are rewards that
were split between the parts with the help of all features there were, and nothing is left to split them again: so no
feature is dropped or moves from one part to the other. A system of one part is one whose personal part is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedbandit.errors import FedbanditError
from fedbandit.network.invitation import Agreement
from fedbandit.structures import GlobalLocal
from fedbandit.sums import BlockSums, Sums
from fedbandit.types import Array

Numbers = Sequence[int | None]
"""The old number of each new feature or action, None if it is new."""

Entries = Callable[[Agreement, int | None], range]
"""Which entries of a context belong to a part, of a member or of all."""


class Carried:
    """How statistics, contexts and parts of models are carried over from one agreement to another.

    >>> from fedbandit.world import World
    >>> one = Agreement("async-linucb-am", {"d_global": 1}, World(n_clients=1, dim=2, horizon=9))
    >>> two = Agreement("async-linucb-am", {"d_global": 2}, World(n_clients=1, dim=4, horizon=9))
    >>> Carried(one, two).features
    [0, None, 1, None]
    """

    def __init__(
        self, old: Agreement, new: Agreement, features: Numbers | None = None, actions: Numbers | None = None
    ) -> None:
        self.old, self.new = old, new
        if old.digest == new.digest:  # who has a file could not be told before or after which migration it is
            raise FedbanditError("The federation is under these terms already, and stays as it is; give other ones.")
        self.features = same_features(old, new) if features is None else list(features)
        self.actions = same_actions(old, new) if actions is None else list(actions)
        _check("features", self.features, new.world.dim, old.world.dim)
        if new.world.actions and not old.world.actions:
            raise FedbanditError(
                f"actions is {new.world.actions}, but the federation has one θ for all actions, and its sums do not "
                "say which action an observation was of."
            )
        _check("actions", self.actions, new.world.actions, old.world.actions)
        _require_names("features", self.features, _feature_names(old), _feature_names(new))
        _require_names("actions", self.actions, old.action_names, new.action_names)
        self.whole = _matrix(self.features, range(old.world.dim))
        """M of whole contexts."""
        self.shared = _matrix(*self._part("shared", _shared, _own))
        """M of what is exchanged."""

    def own(self, member: int) -> Array:
        """M of a member's personal part, as large as those of others, and at least 1 × 1."""
        M = _matrix(*self._part("personal", lambda agreement, _: _own(agreement, member), _shared, member))
        padded = np.zeros([max(len(_own(agreement)), 1) for agreement in (self.new, self.old)])
        padded[: M.shape[0], : M.shape[1]] = M
        return padded

    def sums(self, sums: Sums, M: Array | None = None) -> Sums:
        """Statistics under the new terms, of what is exchanged unless M is that of another part."""
        V, b, n = sums
        M = self.shared if M is None else M
        V, b = M @ V @ M.T, b @ M.T
        if not self.old.world.actions:
            return Sums(V, b, n)
        if not self.new.world.actions:
            return Sums(V.sum(axis=-3), b.sum(axis=-2), n)
        if not isinstance(sums, BlockSums):
            return Sums(self._blocks(V, -3), self._blocks(b, -2), n)
        rows = {a: k for k, a in enumerate(sums.actions.tolist())}
        found = [(a, rows[was]) for a, was in enumerate(self.actions) if was in rows]
        at = np.array([k for _, k in found], dtype=np.int64)
        return BlockSums(V[at], b[at], n, np.array([a for a, _ in found], dtype=np.int64))

    def context(self, x: Array) -> Array | None:
        """A context under the new terms; None if its action is gone."""
        if not self.old.world.actions:
            return self.whole @ x
        features = self.whole @ x[1:]
        if not self.new.world.actions:
            return features
        return np.r_[self.actions.index(int(x[0])), features] if int(x[0]) in self.actions else None

    def _blocks(self, array: Array, axis: int) -> Array:
        """The blocks of the new actions."""
        moved = np.moveaxis(array, axis, 0)
        blocks = np.zeros((len(self.actions), *moved.shape[1:]))
        for a, was in enumerate(self.actions):
            if was is not None:
                blocks[a] = moved[was]
        return np.moveaxis(blocks, 0, axis)

    def _part(
        self, part: str, mine: Entries, others: Entries, member: int | None = None
    ) -> tuple[list[int | None], range]:
        """The old number of each feature of a part, and which the part had; refused if rewards were split otherwise."""
        now, before, elsewhere = mine(self.new, member), mine(self.old, member), others(self.old, member)
        carried = [self.features[k] for k in now]
        for k, was in zip(now, carried, strict=True):
            if was is not None and was not in before and was in elsewhere:
                raise FedbanditError(
                    f"Feature {k} would be in the {part} part, but as feature {was} it has not been, and rewards are "
                    "split between the parts already; give it as a new one (- in --features), beside the old one."
                )
        missing = [was for was in before if was not in carried]
        if missing and (_own(self.old, member) or _own(self.new, member)):
            raise FedbanditError(
                f"Feature {missing[0]} would be dropped from the {part} part, but rewards were split between the parts "
                "with its help, and cannot be split again without it: it has to stay, in its part."
            )
        return [was if was in before else None for was in carried], before


def same_features(old: Agreement, new: Agreement) -> list[int | None]:
    """Which old feature each of the new terms' is, None if it is new: by both schemas, else by position in its part.

    >>> from fedbandit.network.invitation import Schema
    >>> from fedbandit.world import World
    >>> one = Agreement("linucb", world=World(1, 2, 9), schema=Schema(("age", "price")))
    >>> same_features(one, Agreement("linucb", world=World(1, 3, 9), schema=Schema(("price", "size", "age"))))
    [1, None, 0]
    """
    if old.schema is not None and new.schema is not None:
        names = _feature_names(old)
        return [names.index(name) if name in names else None for name in _feature_names(new)]
    ours, theirs = len(_shared(old)), len(_shared(new))
    personal = [k - theirs + ours for k in range(theirs, new.world.dim)]
    return [*(k if k < ours else None for k in range(theirs)), *(k if k < old.world.dim else None for k in personal)]


def as_text(numbers: Numbers) -> str:
    """As it is written on the command line.

    >>> as_text([2, None, 0])
    '2,-,0'
    """
    return ",".join("-" if k is None else str(k) for k in numbers)


def _feature_names(agreement: Agreement) -> list[str]:
    """The names of features, in which an intercept is the empty one; none without a schema."""
    schema = agreement.schema
    return [] if schema is None else [*schema.features, *([""] if schema.intercept else [])]


def same_actions(old: Agreement, new: Agreement) -> list[int | None]:
    """Which old action each of the new terms' is, None if it is new: by their names, else by position."""
    if old.action_names and new.action_names:
        names = list(old.action_names)
        return [names.index(name) if name in names else None for name in new.action_names]
    return [a if a < old.world.actions else None for a in range(new.world.actions)]


def _check(what: str, numbers: Numbers, count: int, known: int) -> None:
    if numbers and count == 0:
        raise FedbanditError(f"--{what} is {as_text(numbers)}, but the new terms have no {what}: leave it out.")
    given = [k for k in numbers if k is not None]
    if len(numbers) != count or any(not 0 <= k < known for k in given) or len(set(given)) != len(given):
        raise FedbanditError(
            f"--{what} is {as_text(numbers)}, but must be {count} numbers below {known}, each once, or - for a new one."
        )


def _require_names(what: str, numbers: Numbers, old: Sequence[str], new: Sequence[str]) -> None:
    """Refuse to take what has a name in both terms for something else; as a new one it may begin anew."""
    for k, (name, was) in enumerate(zip(new, numbers, strict=False)):
        if was is not None and name in old and old[was] != name:
            raise FedbanditError(
                f"--{what} says that number {k}, {name!r}, is the old number {was}, {old[was]!r}, but {name!r} was "
                f"number {old.index(name)}; leave it out: names say which is which."
            )


def _shared(agreement: Agreement, _: int | None = None) -> range:
    """The entries of a context that the part for all clients sees."""
    return range(agreement.build().structure.shared_dim(agreement.world))


def _own(agreement: Agreement, member: int | None = None) -> range:
    """Those that a member's personal part sees, or the largest one."""
    structure, world = agreement.build().structure, agreement.world
    if not isinstance(structure, GlobalLocal):
        return range(0)
    _, first, largest = structure.parts(world)
    return range(first, first + (largest if member is None else int(structure.sizes(world)[member])))


def _matrix(carried: Numbers, before: range) -> Array:
    place = {k: j for j, k in enumerate(before)}
    M = np.zeros((len(carried), len(before)))
    for i, k in enumerate(carried):
        if k is not None:
            M[i, place[k]] = 1.0
    return M
