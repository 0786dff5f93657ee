"""Spans for OpenTelemetry, where `fedbandit[telemetry]` is installed: what a coordinator did, for how long, never data.

Where they go is OpenTelemetry's business: `opentelemetry-instrument fedbandit serve …`, or a tracer provider of the
process. Without one they cost next to nothing.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any

INSTALLED = find_spec("opentelemetry") is not None


def span(name: str, **attributes: str | int) -> AbstractContextManager[Any]:
    """What is done inside is a span `fedbandit.name` with these attributes: names of federations, counts."""
    if not INSTALLED:
        return nullcontext()
    from opentelemetry import trace

    told = {f"fedbandit.{key}": value for key, value in attributes.items()}
    return trace.get_tracer("fedbandit").start_as_current_span(
        f"fedbandit.{name}",
        attributes=told,
        record_exception=False,  # its sentence may quote data
        set_status_on_exception=False,
    )
