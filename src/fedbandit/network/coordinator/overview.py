"""What a coordinator shows: one JSON object for the live page, and the same numbers for Prometheus."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from fedbandit._version import __version__
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.host import Host, HostedFederation, now
from fedbandit.network.coordinator.register import MemberRecord
from fedbandit.privacy import PrivateStatistics
from fedbandit.privacy.calibration import gaussian_epsilon
from fedbandit.privacy.mechanism import distance


def overview(host: Host) -> dict[str, Any]:
    """Everything the live page needs."""
    return {
        "version": __version__,
        "now": now(),
        "begun": host.begun,
        "unauthenticated": host.unauthenticated,
        "federations": [_describe(name, hosted) for name, hosted in host.federations.items()],
    }


def _describe(name: str, hosted: HostedFederation) -> dict[str, Any]:
    federation = hosted.federation
    records = list(federation.register.by_number)
    guarantee = federation.system.guarantee
    private = guarantee.basis != "none"
    clients = [
        {
            "name": record.name,
            "member": record.member,
            "connected": record.member in hosted.connections,
            "last_heard": record.last_heard or None,
            "observations": record.observations,
            "uploads": record.uploads,
            "downloads": record.downloads,
            "bytes": record.bytes_up + record.bytes_down,
            "refusals": record.refusals,
            "quarantined": bool(record.quarantined),
            "privacy": privacy_spent(federation, record) if private else None,
            "report": hosted.reports.get(record.name),
        }
        for record in records
    ]
    activity = federation.activity
    return {
        "name": name,
        "system": federation.agreement.system,
        "keywords": dict(federation.agreement.keywords),
        "dim": federation.agreement.world.dim,
        "rounds": federation.rounds,
        "places": federation.agreement.world.n_clients,
        "guarantee": str(guarantee),
        "totals": totals(federation),
        "reward": _total(hosted, "reward"),
        "regret": _total(hosted, "regret"),
        "observed": _total(hosted, "observed"),
        "alone": _total(hosted, "alone"),
        "activity": {"begin": activity.begin, "width": activity.width, "slices": list(activity.slices)},
        "clusters": clusters(federation),
        "unopened": "" if federation.machine.pool is None else federation.machine.pool.unopened,
        "clients": clients,
        "refusals": dict(federation.refusals),
        "refused": [{"at": at, "client": client, "kind": kind} for at, client, kind in list(federation.refused)],
    }


def privacy_spent(federation: Federation, record: MemberRecord) -> dict[str, float]:
    """The budget of a client, its releases, and the ε that they amount to if it stopped now, over all its lives.

    A client that has lost its file begins a new stream, and may release the same records again (`Client.learn`): lives
    compose, √lives for Gaussian noise (`privacy.account`). Where each reward is noised by itself, each has the whole ε
    from the beginning.
    """
    claim, privacy = federation.system.guarantee, federation.system.privacy
    lives = 1 + len(record.past)
    spent = lives * claim.epsilon if record.observations else 0.0
    if isinstance(privacy, PrivateStatistics):
        key = (id(privacy), record.member if len(privacy.mechanisms) > 1 else 0, record.releases, lives)
        if key not in _SPENT:
            mechanism = privacy.mechanism_of(record.member)
            far = distance(mechanism, releases=min(record.releases, mechanism.n_max)) if record.releases else 0.0
            _SPENT[key] = gaussian_epsilon(math.sqrt(lives) * far, claim.delta) if far else 0.0
        spent = _SPENT[key]
    budget = {"epsilon": claim.epsilon, "delta": claim.delta}
    return {**budget, "releases": record.releases, "lives": lives, "spent": spent}


_SPENT: dict[tuple[int, int, int, int], float] = {}


def totals(federation: Federation) -> dict[str, int]:
    """Sums over all clients."""
    records = list(federation.register.by_number)
    return {
        "clients": len(records),
        "observations": sum(record.observations for record in records),
        "uploads": sum(record.uploads for record in records),
        "downloads": sum(record.downloads for record in records),
        "bytes": sum(record.bytes_up + record.bytes_down for record in records),
        "quarantined": sum(bool(record.quarantined) for record in records),
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


def metrics(host: Host) -> str:
    """The numbers in the text format of Prometheus."""
    lines: list[str] = []
    sums = {name: totals(hosted.federation) for name, hosted in host.federations.items()}

    def family(name: str, kind: str, text: str, samples: Iterable[tuple[str, float]]) -> None:
        lines.append(f"# HELP fedbandit_{name} {text}")
        lines.append(f"# TYPE fedbandit_{name} {kind}")
        for labels, value in samples:
            lines.append(f"fedbandit_{name}{labels} {f'{value:g}' if value < 1e6 else int(value)}")

    def each(value: Callable[[str, HostedFederation], float]) -> list[tuple[str, float]]:
        return [(f'{{federation="{name}"}}', value(name, hosted)) for name, hosted in host.federations.items()]

    def total(key: str) -> list[tuple[str, float]]:
        return each(lambda name, _: sums[name][key])

    family("clients", "gauge", "Clients that are members.", total("clients"))
    family("connected_clients", "gauge", "Clients that are connected.", each(lambda _, f: len(f.connections)))
    family("quarantined_clients", "gauge", "Clients in quarantine.", total("quarantined"))
    family("observations_total", "counter", "Observations in applied uploads.", total("observations"))
    family("uploads_total", "counter", "Uploads applied.", total("uploads"))
    family("downloads_total", "counter", "Downloads sent to members.", total("downloads"))
    family("message_bytes_total", "counter", "Bytes of uploads and downloads.", total("bytes"))
    refusals = [
        (f'{{federation="{name}",kind="{kind}"}}', float(count))
        for name, hosted in host.federations.items()
        for kind, count in sorted(hosted.federation.refusals.items())
    ]
    family("refusals_total", "counter", "Messages refused, by kind.", refusals)
    failures = [("", float(host.unauthenticated))]
    family("unauthenticated_requests_total", "counter", "Requests without valid credentials.", failures)
    family("rounds_total", "counter", "Rounds that have passed.", each(lambda _, f: f.federation.rounds))
    family("queue_length", "gauge", "Frames that wait for the worker.", each(lambda _, f: f.queue.qsize()))
    return "\n".join(lines) + "\n"
