"""Logged decisions from a CSV or Parquet file, for the command line."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedbandit.environments.logged import LoggedDecisions, from_frame
from fedbandit.errors import FedbanditError, needs


def log_file(path: Path, **columns: Any) -> LoggedDecisions:
    """The decisions in a file that ends in .csv or .parquet; keywords are those of `environments.from_frame`."""
    if not path.is_file():
        raise FedbanditError(f"There is no file {str(path)!r}.")
    if path.suffix not in (".csv", ".parquet"):
        raise FedbanditError(f"{str(path)!r} must end in .csv or .parquet.")
    frame, place = (_csv if path.suffix == ".csv" else _parquet)(path)
    return from_frame(frame, place=place, **columns)


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
                        f"{str(path)!r}, line {reader.line_num}: {len(row)} columns instead of {len(names)}."
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
