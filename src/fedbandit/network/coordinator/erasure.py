"""Exact erasure: a federation as if a client had never uploaded anything, in memory and in the files of the store.

What the others have uploaded is added up anew, groups that were found are looked for again, and whoever had been sent a
download is sent another. A snapshot takes the place of the journal, whose entries are the client's frames, and the
store is compacted, so that the bytes are gone from its files. The client's state is given up: it begins anew, with a
new file, or never. How much privacy it has spent is not forgotten (`releases`, `past`): what was seen was seen.

A receipt is *owed* until the store is compacted and the receipt handed out: it is in the state, and is what whoever
asks again is given. Until the store is compacted operators are told, and whoever begins to own the federation tries
again.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fedbandit.messages import Message
from fedbandit.network.coordinator.recorded import Event
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import NotAllowed, Store, StoreError

if TYPE_CHECKING:
    from fedbandit.network.coordinator.operated import OperatedFederation as Federation

MOST_EARLIER = 16
"""Receipts of a client that a later one of it may quote."""
OWED: dict[str, Any] = {"receipt": {}, "files": "", "compacted": False}
"""What is kept of an erasure: in which files what was erased still is, if somebody else has to rewrite them."""
UNFINISHED = "an erasure is unfinished"


def erase(federation: Federation, name: str, at: float, by: str) -> tuple[list[Message], dict[str, Any]]:
    """Erase a client, in memory and in the journal: what is to be sent, and a receipt of what there was.

    Of one that has not come back since, the receipt that is owed.
    """
    owed = federation.receipts.get(name)
    known = federation.register.by_name.get(name)
    if owed is not None and (known is None or not (known.joined or known.uploads or known.observations)):
        return [], owed["receipt"]
    record, machine = federation.register.record(name), federation.machine
    contributions = machine.contributions
    if not federation.rules.erasure or contributions is None:
        raise Refusal("erasure", f"Nothing can be erased: federation {federation.name!r} was not told erasure = true.")
    if record.member in machine.members.told:
        raise Refusal("erasure", f"{name!r} is a relay: whose observations it has sent is not known here.")
    V, b, n = contributions.sums_of(record.member)
    if record.observations > n:
        raise Refusal(
            "erasure",
            f"{record.observations - n} observations of {name!r} were uploaded before its sums were kept, "
            "and are in sums in which nobody's part is known: they cannot be erased.",
        )
    receipt: dict[str, Any] = {
        "federation": federation.name,
        "client": name,
        "at": datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds"),
        "by": by,
        "observations": n,
        "uploads": record.uploads,
        "statistics": hashlib.sha256(V.tobytes() + b.tobytes()).hexdigest(),
        "terms": federation.digest.hex(),
    }
    if owed is not None:
        before = dict(owed["receipt"])
        receipt["earlier"] = [*before.pop("earlier", []), before][-MOST_EARLIER:]
    answers = federation.erase_member(record, at)
    receipt["remaining"] = int(machine.members.n.sum())
    receipt["digest"] = digest(receipt)
    federation.receipts[name] = {**OWED, "receipt": receipt}
    federation.journal.snapshot(federation.state())
    federation.events.append(Event("a client was erased", {"client": name, "by": by}))
    federation.gone.append((record.member, name))
    return answers, receipt


def digest(receipt: dict[str, Any]) -> str:
    """SHA-256 of a receipt without its own digest, as JSON with sorted keys and without blanks."""
    told = {key: value for key, value in receipt.items() if key != "digest"}
    return hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def compact(federation: Federation, name: str = "") -> None:
    """See that the store's files have nothing of what was erased; then the receipt of whoever asked is not owed."""
    store, waiting, before = federation.store, unfinished(federation), ""
    try:
        if waiting:
            before = store.files()
            store.compact()
    except NotAllowed as error:  # somebody else may have done it, since this coordinator wrote there last
        if not all(_differ(federation.receipts[one]["files"], before) for one in waiting):
            raise _unavailable(federation, name, error, _files(store)) from None
    except StoreError as error:  # this coordinator may have rewritten them, but not well
        raise _unavailable(federation, name, error, None if _files(store) == before else "") from None
    federation.hand_out(name)


def unfinished(federation: Federation) -> list[str]:
    """Clients that were erased, but perhaps not from the store's files."""
    return sorted(name for name, owed in federation.receipts.items() if not owed["compacted"])


def _differ(before: str, now: str) -> bool:
    """Whether all files are others than they were."""
    return bool(before) and all(old != new for old, new in zip(before.split(), now.split(), strict=True))


def _files(store: Store) -> str:
    try:
        return store.files()
    except StoreError:
        return ""


def _unavailable(federation: Federation, name: str, error: StoreError, files: str | None) -> Refusal:
    """Remember why it was not compacted, and these files, which somebody else has to rewrite, if any."""
    federation.note_unfinished(name, str(error), files)
    sentence = f"The client is erased, but the store's files may still have it; ask again. {error}"
    return Refusal("unavailable", sentence)
