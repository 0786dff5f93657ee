"""What a federation remembers of its migrations, and tells in its invitations: what became of features and actions.

A client's file is carried over as the federation's sums were (`fedbandit migrate --client`), by every migration since
the terms that it is under: its owner need not say how, and cannot say anything else.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fedbandit.errors import FedbanditError
from fedbandit.network.carried import Carried, Numbers, as_text
from fedbandit.network.invitation import Agreement
from fedbandit.state import StateError


class Migration(NamedTuple):
    """One migration: the terms it ended, and the old number of each new feature and action, None if it is new."""

    terms: tuple[str, ...]
    """The digests of terms that meant the same until then; the agreement's is the last."""
    agreement: Agreement
    features: Numbers
    actions: Numbers

    @classmethod
    def of(cls, carried: Carried, terms: Sequence[str] = ()) -> Migration:
        """The one that carries over like this, from the terms with these digests."""
        digests = tuple(terms) or (carried.old.digest.hex(),)
        return cls(digests, carried.old, tuple(carried.features), tuple(carried.actions))

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        lists = {"terms": list(self.terms), "features": list(self.features), "actions": list(self.actions)}
        return {**lists, "agreement": self.agreement.as_json()}

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Migration:
        """What `as_json` gave."""
        try:
            features, actions = (
                tuple(None if k is None else operator.index(k) for k in value[what]) for what in ("features", "actions")
            )
            return cls(tuple(map(str, value["terms"])), Agreement.of_json(value["agreement"]), features, actions)
        except (TypeError, KeyError) as error:
            raise FedbanditError(f"The coordinator's migrations cannot be understood: {error}.") from None


def remembered(kept: Mapping[str, Any]) -> dict[str, Any]:
    """What a federation's state has of its migrations, if it can be understood: {"steps": […]}, or nothing."""
    if set(kept) - {"steps"}:
        raise StateError(f"The stored migrations have {sorted(kept)[0]!r}, which is not expected.")
    all_of(kept.get("steps", []))
    return dict(kept)


def all_of(told: Iterable[Mapping[str, Any]]) -> list[Migration]:
    """The migrations that an invitation tells, the first of them first."""
    try:
        return [Migration.of_json(one) for one in told]
    except TypeError as error:
        raise FedbanditError(f"The coordinator's migrations cannot be understood: {error}.") from None


def way(where: str, old: Agreement, new: Agreement, migrations: Sequence[Migration]) -> list[Carried]:
    """What has to be done to a file under old terms, one migration after the other."""
    said = old.digest.hex()
    if old.digest == new.digest:
        raise FedbanditError(f"{where} is under these terms already.")
    found = [k for k, migration in enumerate(migrations) if said in migration.terms]
    if len(found) == 1:
        since = migrations[found[0] :]
        ends = [*(migration.agreement for migration in since[1:]), new]
        begins = [old, *ends[:-1]]
        return [
            Carried(one, other, migration.features, migration.actions)
            for one, other, migration in zip(begins, ends, since, strict=True)
        ]
    if found:
        raise FedbanditError(
            f"{where} is under terms ({said[:8]}) that the federation has had {len(found)} times, with migrations in "
            "between, and nobody can say from which time it is: begin with a new file."
        )
    if old.is_sound_change(new):
        raise FedbanditError(f"{where} needs no migration: its client goes on under the new terms by itself.")
    raise FedbanditError(
        f"{where} is under terms ({said[:8]}) that the federation was not migrated from, as its coordinator knows: "
        "it is of another federation, or has to begin with a new file."
    )


def require_as_migrated(what: str, given: Numbers | None, steps: Sequence[Numbers]) -> None:
    """Refuse numbers that are not those of all migrations together.

    >>> require_as_migrated("features", [2, None], [[2, 1, 0], [0, None]])
    >>> require_as_migrated("features", [0, None], [[2, 1, 0], [0, None]])
    Traceback (most recent call last):
    fedbandit.errors.FedbanditError: --features is 0,-, but the federation was migrated by 2,-: leave it out.
    """
    numbers = list(steps[0])
    for step in steps[1:]:
        numbers = [None if k is None else numbers[k] for k in step]
    if given is not None and list(given) != numbers:
        raise FedbanditError(
            f"--{what} is {as_text(given)}, but the federation was migrated by {as_text(numbers)}: leave it out."
        )
