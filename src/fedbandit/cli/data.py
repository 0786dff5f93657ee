"""`fedbandit data check` and `fedbandit data prepare`: what is in the files, against what others counted."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbandit.cli.arguments import Parser
from fedbandit.errors import FedbanditError, unknown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedbandit.environments import LikedItems
    from fedbandit.environments.datasets.prepare import Likes, Report

NAMES = ("lastfm", "delicious", "movielens")


SUMMARY = "Check or prepare a data set: Last.FM, Delicious or MovieLens."


def add_flags(data: Parser) -> None:
    """The actions `check` and `prepare`; the latter takes keywords."""
    actions = data.add_subparsers(dest="action", metavar="check | prepare", required=True)
    check = actions.add_parser("check", help="read all data sets in a folder strictly, and compare their counts")
    check.add_argument("folder", metavar="PATH", type=Path, help="a data set's folder, or one that holds several")
    prepare = actions.add_parser(
        "prepare",
        help="make contexts and interactions of a data set, and keep them",
        usage="fedbandit data prepare NAME [flags]",
        allow_abbrev=False,
    )
    prepare.add_argument("name", metavar="NAME", help=f"{', '.join(NAMES)}; or with keywords, lastfm:n_clusters=100")
    prepare.add_argument("--plot", type=Path, metavar="FILE.png", help="draw users by activity")
    for parser in (check, prepare):
        parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
        parser.set_defaults(parser=parser)
    prepare.take_keywords(systems=False, environments=NAMES)


def run(options: argparse.Namespace) -> int:
    """Do what the command says."""
    return check_data(options) if options.action == "check" else prepare_data(options)


def check_data(options: argparse.Namespace) -> int:
    """Read every data set that is found."""
    from fedbandit.environments.datasets.published import SETTINGS, count

    readers = _readers()
    found = [(name, folder) for name, folder in _folders(options.folder) if name in readers]
    if not found:
        raise FedbanditError(f"There is no data set that fedbandit knows in {str(options.folder)!r}.")
    answers = []
    for name, folder in found:
        likes, report = readers[name](folder)
        counted = {setting.min_observations: count(likes, setting.min_observations) for setting in SETTINGS}
        answers.append(_answer(name, str(folder), report.facts, report.notes, counted))
    if options.json:
        print(json.dumps({"data": answers}))
    else:
        print("\n\n".join(map(_as_text, answers)))
    return 0


def prepare_data(options: argparse.Namespace) -> int:
    """Prepare a data set as an environment."""
    from fedbandit.environments import LikedItems
    from fedbandit.studies.specs import EnvironmentSpec, hyphenated

    spec = EnvironmentSpec.parse(options.name)
    if spec.name not in NAMES:
        raise unknown("data set", hyphenated(spec.name), NAMES)
    start = time.perf_counter()
    spec = spec.over(options.keywords)
    env = spec()
    seconds = time.perf_counter() - start
    assert isinstance(env, LikedItems)
    chosen = dict(spec.keywords).get("min_observations", "0")
    counted = {int(float(chosen)): (len(env.user_ids), len(env.users))}
    answer = _answer(env.name, "", env.facts, env.notes, counted) | {
        "dim": env.dim,
        "arms": env.n_arms,
        "seconds": round(seconds, 3),
    }
    if options.plot is not None:
        from fedbandit.files import require_writable
        from fedbandit.studies.figures import save_figure

        require_writable(options.plot)
        save_figure(_draw_activity(env), options.plot)
    if options.json:
        print(json.dumps(answer))
    else:
        print(_as_text(answer))
        print(
            f"  ready in {seconds:.2f} s: N = {env.n_clients:,}, T = {env.longest:,}, d = {env.dim}, K = {env.n_arms}"
        )
        if options.plot is not None:
            print(f"  written: {options.plot}")
    sys.stdout.flush()
    return 0


def _readers() -> dict[str, Callable[[Path], tuple[Likes, Report]]]:
    from fedbandit.environments.datasets.delicious import read_delicious
    from fedbandit.environments.datasets.lastfm import read_lastfm
    from fedbandit.environments.datasets.movielens import read_movielens

    def lastfm(folder: Path) -> tuple[Likes, Report]:
        likes, _, report = read_lastfm(folder, "tagged")
        return likes, report

    def delicious(folder: Path) -> tuple[Likes, Report]:
        likes, _, report = read_delicious(folder)
        return likes, report

    def movielens(folder: Path) -> tuple[Likes, Report]:
        _, likes, report = read_movielens(folder, 0.0)
        return likes, report

    return {"lastfm": lastfm, "delicious": delicious, "movielens": movielens}


def _folders(place: Path) -> list[tuple[str, Path]]:
    from fedbandit.environments.datasets import delicious, lastfm
    from fedbandit.environments.datasets.folders import is_here
    from fedbandit.environments.datasets.ratings import movielens_origin

    origins = {"lastfm": lastfm.ORIGIN, "delicious": delicious.ORIGIN, "movielens": movielens_origin(None)}
    if not place.is_dir():
        raise FedbanditError(f"There is no folder {str(place)!r}.")
    folders = [place, *sorted(child for child in place.iterdir() if child.is_dir())]
    return [(name, folder) for folder in folders for name, origin in origins.items() if is_here(origin, folder)]


def _answer(
    name: str, folder: str, facts: dict[str, int], notes: Sequence[str], counted: dict[int, tuple[int, int]]
) -> dict[str, Any]:
    """What was found, with the published counts beside it; `counted` has users and interactions of each threshold."""
    from fedbandit.environments.datasets.published import COUNTS, SETTINGS, nearest_release

    release = nearest_release(facts["ratings (rows)"]) if name == "movielens" else None
    known = COUNTS[name if release is None else f"{name} {release}"]
    settings = []
    for setting in SETTINGS:
        if setting.data == name and setting.min_observations in counted:
            users, interactions = counted[setting.min_observations]
            settings.append(
                {
                    "paper": setting.paper,
                    "more than": setting.min_observations,
                    "users": users,
                    "interactions": interactions,
                    "published": {"users": setting.users, "interactions": setting.interactions},
                    "why": setting.why,
                }
            )
    return {
        "data": name,
        **({"folder": folder} if folder else {}),
        **({"release": release} if release else {}),
        "found": dict(facts),
        "published": known,
        "papers": settings,
        "notes": list(notes),
    }


def _as_text(answer: dict[str, Any]) -> str:
    release = f" {answer['release']}" if "release" in answer else ""
    lines = [f"{answer['data']}{release}" + (f" in {answer['folder']!r}" if "folder" in answer else "")]
    for fact, number in answer["found"].items():
        theirs = answer["published"].get(fact)
        same = "" if theirs is None else f"   published {theirs:>11,}" + ("" if theirs == number else "   differs")
        lines.append(f"  {fact:28} {number:>11,}{same}")
    for setting in answer["papers"]:
        theirs = setting["published"]
        lines.append(
            f"  {setting['paper']}, users with more than {setting['more than']:,}: "
            f"N = {setting['users']:,}, T = {setting['interactions']:,}; "
            f"published N = {theirs['users']:,}, T = {theirs['interactions']:,}"
        )
        if (setting["users"], setting["interactions"]) != (theirs["users"], theirs["interactions"]):
            lines.append(f"    {setting['why']}")
    lines += [f"  note: {note}" for note in answer["notes"]]
    return "\n".join(lines)


def _draw_activity(env: LikedItems) -> Figure:
    """How many users have how many interactions, beside the share of all interactions that the most active have."""
    import numpy as np

    from fedbandit.studies.figures import new_figure

    counts = np.bincount(env.users, minlength=len(env.user_ids))
    figure = new_figure(10.5, 4.2)
    histogram, share = figure.subplots(1, 2)
    edges = np.unique(np.round(np.geomspace(counts.min(), counts.max() + 1, 31)).astype(np.int64))
    histogram.hist(counts, bins=edges, color="#0072B2", edgecolor="white", linewidth=0.5)
    histogram.set_xscale("log")
    histogram.set(xlabel="interactions of a user", ylabel="users", title="Users by activity")
    ordered = np.sort(counts)[::-1]
    users = np.arange(1, counts.size + 1) / counts.size
    share.plot(100 * users, 100 * np.cumsum(ordered) / ordered.sum(), color="#D55E00", linewidth=1.8)
    share.plot([0, 100], [0, 100], color="black", linestyle="dotted", linewidth=1)
    share.set(
        xlabel="most active users (%)",
        ylabel="of all interactions (%)",
        title="Who makes the data (dotted: if all were equal)",
        xlim=(0, 100),
        ylim=(0, 101),
    )
    for ax in (histogram, share):
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"{env.name}: {counts.size:,} users, {counts.sum():,} interactions, {len(env.X):,} items with contexts"
    )
    return figure
