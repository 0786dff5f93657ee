"""What a coordinator shows, as JSON: a summary for the live page, what is wrong first, and clients a page at a time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

from fedbandit._version import __version__
from fedbandit.network.clock import now
from fedbandit.network.coordinator.activity import RECENT_WIDTH
from fedbandit.network.coordinator.erasure import unfinished
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.health import SPENT, is_spent
from fedbandit.network.coordinator.host import Host, HostedFederation
from fedbandit.network.coordinator.ledger import claim_in_use, privacy_spent
from fedbandit.network.coordinator.register import MemberRecord
from fedbandit.network.refusal import CAUSES
from fedbandit.network.relay.federation import RelayFederation

SOON = 30 * 86_400.0
"""Seconds before its end at which a certificate is something to act on."""
RECENTLY = 600.0
LOOK_SECONDS = 1.0
"""For how long whoever looks waits for a write."""
P = ParamSpec("P")
T = TypeVar("T")


async def between_writes(
    hosted: HostedFederation, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T | None:
    """What a function finds while nothing is written; None if something takes long, or memory is not as the store is.

    Shown meanwhile, what is not in the store might be gone again: a counter that falls is a restart for Prometheus.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(LOOK_SECONDS), hosted.paused():
            return None if hosted.federation.journal.behind else function(*args, **kwargs)
    return None


async def look(host: Host) -> None:
    """Look at every federation; what is shown of one at which that cannot be done now is what was seen last."""

    async def at(name: str, hosted: HostedFederation) -> None:
        hosted.seen = await between_writes(hosted, _describe, name, hosted, now()) or hosted.seen

    await asyncio.gather(*(at(name, hosted) for name, hosted in list(host.federations.items())))


def _seen(name: str, hosted: HostedFederation) -> dict[str, Any]:
    return hosted.seen or _describe(name, hosted, now())


def overview(host: Host) -> dict[str, Any]:
    """Everything the live page needs but the clients."""
    at = now()
    expires = host.expiry()
    return {
        "version": __version__,
        "now": at,
        "begun": host.begun,
        "unauthenticated": host.unauthenticated,
        "certificate": expires,
        "store": {"failures": host.store.failures, "where": host.store.where},
        "connections": None if host.guard is None else {
            "open": len(host.guard.open), "most": host.guard.most, "refused": host.guard.refused,
        },
        "problems": [*([] if expires is None or expires - at > SOON else [_expires(expires - at)]),
                     *host.owners.unowned(),
                     *([host.owners.not_taken] if host.owners.not_taken else []),
                     *([unconfigured(host.owners.unconfigured)] if host.owners.unconfigured else [])],
        "federations": [
            {**_seen(name, hosted), "connected": len(hosted.connections), "queue": hosted.queue.qsize()}
            for name, hosted in host.federations.items()
        ],
    }  # fmt: skip


