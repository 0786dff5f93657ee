"""`fedbandit list`: all systems, environments and experiments; the parts of a kind; or one of them, with keywords."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from textwrap import fill
from typing import Any

SUMMARY = "Show all systems, environments and experiments, or all policies, say, or one of them with its keywords."


def add_flags(command: argparse.ArgumentParser) -> None:
    """One of them."""
    command.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="a system, an environment or a part, such as async-linucb or linphe; or policies, structures, "
        "protocols, privacies",
    )


def parts() -> dict[str, Mapping[str, Callable[..., Any]]]:
    """The parts of each kind by name."""
    from fedbandit.policies import POLICIES
    from fedbandit.privacy import PRIVACIES
    from fedbandit.protocols import PROTOCOLS
    from fedbandit.structures import STRUCTURES

    return {"policies": POLICIES, "structures": STRUCTURES, "protocols": PROTOCOLS, "privacies": PRIVACIES}


def run(options: argparse.Namespace) -> int:
    """Print their names, with the first line of their docstrings."""
    from fedbandit.presets.compose import keywords_of
    from fedbandit.studies.experiment import choose
    from fedbandit.studies.measured import capitalised
    from fedbandit.studies.specs import ENVIRONMENTS_BY_TEXT, SYSTEMS, hyphenated

    sections: dict[str, list[dict[str, Any]]] = {}
    tables: Mapping[str, Mapping[str, Callable[..., Any]]] = {"systems": SYSTEMS, "environments": ENVIRONMENTS_BY_TEXT}
    asked = None if options.name is None else {**tables, **parts()}.get(options.name)
    if asked is not None:
        tables = {options.name: asked}
    elif options.name is not None:
        return _explain(options.name.replace("-", "_"), as_json=options.json)
    for kind, makers in tables.items():
        sections[kind] = []
        for name, maker in makers.items():
            summary = (maker.__doc__ or "").strip().partition("\n")[0]
            if kind == "systems" and maker.__name__ != name:
                summary = f"Another name of {hyphenated(maker.__name__)}."
            sections[kind].append({"name": hyphenated(name), "summary": summary, "keywords": list(keywords_of(maker))})
    if asked is None:
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
    if asked is None:
        print("parts: fedbandit list policies | structures | protocols | privacies; one with its keywords: list NAME")
    return 0


def _explain(name: str, *, as_json: bool) -> int:
    """What a system, an environment or a part is, and what each of its keywords means."""
    from inspect import getdoc, unwrap

    from fedbandit.errors import unknown
    from fedbandit.keywords import meaning
    from fedbandit.presets.compose import keywords_of
    from fedbandit.studies.specs import ENVIRONMENTS_BY_TEXT, SYSTEMS, WORLD_DEFAULTS, hyphenated, written

    singular = {"policies": "policy", "structures": "structure", "protocols": "protocol", "privacies": "privacy"}
    tables: dict[str, Mapping[str, Callable[..., Any]]] = {"system": SYSTEMS, "environment": ENVIRONMENTS_BY_TEXT}
    tables |= {singular[kind]: makers for kind, makers in parts().items()}
    known = {hyphenated(one) for makers in tables.values() for one in makers}
    found = [
        (kind, maker)
        for kind, makers in tables.items()
        for one, maker in makers.items()
        if hyphenated(one) == hyphenated(name)
    ]
    if not found:
        raise unknown("system, environment or part", hyphenated(name), [*sorted(known), *parts()])
    told: list[dict[str, Any]] = []
    for kind, maker in found:
        keywords = []
        for keyword in keywords_of(maker).values():
            usual = WORLD_DEFAULTS.get(keyword.name, "needed") if keyword.required else written(keyword.default)
            text = ""  # a part's docstring says it
            if kind in ("system", "environment"):
                text = meaning(maker.__name__.lower(), keyword.name, environment=kind == "environment")
            keywords.append({"name": keyword.name, "default": usual, "meaning": text})
        told.append({"kind": kind, "name": hyphenated(name), "text": getdoc(unwrap(maker)), "keywords": keywords})
    if as_json:
        print(json.dumps(told))
        return 0
    for entry in told:
        print(f"{entry['kind']} {entry['name']}\n\n{entry['text']}\n")
        for said in entry["keywords"]:
            flag = f"--{hyphenated(said['name'])}" if entry["kind"] in ("system", "environment") else said["name"]
            silent = said["default"] in ("", "none") and said["meaning"]
            usual = "" if silent else f" Default: {said['default']}."
            print(fill(f"{said['meaning']}{usual}", 100, initial_indent=f"  {flag:20} ",
                       subsequent_indent=" " * 23))  # fmt: skip
    return 0
