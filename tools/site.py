"""The documentation site: `make docs`, or `python -m tools.site`.

Pages written by hand are in docs/. What the code knows better – the command line, systems and environments with their
keywords, metrics, refusals – is written from the code, and CHANGELOG, CONTRIBUTING and SECURITY are taken as they are.
All of it is laid out in build/docs, from which Zensical makes site/.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path
from unittest import mock

from fedbandit.cli.main import COMMANDS, build_parser, main
from fedbandit.network.refusal import STATUS, TRANSIENT
from fedbandit.studies.specs import ENVIRONMENTS_BY_TEXT, SYSTEMS, hyphenated

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "build" / "docs"
BESIDE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "clients/typescript/README.md": "reference/typescript.md",
}
"""What stands beside docs/, and where it is on the site."""
API = {
    "Simulate and compare": ("engine.simulate", "engine.result.Result", "engine.result.Communication",
                             "studies.compare.compare", "studies.compare.Comparison", "system.System", "world.World"),
    "Systems": ("presets.async_linucb", "presets.feducb", "presets.fclub", "presets.hetofedbandit",
                "presets.collaborative", "presets.async_linucb_am", "presets.composed"),
    "Policies": ("policies",),
    "Protocols": ("protocols",),
    "Structures": ("structures",),
    "Privacy": ("privacy", "privacy.account"),
    "Environments": ("environments",),
    "On a network": ("network.client.client.Client", "network.client.asynchronous.AsyncClient",
                     "network.client.local_server.LocalServer", "network.client.choices.Arm",
                     "network.peer.peer.Peer", "privacy.guarantee.Require"),
    "Evaluate logs": ("evaluation", "environments.logged", "environments.decision_log"),
    "Audit": ("audit",),
    "Theorems' bounds": ("bounds",),
    "Experiments": ("studies.experiment", "studies.trials"),
    "For parts of your own": ("model", "sums", "sharing", "schedule", "messages", "checks"),
    "Adapters": ("adapters",),
    "Errors": ("errors",),
}  # fmt: skip
INHERITED = "\n    options: {inherited_members: [agreement, connected, problem, flush, close]}"
"""What members on a network have from their common class, `Member`, and an application calls."""


def write(page: str, text: str) -> None:
    """One page of the source."""
    path = SOURCE / page
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def printed(*arguments: str) -> str:
    """What a command prints."""
    with redirect_stdout(io.StringIO()) as out:
        main(arguments)
    return out.getvalue().rstrip()


def commands() -> str:
    """Every command with its help."""
    text = "# Command line\n\nEvery command has `--help` and `--json`; what follows is the help itself.\n"
    for name in COMMANDS:
        parser = build_parser([name])
        actions = next(action for action in parser._actions if isinstance(action.choices, dict))
        assert isinstance(actions.choices, dict)
        text += f"\n## fedbandit {name}\n\n```text\n{actions.choices[name].format_help().rstrip()}\n```\n"
    return text


def catalogue(title: str, lead: str, names: Iterable[str]) -> str:
    """Systems or environments, each with its docstring and what `fedbandit list NAME` says of its keywords."""
    text = f"# {title}\n\n{lead}\n"
    for name in names:
        (said,) = [one for one in json.loads(printed("list", name, "--json")) if title.lower().startswith(one["kind"])]
        summary, _, more = said["text"].partition("\n\n")
        text += f"\n## {name}\n\n{summary}\n" + (f"\n```text\n{more}\n```\n" if more else "")
        if said["keywords"]:
            text += "\n| keyword | default | |\n|---|---|---|\n"
        for keyword in said["keywords"]:
            meaning = keyword["meaning"].replace("|", "\\|")
            usual = "" if keyword["default"] == "none" else keyword["default"]
            text += f"| `{keyword['name']}` | {usual} | {meaning} |\n"
    return text


def refusals() -> str:
    """Why a coordinator refuses, and what its client does then."""
    then = dict.fromkeys(TRANSIENT, "tries again") | {"terms": "asks for the invitation again"}
    lines = [f"| `{kind}` | {status} | {then.get(kind, 'needs a person')} |" for kind, status in STATUS.items()]
    return "| kind | HTTP status | the client |\n|---|---|---|\n" + "\n".join(lines)


def metrics() -> str:
    """Names, kinds and meanings, from a coordinator that has just started."""
    import fedbandit as fb
    from fedbandit.network.coordinator.config import FederationConfig, ServerConfig
    from fedbandit.network.coordinator.host import Host
    from fedbandit.network.coordinator.listener import Guard
    from fedbandit.network.coordinator.metrics import HostCollector
    from fedbandit.network.invitation import Agreement
    from fedbandit.network.stores import MemoryStore

    terms = Agreement("async-linucb", {}, fb.World(n_clients=2, dim=2, horizon=100))
    host = Host(ServerConfig({"shops": FederationConfig(terms)}), MemoryStore())
    host.guard, host.expiry = Guard(), lambda: 0.0  # as behind a socket, with a certificate and with keys
    with mock.patch.object(host.credentials, "ends", lambda at: {"client": (at, 0)}):
        families = [*HostCollector(host).collect()]
    lines = "\n".join(
        f"| `{family.name}{'_total' if family.type == 'counter' else ''}` | {family.type} | {family.documentation} |"
        for family in families
    )
    return f"| metric | kind | meaning |\n|---|---|---|\n{lines}\n"


def api() -> None:
    """Pages for mkdocstrings, one for each subject."""
    index = "# Python\n\n`import fedbandit as fb`; names are loaded when they are first used.\n\n"
    for title, names in API.items():
        page = re.sub(r"\W+", "-", title.lower())
        more = INHERITED if title == "On a network" else ""
        objects = "\n\n".join(f"::: fedbandit.{name}{more}" for name in names)
        write(f"reference/api/{page}.md", f"# {title}\n\n{objects}\n")
        index += f"- [{title}]({page}.md)\n"
    write("reference/api/index.md", index)


def lay_out() -> None:
    """Everything in build/docs."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(ROOT / "docs", SOURCE, ignore=shutil.ignore_patterns("__pycache__"))
    for name, page in BESIDE.items():
        write(page, re.sub(r"\]\(docs/", "](", (ROOT / name).read_text(encoding="utf-8")))
    made = {"<!-- refusals -->": refusals(), "<!-- metrics -->": metrics()}
    for path in SOURCE.rglob("*.md"):
        text = path.read_text(encoding="utf-8")
        top = "../" * (len(path.relative_to(SOURCE).parts) - 1)
        for name, page in (BESIDE | {"docs/protocol.md": "protocol.md", "README.md": "index.md"}).items():
            text = re.sub(rf"\]\((?:\.\./)+{re.escape(name)}", f"]({top}{page}", text)
        for mark, table in made.items():
            text = text.replace(mark, table)
        path.write_text(text, encoding="utf-8")
    write("reference/commands.md", commands())
    python = "What `fedbandit list NAME` says of each; in Python, with `_` for `-`, "
    lead = f"{python}`fb.async_linucb(gamma_upload=2.0)`."
    write("reference/systems.md", catalogue("Systems", lead, map(hyphenated, SYSTEMS)))
    lead = f"{python}`fb.environments.homogeneous(n_clients=100, dim=25, n_arms=25)`."
    write("reference/environments.md", catalogue("Environments", lead, map(hyphenated, ENVIRONMENTS_BY_TEXT)))
    api()


if __name__ == "__main__":
    lay_out()
    sys.exit(subprocess.call([sys.executable, "-m", "zensical", "build", "--strict", "--clean"], cwd=ROOT))