def _expires(seconds: float) -> str:
    days = int(seconds // 86_400)
    return (
        f"The certificate expires in {days} days: fedbandit keys renew." if seconds > 0 else "The certificate expired."
    )


def _describe(name: str, hosted: HostedFederation, at: float) -> dict[str, Any]:
    federation = hosted.federation
    activity, claim = federation.activity, claim_in_use(federation)
    return {
        "name": name,
        "system": federation.agreement.system,
        "keywords": dict(federation.agreement.keywords),
        "dim": federation.agreement.world.dim,
        "rounds": federation.rounds if federation.machine.clocked else None,
        "places": federation.agreement.world.n_clients,
        "horizon": federation.agreement.world.horizon,
        "terms": federation.digest.hex(),
        "guarantee": str(claim),
        "promise": claim.sentence(),
        "problems": problems(hosted, at),
        "totals": totals(federation),
        "reward": _total(hosted, "reward"),
        "regret": _total(hosted, "regret"),
        "observed": _total(hosted, "observed"),
        "alone": _total(hosted, "alone"),
        "recent": {"width": RECENT_WIDTH, "slices": activity.recent(at)},
        "activity": {"begin": activity.begin, "width": activity.width, "slices": list(activity.slices)},
        "clusters": clusters(federation),
        "upstream": federation.upstream() if isinstance(federation, RelayFederation) else None,
        "unopened": "" if federation.machine.pool is None else federation.machine.pool.unopened,
        "refusals": dict(federation.refusals),
        "refused": [
            {"at": when, "client": client, "kind": kind, "cause": CAUSES[kind]}
            for when, client, kind in list(federation.refused)
        ],
    }


def problems(hosted: HostedFederation, at: float) -> list[str]:
    """What a person has to look at, in sentences."""
    federation = hosted.federation
    records = federation.register.present
    found = [] if hosted.health.failing is None else [f"Nothing can be written: {hosted.health.failing}"]
    if isinstance(federation, RelayFederation) and (problem := federation.upstream().get("problem")):
        found.append(f"The coordinator above: {problem}")
    horizon, n = federation.agreement.world.horizon, int(federation.machine.members.n.sum())
    if n > 0.9 * horizon:
        found.append(f"{n:,} of {horizon:,} observations are in: beyond the horizon uploads are refused; raise it.")
    pool = federation.machine.pool
    if pool is not None and pool.unopened:
        found.append(f"Secure sums: {pool.unopened}")
    if pool is not None and pool.lost:
        made = f"Publication {pool.lost} was made, but is not in the store, which has {pool.total.epoch}"
        found.append(f"{made}: nothing is published any more; restore a newer backup, or begin a new federation.")
    if is_spent(federation):
        found.append(SPENT)
    if erased := unfinished(federation):
        found.append(_unfinished(erased, federation.unfinished))
    quarantined = [f"{r.name} ({r.quarantined})" for r in records if r.quarantined]
    if quarantined:
        found.append(f"{len(quarantined)} in quarantine: {_some(quarantined)}.")
    suspected = [r.name for r in records if r.suspected and not r.quarantined]
    if suspected:
        found.append(f"{len(suspected)} suspected of contradicting the others, and left out: {_some(suspected)}.")
    kinds: dict[str, Counter[str]] = {}
    for refused in list(federation.refused):
        if at - refused.at < RECENTLY and refused.kind != "quarantined":
            kinds.setdefault(refused.kind, Counter())[refused.name] += 1
    found += [f"Refused lately ({kind}): {_some([*names])}: {CAUSES[kind]}." for kind, names in sorted(kinds.items())]
    full = len(records) >= federation.agreement.world.n_clients
    return [*found, *(["All places are taken."] if full and hosted.federation.refusals["identity"] else [])]


def _unfinished(erased: list[str], reason: str) -> str:
    return f"The store's files may still have {_some(erased)}, erased: ask again. {reason}".strip()


def unconfigured(names: list[str]) -> str:
    """What is said of federations that are in the store alone."""
    return f"In the store, but not configured: {_some(names)}. Configure them, or fedbandit remove NAME --config FILE."


def _some(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def clients_page(hosted: HostedFederation, search: str, page: int, size: int) -> dict[str, Any]:
    """The clients whose names have `search` in them, those with trouble first; the page of this number."""
    federation = hosted.federation
    found = [record for record in federation.register.present if search.lower() in record.name.lower()]
    found.sort(key=lambda r: (not r.quarantined, not r.suspected, -min(r.refusals, 1), r.name))
    pages = max(1, -(-len(found) // size))
    page = min(max(page, 0), pages - 1)
    return {
        "found": len(found),
        "page": page,
        "pages": pages,
        "clients": [_client(hosted, record) for record in found[page * size : (page + 1) * size]],
    }


def _client(hosted: HostedFederation, record: MemberRecord) -> dict[str, Any]:
    federation = hosted.federation
    return {
        "name": record.name,
        "member": record.member,
        "connected": record.member in hosted.connections,
        "address": hosted.addresses.get(record.name),
        "software": hosted.versions.get(record.name),
        "last_heard": record.last_heard or None,
        "observations": record.observations,
        "uploads": record.uploads,
        "downloads": record.downloads,
        "bytes": record.bytes_up + record.bytes_down,
        "refusals": record.refusals,
        "refused": next((r.kind for r in reversed(list(federation.refused)) if r.name == record.name), None),
        "quarantined": record.quarantined,
        "quarantined_by": record.quarantined_by,
        "suspected": record.suspected,
        "privacy": privacy_spent(federation, record) if federation.private else None,
        "report": hosted.reports.get(record.name),
    }


def totals(federation: Federation) -> dict[str, int]:
    """Sums over all clients."""
    records = federation.register.present
    return {
        "clients": len(records),
        "observations": sum(record.observations for record in records),
        "uploads": sum(record.uploads for record in records),
        "downloads": sum(record.downloads for record in records),
        "bytes": sum(record.bytes_up + record.bytes_down for record in records),
        "quarantined": sum(bool(record.quarantined) for record in records),
        "suspected": sum(record.suspected and not record.quarantined for record in records),
    }


def clusters(federation: Federation) -> list[list[str]] | None:
    """Who shares with whom, by name; None if everyone does."""
    groups = federation.machine.groups()
    if groups is None:
        return None
    names = {record.member: record.name for record in list(federation.register.by_number)}
    named = ([names[i] for i in group if i in names] for group in groups)
    return [group for group in named if group]


def _total(hosted: HostedFederation, key: str) -> float | None:
    """The sum of what clients report, None if none does."""
    values = [report[key] for report in list(hosted.reports.values()) if key in report]
    return sum(values) if values else None
