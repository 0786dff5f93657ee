"""A client's file under the new terms of its federation, which has been migrated (`network/coordinator/migrate.py`).

What the client has learnt is carried over as the coordinator's sums are (`network/carried.py`), its personal part too.
So are choices whose reward has not come, tokens that were taken, and above all what is pending: it goes into the first
upload of the new file, which is a new incarnation of the same member. Uploads without a receipt cannot be carried over,
since nobody knows whether they are among what was migrated. A private client's file is left alone, with its ledger.
"""

from __future__ import annotations

from collections.abc import Callable

from fedbandit.errors import FedbanditError
from fedbandit.model import RidgeModel
from fedbandit.network.carried import Carried, Numbers
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.client.journal import KIND, stored_agreement
from fedbandit.network.invitation import Agreement
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
    features: Numbers | None = None,
    actions: Numbers | None = None,
) -> DurableClient:
    """Put a client's file under new terms; features and actions are the new ones' old numbers, None: by `Carried`."""
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
    if agreement.digest == new.digest:
        raise FedbanditError(f"{store.where} is under these terms already.")
    carried = Carried(agreement, new, features, actions)
    own = carried.own(member)  # may be refused; opening the file is the first change to it
    old = DurableClient(store, agreement, before, entropy)
    target = DurableClient(MemoryStore(), new, member, entropy, federation=old.federation or "")
    if old.machine.outbox:
        raise FedbanditError(
            f"{store.where} has {len(old.machine.outbox)} uploads without a receipt, and nobody knows whether they "
            "were migrated: run the client under the old terms until flush() is True, or begin with a new file."
        )
    _carry(carried, own, old.machine.model, target.machine.model)
    state = old.machine.state()
    for number, row in zip(state.arrays["waiting"].tolist(), state.arrays["contexts"], strict=True):
        x = carried.context(row)
        if x is not None:  # of an action that is gone nothing is learnt
            target.machine.await_reward(number, x)
    target.machine.steps, target.redeemed = old.machine.steps, old.redeemed
    store.replace(KIND, pack(KIND, target.state()), durable=True)
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
