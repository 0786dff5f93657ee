"""Results on disk: tidy CSV or Parquet and JSON, each file written whole or not at all."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedbandit.errors import FedbanditError, needs
from fedbandit.studies.runner import Run

Row = dict[str, Any]


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to; it takes the name of `path` when all went well."""
    partial = path.with_name(path.name + ".partial")
    try:
        yield partial
        os.replace(partial, path)
    except OSError as error:
        raise FedbanditError(f"{str(path)!r} cannot be written: {error.strerror or error}.") from None
    finally:
        with suppress(OSError):
            partial.unlink()


def require_writable(path: Path) -> None:
    """Refuse a file that cannot be written, before hours are spent on what should go into it."""
    if not path.parent.is_dir():
        raise FedbanditError(f"{str(path)!r} cannot be written: there is no folder {str(path.parent)!r}.")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise FedbanditError(f"{str(path)!r} cannot be written.")


def make_folder(path: Path) -> None:
    """Make a folder for results, if it is not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FedbanditError(f"The folder {str(path)!r} cannot be made: {error.strerror or error}.") from None
    if not os.access(path, os.W_OK):
        raise FedbanditError(f"The folder {str(path)!r} cannot be written to.")


def require_format(form: str) -> None:
    """Refuse Parquet where the software for it is missing."""
    if form == "parquet":
        needs("pandas", "frames", "Parquet")
        needs("pyarrow", "frames", "Parquet")


def run_rows(runs: Sequence[Run]) -> list[Row]:
    """One line for each run; ledgers, which only private systems have, are left to summaries."""
    return [{"label": run.label} | {k: v for k, v in run.report.items() if k != "privacy"} for run in runs]


def curve_rows(runs: Sequence[Run]) -> list[Row]:
    """One line for each run and each kept round."""
    return [
        {
            "label": run.label,
            "system": run.report["system"],
            "seed": run.report["seed"],
            **{name: number.item() for name, number in zip(run.curve._fields, point, strict=True)},
        }
        for run in runs
        for point in zip(*run.curve, strict=True)
    ]


def write_table(path: Path, rows: Sequence[Row]) -> Path:
    """Write lines of equal keys as CSV or Parquet, whichever the name ends in."""
    require_format(path.suffix[1:])
    with writing(path) as partial:
        if path.suffix == ".parquet":
            import pandas as pd

            pd.DataFrame(list(rows)).to_parquet(partial, index=False)
        else:
            with open(partial, "w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, rows[0].keys())
                writer.writeheader()
                writer.writerows(rows)
    return path


def write_json(path: Path, value: object) -> Path:
    """Write an object as readable JSON."""
    with writing(path) as partial:
        partial.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return path
