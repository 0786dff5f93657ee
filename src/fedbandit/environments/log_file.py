"""Logged decisions from a CSV or Parquet file, or one of JSON lines, for the command line."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedbandit.environments.logged import LoggedDecisions, from_frame
from fedbandit.errors import FedbanditError, needs


def log_file(path: Path, **columns: Any) -> LoggedDecisions:
    """The decisions in a .csv, .parquet or .jsonl file; keywords are those of `environments.from_frame`."""
    if not path.is_file():
        raise FedbanditError(f"There is no file {str(path)!r}.")
    readers = {".csv": _csv, ".parquet": _parquet, ".jsonl": _json_lines}
    if path.suffix not in readers:
        raise FedbanditError(f"{str(path)!r} must end in .csv or .parquet, or .jsonl.")
    frame, place = readers[path.suffix](path)
    return from_frame(frame, place=place, **columns)


def _json_lines(path: Path) -> tuple[dict[str, list[Any]], Callable[[int], str]]:
    """A line is an object with the row's columns; one that has no value there is missing."""
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    with open(path, "rb") as file:
        for line, text in enumerate(file, 1):
            if not text.strip():
                continue
            try:
                row = json.loads(text)
            except ValueError:
                row = None
            if not isinstance(row, dict) or any(isinstance(value, dict | list) for value in row.values()):
                raise FedbanditError(
                    f"{str(path)!r}, line {line}: a line of a table is an object of texts and numbers; is it cut?"
                )
            rows.append(row)
            lines.append(line)
    if not rows:
        raise FedbanditError(f"{str(path)!r}: there is no data.")
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}, lambda row: f"{str(path)!r}, line {lines[row]}"


def _csv(path: Path) -> tuple[dict[str, list[str]], Callable[[int], str]]:
    lines: list[int] = []
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            names = next(reader, [])
            columns: list[list[str]] = [[] for _ in names]
            for row in reader:
                if len(row) != len(names):
                    raise FedbanditError(
                        f"{str(path)!r}, line {reader.line_num}: {len(row)} columns instead of {len(names)}; "
                        "is the file cut, or a comma not quoted?"
                    )
                lines.append(reader.line_num)
                for column, value in zip(columns, row, strict=True):
                    column.append(value)
    except UnicodeDecodeError as error:
        line = path.read_bytes().count(b"\n", 0, error.start) + 1
        raise FedbanditError(f"{str(path)!r}, near line {line}: the text is not UTF-8.") from None
    except csv.Error as error:
        raise FedbanditError(f"{str(path)!r}, line {reader.line_num}: {error}.") from None
    if not lines:
        raise FedbanditError(f"{str(path)!r}, line {1 if not names else 2}: there is no data.")
    if len(set(names)) < len(names):
        raise FedbanditError(f"{str(path)!r}, line 1: a column is named twice.")
    return dict(zip(names, columns, strict=True)), lambda row: f"{str(path)!r}, line {lines[row]}"


def _parquet(path: Path) -> tuple[Any, Callable[[int], str]]:
    pandas = needs("pandas", "frames", "Parquet")
    needs("pyarrow", "frames", "Parquet")
    try:
        frame = pandas.read_parquet(path)
    except (OSError, ValueError) as error:
        raise FedbanditError(f"{str(path)!r} cannot be read as Parquet: {' '.join(str(error).split())}.") from None
    if not len(frame):
        raise FedbanditError(f"{str(path)!r} holds no rows.")
    return frame, lambda row: f"{str(path)!r}, row {row + 1}"
