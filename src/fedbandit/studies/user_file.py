"""Anyone's own experiment in one file: YAML, or Python with an `EXPERIMENT`.

    title: Does skew matter?
    environment: {name: homogeneous, n_clients: 100, dim: 10, n_arms: 10, arrivals: $arrivals}
    horizon: 10000
    seeds: 5
    grid:
      arrivals: [uniform, skewed]
    systems:
      - linucb
      - {name: async-linucb, label: Async, gamma_upload: 2, gamma_download: 2}
    panels:
      - {kind: sweep, y: regret}
    claims:
      - {kind: below, lower: Async, upper: linucb, factor: 2}

`$name` stands for each value of `grid: name` in turn. Keywords are those of the command line.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from fedbandit.errors import FedbanditError, needs, unknown, whole_number
from fedbandit.studies.claims import CLAIMS
from fedbandit.studies.declaration import Experiment, Point, Scale
from fedbandit.studies.measured import Value
from fedbandit.studies.panels import PANELS
from fedbandit.studies.specs import module_at

KEYS = (
    "title",
    "environment",
    "systems",
    "horizon",
    "seeds",
    "grid",
    "panels",
    "measures",
    "claims",
    "reports",
    "reference",
)
NEEDED = ("environment", "systems")
SCALE = "run"


def read_experiment(path: Path) -> Experiment:
    """The experiment in a file."""
    name = f"mine/{path.stem.replace('_', '-')}"
    if path.suffix == ".py":
        experiment = getattr(module_at(path.resolve()), "EXPERIMENT", None)
        if not isinstance(experiment, Experiment):
            raise FedbanditError(f"{str(path)!r} has no EXPERIMENT = Experiment(…), which is what would be run.")
        return replace(experiment, name=name)
    if path.suffix not in (".yaml", ".yml"):
        raise FedbanditError(f"{str(path)!r} must end in .yaml, .yml or .py.")
    return replace(from_mapping(_parse(path), path.name), name=name)


def _parse(path: Path) -> Any:
    yaml = needs("yaml", "studies", "An experiment in YAML")
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FedbanditError(f"There is no file {str(path)!r}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise FedbanditError(f"{str(path)!r} cannot be read: {error}.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" in line {mark.line + 1}"
        raise FedbanditError(f"{str(path)!r} is not YAML{where}: {getattr(error, 'problem', error)}.") from None


def from_mapping(given: Any, where: str) -> Experiment:
    """The experiment that a mapping describes; whatever is wrong with it is said with the key."""
    table = _mapping(given, where)
    for key in table:
        if key not in KEYS:
            raise unknown(f"key of an experiment ({where})", str(key), KEYS)
    for key in NEEDED:
        if key not in table:
            raise FedbanditError(f"{where} has no {key!r}, which an experiment needs.")
    grid = {str(key): _list(values, f"grid: {key}") for key, values in _mapping(table.get("grid", {}), "grid").items()}
    horizon = None if table.get("horizon") is None else whole_number("horizon", table["horizon"])
    points = _points(table, grid, horizon)
    panels = [_made("panel", PANELS, entry) for entry in _list(table.get("panels") or _usual_panels(grid), "panels")]
    return Experiment(
        title=str(table.get("title", where)),
        scales={SCALE: Scale(points, whole_number("seeds", table.get("seeds", 5)))},
        panels=panels,
        reference=str(table.get("reference", "")),
        reports=str(table.get("reports", "")),
        measures=tuple(map(str, _list(table.get("measures", ["regret", "messages"]), "measures"))),
        claims=[_made("claim", CLAIMS, entry) for entry in _list(table.get("claims", []), "claims")],
        value_name=", ".join(grid) or "value",
    )


def _usual_panels(grid: Mapping[str, Any]) -> list[dict[str, str]]:
    return [{"kind": "sweep", "x": ", ".join(grid)} if grid else {"kind": "curves"}, {"kind": "tradeoff"}]


def _points(table: Mapping[Any, Any], grid: Mapping[str, Sequence[Any]], horizon: int | None) -> list[Point]:
    points: dict[tuple[str, Value], Point] = {}
    used: set[str] = set()
    systems = _list(table["systems"], "systems")
    for chosen in itertools.product(*grid.values()):
        setting = dict(zip(grid, chosen, strict=True))
        env, env_uses, _ = _spec(table["environment"], setting, "environment")
        for entry in systems:
            system, system_uses, label = _spec(entry, setting, "systems")
            uses = [name for name in setting if name in env_uses | system_uses]
            used |= set(uses)
            points.setdefault((label, _value(setting, uses)), Point(label, system, env, horizon, _value(setting, uses)))
    unused = [name for name in grid if name not in used]
    if unused:
        raise FedbanditError(f"grid has {unused[0]!r}, but no system and no environment says ${unused[0]}.")
    if len({point.series for point in points.values()}) < len(systems):
        raise FedbanditError("Two of the systems have the same label; give each a label of its own (label: …).")
    return list(points.values())


def _value(setting: Mapping[str, Any], uses: Sequence[str]) -> Value:
    """Where on the line of a system: a number or a word, or several with their names."""
    if len(uses) == 1:
        only = setting[uses[0]]
        return only if isinstance(only, int | float) and not isinstance(only, bool) else _text(only)
    return ", ".join(f"{name} = {_text(setting[name])}" for name in uses)


def _spec(entry: Any, setting: Mapping[str, Any], where: str) -> tuple[str, set[str], str]:
    """A system or an environment as text, which of the grid it uses, and its label."""
    table = {"name": entry} if isinstance(entry, str) else dict(_mapping(entry, where))
    if "name" not in table:
        raise FedbanditError(f"An entry of {where} has no 'name': {entry!r}.")
    name, label = str(table.pop("name")), table.pop("label", None)
    uses: set[str] = set()
    keywords = []
    for key, value in table.items():
        if isinstance(value, str) and value.startswith("$"):
            if value[1:] not in setting:
                raise (
                    unknown("grid", value[1:], setting)
                    if setting
                    else FedbanditError(f"{key} is {value!r}, but there is no grid: {value[1:]}.")
                )
            uses.add(value[1:])
            value = setting[value[1:]]
        keywords.append(f"{key}={_text(value)}")
    joint = "," if ":" in name.removeprefix(name.partition(".py:")[0] + ".py:") else ":"
    text = name + (joint + ",".join(keywords) if keywords else "")
    fixed = [f"{key}={_text(v)}" for key, v in table.items() if not (isinstance(v, str) and v.startswith("$"))]
    return text, uses, str(label) if label else f"{name}{':' if fixed else ''}{','.join(fixed)}"


def _made(kind: str, makers: Mapping[str, Callable[..., Any]], entry: Any) -> Any:
    """A panel or a claim from its mapping, whose `kind` names the function."""
    table = {"kind": entry} if isinstance(entry, str) else dict(_mapping(entry, f"{kind}s"))
    name = str(table.pop("kind", ""))
    if name not in makers:
        raise (
            unknown(f"kind of {kind}", name, makers) if name else FedbanditError(f"A {kind} has no 'kind': {entry!r}.")
        )
    takes = signature(makers[name]).parameters
    series = [str(one) for one in _list(table.pop("series", []), "series")] if _variadic(takes) else []
    for key in table:
        if key not in takes:
            raise unknown(f"key of the {kind} {name!r}", str(key), takes)
    for key, parameter in takes.items():
        if parameter.default is Parameter.empty and parameter.kind is not Parameter.VAR_POSITIONAL and key not in table:
            raise FedbanditError(f"The {kind} {name!r} has no {key!r}, which it needs.")
    try:
        return makers[name](*series, **{key: tuple(v) if isinstance(v, list) else v for key, v in table.items()})
    except TypeError as error:
        raise FedbanditError(f"The {kind} {name!r} makes no sense: {error}.") from None


def _variadic(takes: Mapping[str, Parameter]) -> bool:
    return any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in takes.values())


def _text(value: Any) -> str:
    """A value as the command line writes it."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(_text, value)) if isinstance(value, list) else str(value)


def _mapping(given: Any, where: str) -> Mapping[Any, Any]:
    if not isinstance(given, dict):
        raise FedbanditError(f"{where} is {given!r}, but must be keys with values, as in 'seeds: 5'.")
    return given


def _list(given: Any, where: str) -> list[Any]:
    if not isinstance(given, list):
        raise FedbanditError(f"{where} is {given!r}, but must be a list.")
    return given
