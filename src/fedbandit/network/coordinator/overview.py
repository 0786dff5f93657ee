"""What a coordinator shows: one JSON object for the live page, and the same numbers for Prometheus."""

from __future__ import annotations

from typing import Any

from fedbandit._version import __version__
from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.host import Hall, Room, now
from fedbandit.network.coordinator.register import Seat
from fedbandit.privacy import PrivateStatistics
from fedbandit.privacy.mechanism import epsilon_of


def overview(hall: Hall) -> dict[str, Any]:
    """Everything the live page needs."""
    return {
        "version": __version__,
        "now": now(),
        "begun": hall.begun,
        "strangers": hall.strangers,
        "federations": [_describe(name, room) for name, room in hall.rooms.items()],
    }


def _describe(name: str, room: Room) -> dict[str, Any]:
    federation = room.federation
    seats = list(federation.register.by_member)
    guarantee = federation.system.guarantee
    private = guarantee.basis != "none"
    clients = [
        {
            "name": seat.name,
            "member": seat.member,
            "connected": seat.member in room.outlets,
            "last_spoke": seat.last_spoke or None,
            "observations": seat.observations,
            "uploads": seat.uploads,
            "downloads": seat.downloads,
            "bytes": seat.bytes_up + seat.bytes_down,
            "refusals": seat.refusals,
            "quarantined": bool(seat.quarantined),
            "privacy": privacy_spent(federation, seat) if private else None,
            "report": room.reports.get(seat.name),
        }
        for seat in seats
    ]
    activity = federation.activity
    return {
        "name": name,
        "system": federation.terms.system,
        "keywords": dict(federation.terms.keywords),
        "dim": federation.terms.world.dim,
        "rounds": federation.rounds,
        "seats": federation.terms.world.n_clients,
        "guarantee": str(guarantee),
        "totals": totals(federation),
        "reward": _total(room, "reward"),
        "regret": _total(room, "regret"),
        "observed": _total(room, "observed"),
        "alone": _total(room, "alone"),
        "activity": {"begin": activity.begin, "width": activity.width, "slices": list(activity.slices)},
        "clusters": clusters(federation),
        "clients": clients,
        "refusals": dict(federation.refusals),
        "refused": [{"at": at, "client": client, "kind": kind} for at, client, kind in list(federation.refused)],
    }


def privacy_spent(federation: Federation, seat: Seat) -> dict[str, float]:
    """The budget of a client, its releases, and the ε that they amount to if it stopped now.

    Where each reward is noised by itself, each has the whole ε from the beginning.
    """
    claim, privacy = federation.system.guarantee, federation.system.privacy
    spent = claim.epsilon if seat.observations else 0.0
    if isinstance(privacy, PrivateStatistics):
        key = (id(privacy), seat.member if len(privacy.mechanisms) > 1 else 0, seat.releases)
        if key not in _SPENT:
            mechanism = privacy.mechanism_of(seat.member)
            done = min(seat.releases, mechanism.n_max)
            _SPENT[key] = epsilon_of(mechanism, releases=done) if done else 0.0
        spent = _SPENT[key]
    return {"epsilon": claim.epsilon, "delta": claim.delta, "releases": seat.releases, "spent": spent}


_SPENT: dict[tuple[int, int, int], float] = {}


def totals(federation: Federation) -> dict[str, int]:
    """Sums over all clients."""
    seats = list(federation.register.by_member)
    return {
        "clients": len(seats),
        "observations": sum(seat.observations for seat in seats),
        "uploads": sum(seat.uploads for seat in seats),
        "downloads": sum(seat.downloads for seat in seats),
        "bytes": sum(seat.bytes_up + seat.bytes_down for seat in seats),
        "quarantined": sum(bool(seat.quarantined) for seat in seats),
    }


def clusters(federation: Federation) -> list[list[str]] | None:
    """Who shares with whom, by name; None if everyone does."""
    groups = federation.machine.groups()
    if groups is None:
        return None
    names = {seat.member: seat.name for seat in list(federation.register.by_member)}
    named = ([names[i] for i in group if i in names] for group in groups)
    return [group for group in named if group]


def _total(room: Room, key: str) -> float | None:
    """The sum of what clients report, None if none does."""
    values = [report[key] for report in list(room.reports.values()) if key in report]
    return sum(values) if values else None


def metrics(hall: Hall) -> str:
    """The numbers in the text format of Prometheus."""
    lines: list[str] = []

    def family(name: str, kind: str, text: str, samples: list[tuple[str, float]]) -> None:
        lines.append(f"# HELP fedbandit_{name} {text}")
        lines.append(f"# TYPE fedbandit_{name} {kind}")
        lines.extend(f"fedbandit_{name}{labels} {value:g}" if value < 1e6 else f"fedbandit_{name}{labels} {int(value)}"
                     for labels, value in samples)  # fmt: skip

    rooms = {name: (room, totals(room.federation)) for name, room in hall.rooms.items()}

    def each(key: str) -> list[tuple[str, float]]:
        return [(f'{{federation="{name}"}}', sums[key]) for name, (_, sums) in rooms.items()]

    family("clients", "gauge", "Clients that have a seat.", each("clients"))
    connected = [(f'{{federation="{name}"}}', float(len(room.outlets))) for name, (room, _) in rooms.items()]
    family("connected_clients", "gauge", "Clients that are connected.", connected)
    family("quarantined_clients", "gauge", "Clients in quarantine.", each("quarantined"))
    family("observations_total", "counter", "Observations in applied uploads.", each("observations"))
    family("uploads_total", "counter", "Uploads applied.", each("uploads"))
    family("downloads_total", "counter", "Downloads sent to members.", each("downloads"))
    family("message_bytes_total", "counter", "Bytes of uploads and downloads.", each("bytes"))
    refusals = [
        (f'{{federation="{name}",kind="{kind}"}}', float(count))
        for name, (room, _) in rooms.items()
        for kind, count in sorted(room.federation.refusals.items())
    ]
    family("refusals_total", "counter", "Messages refused, by kind.", refusals)
    family("strangers_total", "counter", "Requests without valid credentials.", [("", float(hall.strangers))])
    queue = [(f'{{federation="{name}"}}', float(room.queue.qsize())) for name, (room, _) in rooms.items()]
    rounds = [(f'{{federation="{name}"}}', float(room.federation.rounds)) for name, (room, _) in rooms.items()]
    family("rounds_total", "counter", "Rounds that have passed.", rounds)
    family("queue_length", "gauge", "Frames that wait for the worker.", queue)
    return "\n".join(lines) + "\n"
