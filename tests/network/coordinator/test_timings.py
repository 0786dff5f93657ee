"""Spans say what was done and how much of it, and hold nothing of what was observed."""

from __future__ import annotations

import numpy as np
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fedbandit.network.client.client import Client
from fedbandit.network.coordinator import timings
from tests.network.servers import make_host, served


def test_an_upload_is_seen_without_its_data(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    with served(make_host()) as url, Client(url, federation="shops", name="shop") as client:
        for _ in range(20):
            client.observe(0.7, client.select(np.full((2, 3), 0.1)))
        assert client.flush()
    found = kept.get_finished_spans()
    assert {"fedbandit.receive", "fedbandit.store.append"} <= {span.name for span in found}
    outer = {span.context.span_id for span in found if span.name == "fedbandit.receive" and span.context is not None}
    assert outer & {span.parent.span_id for span in found if span.name == "fedbandit.store.append" and span.parent}
    for span in found:
        assert set(span.attributes or {}) <= {"fedbandit.federation", "fedbandit.entries", "fedbandit.bytes"}
        assert not span.events, "no exception with a sentence that may quote data"


def test_without_the_extra_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timings, "INSTALLED", False)
    with timings.span("receive", federation="shops") as found:
        assert found is None
