"""Exact erasure: a federation as if a client had never uploaded anything, in memory and in the files of the store.

What the others have uploaded is added up anew, groups that were found are looked for again, and whoever had been sent a
download is sent another. A snapshot takes the place of the journal, whose entries are the client's frames, and the
store is compacted, so that the bytes are gone from its files. The client's state is given up: it begins anew, with a
new file, or never. How much privacy it has spent is not forgotten (`releases`, `past`): what was seen was seen.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fedbandit.messages import Message
from fedbandit.network.coordinator.recorded import Event
from fedbandit.network.refusal import Refusal
from fedbandit.network.stores import StoreError

if TYPE_CHECKING:
    from fedbandit.network.coordinator.federation import Federation


def erase(federation: Federation, name: str, at: float, by: str) -> tuple[list[Message], dict[str, Any]]:
    """Erase a client, in memory and in the journal: what is to be sent, and a receipt of what there was."""
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
    try:
        answers = federation.erase_member(record, at)
        federation.journal.snapshot(federation.state())
    except BaseException:
        federation.journal.behind = True  # memory has what the store has not
        raise
    federation.events.append(Event("a client was erased", {"client": name, "by": by}))
    federation.gone.append((record.member, name))
    receipt["remaining"] = int(machine.members.n.sum())
    return answers, {**receipt, "digest": digest(receipt)}


def digest(receipt: dict[str, Any]) -> str:
    """SHA-256 of a receipt without its own digest, as JSON with sorted keys and without blanks."""
    told = {key: value for key, value in receipt.items() if key != "digest"}
    return hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def compact(federation: Federation) -> None:
    """See that the store's files have nothing of what was erased."""
    try:
        federation.store.compact()
    except StoreError as error:
        raise Refusal(
            "unavailable", f"The client is erased, but the store's files may still have it; ask again. {error}"
        ) from None
