"""A user's own experiment in one file: YAML, or Python with an `EXPERIMENT`.

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
from fedbandit.studies.experiment import Experiment, Scale
from fedbandit.studies.figures import PANELS
from fedbandit.studies.specs import AnySpec, EnvironmentSpec, SystemSpec, written
from fedbandit.studies.trials import Label, Point, Value
from fedbandit.user_code import module_at

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
    grid = {str(key): _some(values, f"grid: {key}") for key, values in _mapping(table.get("grid", {}), "grid").items()}
    horizon = None if table.get("horizon") is None else whole_number("horizon", table["horizon"])
    points = _points(table, grid, horizon)
    facets = list(dict.fromkeys(point.facet for point in points))
    panels = [_made("panel", PANELS, entry) for entry in _list(table.get("panels") or _usual_panels(grid), "panels")]
    claims = [_made("claim", CLAIMS, entry) for entry in _list(table.get("claims", []), "claims")]
    return Experiment(
        title=str(table.get("title", where)),
        scales={SCALE: Scale(points, whole_number("seeds", table.get("seeds", 5)))},
        panels=[_in_facet(panel, facet, "title") for facet in facets for panel in panels],
        reference=str(table.get("reference", "")),
        reports=str(table.get("reports", "")),
        measures=tuple(map(str, _list(table.get("measures", ["regret", "messages"]), "measures"))),
        claims=[_in_facet(claim, facet, "text") for facet in facets for claim in claims],
        value_name=list(grid)[-1] if grid else "value",
    )


def _in_facet(thing: Any, facet: str, says: str) -> Any:
    """A panel or a claim for one facet, unless it names another; what it says names the facet."""
    if not facet or thing.facet:
        return thing
    said = getattr(thing, says).removesuffix(".")
    return replace(thing, **{"facet": facet, says: f"{said} ({facet})" if said else facet})


def _usual_panels(grid: Mapping[str, Any]) -> list[dict[str, str]]:
    return [{"kind": "sweep", "x": list(grid)[-1]} if grid else {"kind": "curves"}, {"kind": "tradeoff"}]


def _points(table: Mapping[Any, Any], grid: Mapping[str, Sequence[Any]], horizon: int | None) -> list[Point]:
    points: dict[Label, Point] = {}
    used: set[str] = set()
    systems = _some(table["systems"], "systems")
    for chosen in itertools.product(*grid.values()):
        setting = dict(zip(grid, chosen, strict=True))
        env, env_uses, _ = _spec(EnvironmentSpec, table["environment"], setting, "environment")
        for entry in systems:
            system, system_uses, label = _spec(SystemSpec, entry, setting, "systems")
            uses = [name for name in setting if name in env_uses | system_uses]
            used |= set(uses)
            point = Point(label, system, env, horizon, _value(setting, uses), _facet(setting))
            points.setdefault(point.label, point)
    unused = [name for name in grid if name not in used]
    if unused:
        raise FedbanditError(f"grid has {unused[0]!r}, but no system and no environment says ${unused[0]}.")
    if len({point.series for point in points.values()}) < len(systems):
        raise FedbanditError("Two of the systems have the same label; give each a label of its own (label: …).")
    return list(points.values())


def _value(setting: Mapping[str, Any], uses: Sequence[str]) -> Value:
    """Where on the line of a system: the value of the last name of the grid, if it uses that."""
    if not uses or uses[-1] != list(setting)[-1]:
        return ""
    last = setting[uses[-1]]
    return last if isinstance(last, int | float) and not isinstance(last, bool) else written(last)


def _facet(setting: Mapping[str, Any]) -> str:
    """In which picture: there is one for the values of the grid's other names."""
    return ", ".join(f"{name} = {written(setting[name])}" for name in list(setting)[:-1])


def _spec(kind: type[AnySpec], entry: Any, setting: Mapping[str, Any], where: str) -> tuple[AnySpec, set[str], str]:
    """A system or an environment, the names of the grid that it uses, and its label."""
    table = {"name": entry} if isinstance(entry, str) else dict(_mapping(entry, where))
    if "name" not in table:
        raise FedbanditError(f"An entry of {where} has no 'name': {entry!r}.")
    name, label = str(table.pop("name")), table.pop("label", None)
    table = {str(key).replace("-", "_"): value for key, value in table.items()}
    uses = {key: value[1:] for key, value in table.items() if isinstance(value, str) and value.startswith("$")}
    for key, used in uses.items():
        if used not in setting:
            missing = FedbanditError(f"{key} is '${used}', but there is no grid: {used}.")
            raise unknown("grid", used, setting) if setting else missing
    values = {key: written(setting[uses[key]] if key in uses else value) for key, value in table.items()}
    fixed = ",".join(f"{key}={value}" for key, value in values.items() if key not in uses)
    spec = kind.parse(name)
    spec = replace(spec, keywords=tuple({**dict(spec.keywords), **values}.items()))
    plain = replace(kind.parse(name), keywords=()).title
    inline = ",".join(filter(None, (",".join(f"{key}={value}" for key, value in kind.parse(name).keywords), fixed)))
    return spec, set(uses.values()), str(label) if label else f"{plain}{':' if inline else ''}{inline}"


def _made(kind: str, makers: Mapping[str, Callable[..., Any]], entry: Any) -> Any:
    """A panel or a claim from its mapping, whose `kind` names the function."""
    table = {"kind": entry} if isinstance(entry, str) else dict(_mapping(entry, f"{kind}s"))
    name = str(table.pop("kind", ""))
    if name not in makers:
        raise (
            unknown(f"kind of {kind}", name, makers) if name else FedbanditError(f"A {kind} has no 'kind': {entry!r}.")
        )
    takes = signature(makers[name]).parameters
    for key in table:
        if key not in takes:
            raise unknown(f"key of the {kind} {name!r}", str(key), takes)
    for key, parameter in takes.items():
        if parameter.default is Parameter.empty and key not in table:
            raise FedbanditError(f"The {kind} {name!r} has no {key!r}, which it needs.")
    try:
        return makers[name](**{key: tuple(v) if isinstance(v, list) else v for key, v in table.items()})
    except TypeError as error:
        raise FedbanditError(f"The {kind} {name!r} makes no sense: {error}.") from None


def _mapping(given: Any, where: str) -> Mapping[Any, Any]:
    if not isinstance(given, dict):
        raise FedbanditError(f"{where} is {given!r}, but must be keys with values, as in 'seeds: 5'.")
    return given


def _list(given: Any, where: str) -> list[Any]:
    if not isinstance(given, list):
        raise FedbanditError(f"{where} is {given!r}, but must be a list.")
    return given


def _some(given: Any, where: str) -> list[Any]:
    if not _list(given, where):
        raise FedbanditError(f"{where} is an empty list, but must have at least one entry.")
    return _list(given, where)
