"""A coordinator's numbers for Prometheus, through `prometheus_client`; names are listed in docs/network.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from fedbandit._version import __version__
from fedbandit.network.clock import now
from fedbandit.network.coordinator.host import Host, HostedFederation
from fedbandit.network.coordinator.overview import totals
from fedbandit.network.relay.federation import RelayFederation


def metrics(host: Host) -> bytes:
    """The numbers in the text format of Prometheus."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(HostCollector(host))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return generate_latest(registry)


class HostCollector(Collector):
    """Reads what there is when it is asked."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def collect(self) -> Iterable[Any]:
        """All families."""
        yield InfoMetricFamily("fedbandit_build", "The version that runs.", value={"version": __version__})
        yield from self._host()
        yield from self._federations()

    def _host(self) -> Iterator[Any]:
        host = self.host
        failures = CounterMetricFamily("fedbandit_unauthenticated_requests", "Requests without valid credentials.")
        failures.add_metric([], host.unauthenticated)
        yield failures
        store = HistogramMetricFamily("fedbandit_store_write_seconds", "How long writes to the store take.")
        store.add_metric([], host.store.writes.buckets(), host.store.writes.total)
        yield store
        failed = CounterMetricFamily("fedbandit_store_failures", "Writes to the store that failed.")
        failed.add_metric([], host.store.failures)
        yield failed
        expires = host.expiry()
        if expires is not None:
            yield GaugeMetricFamily("fedbandit_certificate_expires", "When the certificate expires.", value=expires)
        ends = host.credentials.ends(now())
        if ends:
            first = GaugeMetricFamily(
                "fedbandit_token_expires", "When the first holder of tokens is left without one.", labels=["role"]
            )
            gone = GaugeMetricFamily(
                "fedbandit_expired_tokens", "Holders whose last token has expired, unrevoked.", labels=["role"]
            )
            for role, (expires, without) in sorted(ends.items()):
                if expires < 9e99:
                    first.add_metric([role], expires)
                gone.add_metric([role], without)
            yield from (first, gone)
        door = host.fronts or host.guard
        if door is not None:
            yield GaugeMetricFamily("fedbandit_connections", "Open connections.", value=door.n_open)
            yield GaugeMetricFamily("fedbandit_connections_most", "As many as there may be.", value=door.most)
            refused = CounterMetricFamily("fedbandit_connections_refused", "Connections that were one too many.")
            refused.add_metric([], door.refused)
            yield refused

    def _federations(self) -> Iterator[Any]:
        hosted = self.host.federations
        sums = {name: totals(one.federation) for name, one in hosted.items()}

        def family(kind: Any, name: str, text: str, value: Callable[[str, HostedFederation], float]) -> Any:
            found = kind(f"fedbandit_{name}", text, labels=["federation"])
            for federation, one in hosted.items():
                found.add_metric([federation], value(federation, one))
            return found

        for kind, name, text, key in (
            (GaugeMetricFamily, "clients", "Clients that are members.", "clients"),
            (GaugeMetricFamily, "quarantined_clients", "Clients in quarantine.", "quarantined"),
            (GaugeMetricFamily, "suspected_clients", "Clients left out because they contradict others.", "suspected"),
            (CounterMetricFamily, "observations", "Observations in applied uploads.", "observations"),
            (CounterMetricFamily, "uploads", "Uploads applied.", "uploads"),
            (CounterMetricFamily, "downloads", "Downloads sent to members.", "downloads"),
            (CounterMetricFamily, "message_bytes", "Bytes of uploads and downloads.", "bytes"),
        ):
            yield family(kind, name, text, _summed(sums, key))
        yield family(
            GaugeMetricFamily, "connected_clients", "Clients that are connected.", lambda _, f: len(f.connections)
        )
        yield family(
            GaugeMetricFamily, "places", "How many clients there may be.", lambda _, f: f.federation.register.n_members
        )
        yield family(GaugeMetricFamily, "horizon", "Observations that there may be.",
                     lambda _, f: f.federation.agreement.world.horizon)  # fmt: skip
        yield family(
            GaugeMetricFamily, "queue_length", "Frames that wait for the worker.", lambda _, f: f.queue.qsize()
        )
        yield family(GaugeMetricFamily, "snapshot_bytes", "Size of the last snapshot.",
                     lambda _, f: f.federation.journal.snapshot_bytes)  # fmt: skip
        relays = {n: f.federation.upstream() for n, f in hosted.items() if isinstance(f.federation, RelayFederation)}
        for kind, name, text, key in (
            (CounterMetricFamily, "relay_forwards", "Uploads to the coordinator above.", "forwards"),
            (GaugeMetricFamily, "relay_pending", "Observations that have not gone up.", "pending"),
            (GaugeMetricFamily, "relay_others", "Observations that have come down.", "others"),
            (GaugeMetricFamily, "relay_connected", "Whether the coordinator above is reached.", "connected"),
        ):
            about = kind(f"fedbandit_{name}", text, labels=["federation"])
            for federation, upstream in relays.items():
                about.add_metric([federation], float(upstream.get(key, False)))
            if relays:
                yield about
        clocked = {name: one for name, one in hosted.items() if one.federation.machine.clocked}
        rounds = CounterMetricFamily("fedbandit_rounds", "Rounds that have passed.", labels=["federation"])
        for name, one in clocked.items():
            rounds.add_metric([name], one.federation.rounds)
        yield rounds
        refusals = CounterMetricFamily(
            "fedbandit_refusals", "Messages refused, by kind.", labels=["federation", "kind"]
        )
        frames = HistogramMetricFamily("fedbandit_frame_seconds", "From a frame to its answer.", labels=["federation"])
        work = HistogramMetricFamily("fedbandit_work_seconds", "What a worker does at a time.", labels=["federation"])
        for name, one in hosted.items():
            for why, count in sorted(one.federation.refusals.items()):
                refusals.add_metric([name, why], count)
            frames.add_metric([name], one.timings.frames.buckets(), one.timings.frames.total)
            work.add_metric([name], one.timings.work.buckets(), one.timings.work.total)
        yield from (refusals, frames, work)


def _summed(sums: dict[str, dict[str, int]], key: str) -> Callable[[str, HostedFederation], float]:
    return lambda federation, _: sums[federation][key]
