"""`fedbandit list`: all systems, environments and experiments."""

from __future__ import annotations

import argparse
import json
from typing import Any

SUMMARY = "Show all systems, environments and experiments, with one line each."


def add_flags(command: argparse.ArgumentParser) -> None:
    """None beside --json."""


def run(options: argparse.Namespace) -> int:
    """Print their names, with the first line of their docstrings."""
    from fedbandit.presets.compose import keywords_of
    from fedbandit.studies.experiment import choose
    from fedbandit.studies.measured import capitalised
    from fedbandit.studies.specs import ENVIRONMENTS_BY_TEXT, SYSTEMS, hyphenated

    sections: dict[str, list[dict[str, Any]]] = {}
    for kind, makers in (("systems", SYSTEMS), ("environments", ENVIRONMENTS_BY_TEXT)):
        sections[kind] = []
        for name, maker in makers.items():
            summary = (maker.__doc__ or "").strip().partition("\n")[0]
            if kind == "systems" and maker.__name__ != name:
                summary = f"Another name of {hyphenated(maker.__name__)}."
            sections[kind].append({"name": hyphenated(name), "summary": summary, "keywords": list(keywords_of(maker))})
    sections["experiments"] = [
        {"name": one.name, "summary": f"{capitalised(one.title)}.", "scales": list(one.scales)}
        for one in choose([], everything=True)
    ]
    if options.json:
        print(json.dumps(sections))
        return 0
    for kind, entries in sections.items():
        width = max(len(entry["name"]) for entry in entries)
        print(f"{kind}:")
        for entry in entries:
            print(f"  {entry['name']:{width}}  {entry['summary']}")
    return 0
