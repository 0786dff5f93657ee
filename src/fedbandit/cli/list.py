"""`fedbandit list`: all systems, environments and experiments; or one of them, with its keywords."""

from __future__ import annotations

import argparse
import json
from textwrap import fill
from typing import Any

SUMMARY = "Show all systems, environments and experiments, with one line each, or one of them with its keywords."


def add_flags(command: argparse.ArgumentParser) -> None:
    """One of them."""
    command.add_argument("name", nargs="?", metavar="NAME", help="a system or an environment, such as async-linucb")


def run(options: argparse.Namespace) -> int:
    """Print their names, with the first line of their docstrings."""
    from fedbandit.presets.compose import keywords_of
    from fedbandit.studies.experiment import choose
    from fedbandit.studies.measured import capitalised
    from fedbandit.studies.specs import ENVIRONMENTS_BY_TEXT, SYSTEMS, hyphenated

    if options.name is not None:
        return _explain(options.name.replace("-", "_"), as_json=options.json)
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


def _explain(name: str, *, as_json: bool) -> int:
    """What a system or an environment is, and what each of its keywords means."""
    from inspect import getdoc, unwrap

    from fedbandit.errors import unknown
    from fedbandit.keywords import meaning
    from fedbandit.presets.compose import keywords_of
    from fedbandit.studies.specs import ENVIRONMENTS_BY_TEXT, SYSTEMS, WORLD_DEFAULTS, hyphenated, written

    found = [
        (kind, maker)
        for kind, makers in (("system", SYSTEMS), ("environment", ENVIRONMENTS_BY_TEXT))
        for known, maker in makers.items()
        if known == name
    ]
    if not found:
        raise unknown("system or environment", hyphenated(name), map(hyphenated, [*SYSTEMS, *ENVIRONMENTS_BY_TEXT]))
    told: list[dict[str, Any]] = []
    for kind, maker in found:
        keywords = []
        for keyword in keywords_of(maker).values():
            usual = WORLD_DEFAULTS.get(keyword.name, "needed") if keyword.required else written(keyword.default)
            text = meaning(maker.__name__.lower(), keyword.name, environment=kind == "environment")
            keywords.append({"name": keyword.name, "default": usual, "meaning": text})
        told.append({"kind": kind, "name": hyphenated(name), "text": getdoc(unwrap(maker)), "keywords": keywords})
    if as_json:
        print(json.dumps(told))
        return 0
    for entry in told:
        print(f"{entry['kind']} {entry['name']}\n\n{entry['text']}\n")
        for said in entry["keywords"]:
            flag = f"--{hyphenated(said['name'])}"
            usual = "" if said["default"] in ("", "none") else f" Default: {said['default']}."
            print(fill(f"{said['meaning']}{usual}", 100, initial_indent=f"  {flag:20} ",
                       subsequent_indent=" " * 23))  # fmt: skip
    return 0
