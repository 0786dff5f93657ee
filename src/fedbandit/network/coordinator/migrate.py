"""A federation's statistics under new terms: other features, actions, another system, other keywords.

What becomes of a member's sums says `network/carried.py`. After a migration each client is a new incarnation of the
same member: with its file under the new terms (`network/client/migrate.py`), or with a new file, and is sent what there
is. The federation remembers what became of features and actions, and says so to whoever migrates a file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fedbandit.errors import FedbanditError
from fedbandit.network.carried import Carried, as_text
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.journal import KIND
from fedbandit.network.coordinator.rules import Rules
from fedbandit.network.invitation import Agreement
from fedbandit.network.migrated import Migration
from fedbandit.network.stores import MemoryStore, Store
from fedbandit.sharing import Groups
from fedbandit.state import pack, unpack
from fedbandit.sums import Sums


def stored_agreement(store: Store, name: str) -> Agreement:
    """What the members of a stored federation have agreed on."""
    snapshot, _ = store.read(name)
    if snapshot is None:
        raise FedbanditError(f"The store {store.where} has no federation {name!r}.")
    return Agreement.of_json(unpack(KIND, snapshot, store.where).header["agreement"])


def migrate(
    store: Store, name: str, carried: Carried, rules: Rules, backup: Callable[[], object] = lambda: None
) -> Federation:
    """Put a federation under new terms in the place of the stored one.

    Whatever may be refused is looked at before `backup` is called; the store is written once, afterwards.
    """
    new = carried.new
    old = Federation(name, carried.old, _copy(store, name), rules=replace(rules, robust=None))
    target = Federation(name, new, MemoryStore(), rules=rules)
    _check(old, target, carried)
    kept, fresh = old.machine.contributions, target.machine.contributions
    assert kept is not None
    assert fresh is not None
    for record in old.register.by_number:
        i = record.member
        fresh.own.V[i], fresh.own.b[i], fresh.own.n[i] = carried.sums(kept.sums_of(i))
        fresh.own.releases[i], fresh.aside[i] = kept.own.releases[i], kept.aside[i]
        fresh.begin_anew(i)
        past = [*record.past, (record.incarnation, record.last_heard)] if record.incarnation else record.past
        begun: dict[str, Any] = {"incarnation": 0, "epoch": 0, "nonce": 0, "chain": 0, "recent": [], "verified": False}
        target.register.by_number.append(replace(record, past=past, released_before=record.releases, **begun))
    target.register.by_name = {record.name: record for record in target.register.by_number if record.name}
    _leave_behind(old, target, carried)
    for slot in range(len(target.machine.members.V)):
        fresh.sum_up(target.machine.members, slot)
    target.activity, target.terms, target.machine.version = old.activity, [new.digest.hex()], old.machine.version
    target.machine.epoch, target.receipts = old.machine.epoch, old.receipts
    migration = Migration.of(carried, old.terms)
    target.migrated = {"steps": [*old.migrated.get("steps", []), migration.as_json()]}
    backup()
    store.replace(name, pack(KIND, target.state()))
    return target


def _copy(store: Store, name: str) -> MemoryStore:
    """What the store has of the federation: opening it may be the first change to it."""
    copy = MemoryStore()
    snapshot, entries = store.read(name)
    if snapshot is not None:
        copy.replace(name, snapshot)
    copy.append(name, entries)
    copy.where = store.where
    return copy


def _require_told(carried: Carried) -> None:
    """Refuse a change of what features and actions mean that the terms do not tell: clients would go on as they are."""
    if not carried.old.is_sound_change(carried.new):
        return
    world = carried.old.world
    for what, numbers, count in (
        ("features", carried.features, world.dim),
        ("actions", carried.actions, world.actions),
    ):
        if numbers != list(range(count)):
            raise FedbanditError(
                f"--{what} is {as_text(numbers)}, but by their terms {what} are what they were: name them in both, "
                "with other names for what is not the same."
            )


def _check(old: Federation, target: Federation, carried: Carried) -> None:
    if old.private or target.private:
        raise FedbanditError(
            "A private federation is not migrated: its noise was calibrated for the terms under which clients spent "
            "their budgets."
        )
    if old.system.forgets or target.system.forgets:
        raise FedbanditError("A federation that forgets is not migrated: what it knew of other features fades anyway.")
    if old.machine.contributions is None or target.machine.contributions is None:
        raise FedbanditError(
            "A federation without members' own sums (retract = false, or a system that keeps none) is not migrated."
        )
    if len(old.register.by_number) > target.register.n_members:
        raise FedbanditError(
            f"clients is {target.register.n_members}, but {len(old.register.by_number)} numbers are in use."
        )
    for record in old.register.by_number:
        carried.own(record.member)  # refused here, before clients find out
    _require_told(carried)


def _leave_behind(old: Federation, target: Federation, carried: Carried) -> None:
    """What is nobody's any more stays in sums of groups that are the same; elsewhere nobody can say whose it was."""
    kept, fresh = old.machine.contributions, target.machine.contributions
    assert kept is not None
    assert fresh is not None
    if not kept.gone.n.any():
        return
    if not (isinstance(target.machine.sharing, Groups) and len(kept.gone.V) == len(fresh.gone.V)):
        raise FedbanditError(
            f"{int(kept.gone.n.sum())} observations are of nobody who is a member now, so that no group can have them."
        )
    fresh.gone.V[:], fresh.gone.b[:], _ = carried.sums(Sums(kept.gone.V, kept.gone.b, 0))
    count = kept.gone.n.size
    fresh.gone.n[:count], fresh.gone.releases[:count] = kept.gone.n, kept.gone.releases
