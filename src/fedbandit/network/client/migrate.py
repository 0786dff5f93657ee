"""A client's file under the new terms of its federation, which has been migrated (`network/coordinator/migrate.py`).

What the client has learnt is carried over as the coordinator's sums are: zeros for new features, exact. So are choices
whose reward has not come, tokens that were taken, and above all what is pending: it goes into the first upload of the
new file, which is a new incarnation of the same member. Uploads without a receipt cannot be carried over, since nobody
knows whether they are among what was migrated. A private client's file is left alone, with its ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedbandit.errors import FedbanditError
from fedbandit.model import RidgeModel
from fedbandit.network.client.durable import DurableClient
from fedbandit.network.client.journal import KIND, stored_agreement
from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import MemoryStore, Store
from fedbandit.state import pack
from fedbandit.sums import Sums
from fedbandit.types import Array


def migrate_client(
    store: Store, new: Agreement, member: int, features: Sequence[int | None] | None, entropy: Callable[[], int]
) -> DurableClient:
    """Put a client's file under new terms; `features` are the new ones' old numbers, None: by the schemas' names."""
    stored = stored_agreement(store)
    if stored is None:
        raise FedbanditError(f"{store.where} has no client's state.")
    agreement, before = stored
    if member != before:
        raise FedbanditError(f"{store.where} is of member {before}, but this client is member {member}.")
    features = agreement.same_features(new) if features is None else features
    for one in (agreement, new):
        if one.build().guarantee.basis != "none":
            raise FedbanditError(
                f"{store.where} is left as it is: a private client's file has its ledger, and its noise was calibrated "
                "for the terms under which it spent its budget."
            )
    old, target = (
        DurableClient(kept, terms, number, entropy)
        for kept, terms, number in ((store, agreement, before), (MemoryStore(), new, member))
    )
    if agreement.digest == new.digest:
        raise FedbanditError(f"{store.where} is under these terms already.")
    if old.machine.outbox:
        raise FedbanditError(
            f"{store.where} has {len(old.machine.outbox)} uploads without a receipt, and nobody knows whether they "
            "were migrated: run the client under the old terms until flush() is True, or begin with a new file."
        )
    mine, fresh = old.machine.model, target.machine.model
    if not (isinstance(mine, RidgeModel) and isinstance(fresh, RidgeModel)) or agreement.world.actions:
        raise FedbanditError(f"{new.system} is not migrated: only models of one part and one θ are carried over.")
    if len(features) != fresh.dim or any(k is not None and not 0 <= k < mine.dim for k in features):
        raise FedbanditError(f"features is {list(features)}, but must be {fresh.dim} numbers below {mine.dim} or none.")
    M = np.array([[float(k == feature) for k in range(mine.dim)] for feature in features])
    fresh.adopt(_mapped(M, mine.in_common()))
    fresh.observe_sums(_mapped(M, mine.pending()))
    state = old.machine.state()
    for number, x in zip(state.arrays["waiting"].tolist(), state.arrays["contexts"], strict=True):
        target.machine.await_reward(number, M @ x)
    target.machine.steps, target.redeemed = old.machine.steps, old.redeemed
    store.replace(KIND, pack(KIND, target.state()), durable=True)
    return target


def _mapped(M: Array, sums: Sums) -> Sums:
    return Sums(M @ sums.V @ M.T, M @ sums.b, sums.n)
