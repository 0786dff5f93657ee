"""A client's file under the new terms of its federation, which has been migrated (`network/coordinator/migrate.py`).

What the client has learnt is carried over as the coordinator's sums were (`network/migrated.py`), so is its personal
part, and so are choices whose reward has not come, tokens that were taken, and above all what is pending: it goes into
the first upload of the new file, which is a new incarnation of the same member. Uploads without a receipt cannot be
carried over, since nobody knows whether they are among what was migrated. A private client's file is left alone, with
its ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedbandit.errors import FedbanditError
from fedbandit.model import RidgeModel
from fedbandit.network.carried import Carried, Numbers
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.client.journal import KIND, stored_agreement
from fedbandit.network.invitation import Agreement
from fedbandit.network.migrated import Migration, require_as_migrated, way
from fedbandit.network.stores import MemoryStore, Store
from fedbandit.sharing import LocalModel
from fedbandit.state import pack
from fedbandit.structures.action_model import ActionModel
from fedbandit.structures.two_part_model import TwoPartModel
from fedbandit.types import Array


def migrate_client(
    store: Store,
    new: Agreement,
    member: int,
    entropy: Callable[[], int],
    migrations: Sequence[Migration],
    *,
    features: Numbers | None = None,
    actions: Numbers | None = None,
    federation: str = "",
    backup: Callable[[], object] = lambda: None,
) -> DurableClient:
    """Put a client's file under the terms of its federation, as the federation's `migrations` did to its sums.

    Whoever says which features and actions are which has to say what the federation was told. Whatever may be refused
    is looked at before `backup` is called; the store is written once, afterwards.
    """
    stored = stored_agreement(store)
    if stored is None:
        raise FedbanditError(f"{store.where} has no client's state.")
    agreement, before = stored
    if member != before:
        raise FedbanditError(f"{store.where} is of member {before}, but this client is member {member}.")
    for one in (agreement, new):
        if one.build().guarantee.basis != "none":
            raise FedbanditError(
                f"{store.where} is left as it is: a private client's file has its ledger, and its noise was calibrated "
                "for the terms under which it spent its budget."
            )
    steps = way(store.where, agreement, new, migrations)
    require_as_migrated("features", features, [carried.features for carried in steps])
    require_as_migrated("actions", actions, [carried.actions for carried in steps])
    client = DurableClient(_copy(store), agreement, before, entropy, federation=federation)
    if client.machine.outbox:
        raise FedbanditError(
            f"{store.where} has {len(client.machine.outbox)} uploads without a receipt, and nobody knows whether they "
            "were migrated: run the client under the old terms until flush() is True, or begin with a new file."
        )
    for carried in steps:
        client = _carried_over(client, carried, member, entropy)
    backup()
    store.replace(KIND, pack(KIND, client.state()), durable=True)
    return client


def _copy(store: Store) -> MemoryStore:
    """What the store has of a client: opening it is the first change to it."""
    copy = MemoryStore()
    snapshot, entries = store.read(KIND)
    assert snapshot is not None
    copy.replace(KIND, snapshot)
    copy.append(KIND, entries)
    copy.where = store.where
    return copy


def _carried_over(old: DurableClient, carried: Carried, member: int, entropy: Callable[[], int]) -> DurableClient:
    """The same client under the next terms."""
    own = carried.own(member)
    target = DurableClient(MemoryStore(), carried.new, member, entropy, federation=old.federation or "")
    _carry(carried, own, old.machine.model, target.machine.model)
    state = old.machine.state()
    for number, row in zip(state.arrays["waiting"].tolist(), state.arrays["contexts"], strict=True):
        x = carried.context(row)
        if x is not None:  # of an action that is gone nothing is learnt
            target.machine.await_reward(number, x)
    target.machine.steps, target.redeemed = old.machine.steps, old.redeemed
    return target


def _carry(carried: Carried, own: Array, mine: LocalModel, fresh: LocalModel) -> None:
    """Let a new model know what the old one has learnt; `own` is M of the personal part."""
    if isinstance(mine, TwoPartModel) and isinstance(fresh, TwoPartModel):
        _carry_one(carried, mine.own, fresh.own, own)
        _carry_one(carried, mine.first, fresh.first, carried.whole)
    shared, into = (model.shared if isinstance(model, TwoPartModel) else model for model in (mine, fresh))
    _carry_one(carried, shared, into, carried.shared)
    if isinstance(fresh, TwoPartModel):
        fresh.go_on(starting=isinstance(mine, TwoPartModel) and mine.starting)


def _carry_one(carried: Carried, mine: LocalModel, fresh: LocalModel, M: Array) -> None:
    if not (isinstance(mine, RidgeModel | ActionModel) and isinstance(fresh, RidgeModel | ActionModel)):
        raise FedbanditError(f"{carried.new.system} is not migrated: a {type(mine).__name__} cannot be carried over.")
    fresh.adopt(carried.sums(mine.in_common(), M))
    fresh.observe_sums(carried.sums(mine.pending(), M))
