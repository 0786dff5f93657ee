"""`fedbandit list`: all systems, environments and experiments; the parts of a kind; or one of them, with keywords."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping
from inspect import getdoc, unwrap
from textwrap import fill
from typing import Any

SUMMARY = "Show all systems, environments and experiments, or all policies, say, or one of them with its keywords."


def add_flags(command: argparse.ArgumentParser) -> None:
    """One of them."""
    command.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="a system, an environment or a part, such as async-linucb, linphe or my.py:MyPolicy; or policies, "
        "structures, protocols, privacies",
    )


def parts() -> dict[str, Mapping[str, Callable[..., Any]]]:
    """The parts of each kind by name."""
    from fedbandit.policies import POLICIES
    from fedbandit.privacy import PRIVACIES
    from fedbandit.protocols import PROTOCOLS
    from fedbandit.structures import STRUCTURES

    return {"policies": POLICIES, "structures": STRUCTURES, "protocols": PROTOCOLS, "privacies": PRIVACIES}


def first_sentence(maker: Callable[..., Any]) -> str:
    """What something is, in one sentence: the first line of its docstring, or more lines if it ends later."""
    paragraph = (getdoc(unwrap(maker)) or "").partition("\n\n")[0].splitlines()
    if not paragraph or paragraph[0].endswith("."):
        return paragraph[0] if paragraph else ""
    return re.split(r"(?<=\.) (?=[A-Z`])", " ".join(map(str.strip, paragraph)))[0]


def run(options: argparse.Namespace) -> int:
    """Print their names, with a sentence each."""
    from fedbandit.keywords import SETTLED
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
        return _explain(options.name, as_json=options.json)
    for kind, makers in tables.items():
        sections[kind] = []
        for name, maker in makers.items():
            summary = first_sentence(maker)
            if kind == "systems" and maker.__name__ != name:
                summary = f"Another name of {hyphenated(maker.__name__)}."
            keywords = [keyword for keyword in keywords_of(maker) if keyword not in SETTLED]
            sections[kind].append({"name": hyphenated(name), "summary": summary, "keywords": keywords})
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
    from fedbandit.errors import unknown
    from fedbandit.keywords import SETTLED, meaning, said_by
    from fedbandit.presets.compose import keywords_of
    from fedbandit.studies.specs import ENVIRONMENTS_BY_TEXT, SYSTEMS, WORLD_DEFAULTS, hyphenated, written
    from fedbandit.user_code import named_in_file

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
    if ".py:" in name:
        found = [("from", named_in_file("function or class", name))]
    if not found:
        raise unknown("system, environment or part", hyphenated(name), [*sorted(known), *parts()])
    told: list[dict[str, Any]] = []
    for kind, maker in found:
        keywords = []
        for keyword in keywords_of(maker).values():
            if keyword.name in SETTLED:
                continue
            usual = WORLD_DEFAULTS.get(keyword.name, "needed") if keyword.required else written(keyword.default)
            match kind:
                case "system" | "environment":
                    text = meaning(maker.__name__.lower(), keyword.name, kind, maker)
                case "from":  # a user's own: only the docstring can say it
                    text = said_by(maker, keyword.name)
                case _:
                    text = meaning(hyphenated(name), keyword.name, "part", maker)
            keywords.append({"name": keyword.name, "default": usual, "meaning": text})
        shown = name if kind == "from" else hyphenated(name)
        told.append({"kind": kind, "name": shown, "text": getdoc(unwrap(maker)) or "", "keywords": keywords})
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
