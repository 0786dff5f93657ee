"""Files, each written whole or not at all: arrays with a JSON header (read without pickle), tables, JSON, text."""

from __future__ import annotations

import csv
import json
import os
import secrets
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from fedbandit.errors import FedbanditError, needs


class DamagedFile(FedbanditError):
    """A file that fedbandit wrote, but not as it is now."""


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to; it is renamed to `path` if nothing fails.

    Its name is nobody else's: on a shared folder several processes may write the same file, and the last one wins.
    """
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")
    try:
        yield partial
        os.replace(partial, path)
    except OSError as error:
        raise FedbanditError(f"{str(path)!r} cannot be written: {error.strerror or error}.") from None
    finally:
        with suppress(OSError):
            partial.unlink()


def require_writable(path: Path) -> None:
    """Refuse a file that cannot be written, before hours are spent on its content."""
    if not path.parent.is_dir():
        raise FedbanditError(f"{str(path)!r} cannot be written: there is no folder {str(path.parent)!r}.")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise FedbanditError(f"{str(path)!r} cannot be written.")


def require_new(path: Path) -> None:
    """Refuse a file that is there, or cannot be written, before anything is changed that it is to be a copy of."""
    if path.exists():
        raise FedbanditError(f"There is a file {str(path)!r} already.")
    require_writable(path)


def make_folder(path: Path) -> None:
    """Make a folder for results, if it is not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FedbanditError(f"The folder {str(path)!r} cannot be made: {error.strerror or error}.") from None
    if not os.access(path, os.W_OK):
        raise FedbanditError(f"The folder {str(path)!r} cannot be written to.")


def write_arrays(path: str | os.PathLike[str], header: dict[str, Any], arrays: dict[str, Any]) -> Path:
    """Write named arrays and a JSON header to an .npz file."""
    text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    with writing(Path(path)) as partial, open(partial, "wb") as file:
        np.savez(file, header=text, **arrays)
        file.flush()
        os.fsync(file.fileno())
    return Path(path)


def read_arrays(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read what `write_arrays` wrote."""
    try:
        # np.load forgets to close a damaged file that it opened itself
        with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}  # a single array, of np.save, has no files
        header = dict(json.loads(bytes(arrays.pop("header"))))
    except FileNotFoundError:
        raise FedbanditError(f"There is no file {os.fspath(path)!r}.") from None
    except OSError as error:
        raise FedbanditError(f"{os.fspath(path)!r} cannot be read: {error.strerror or error}.") from None
    except (AttributeError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile, zlib.error):
        if _begins_as_arrays(path):
            raise DamagedFile(f"{os.fspath(path)!r} is damaged: it was cut off or changed.") from None
        raise FedbanditError(f"{os.fspath(path)!r} is not a file that fedbandit wrote.") from None
    return header, arrays


def _begins_as_arrays(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as `write_arrays` begins, with the name of the header."""
    with open(path, "rb") as file:
        return b"header.npy" in file.read(64)


def require_format(form: str) -> None:
    """Refuse Parquet where pandas or pyarrow is missing."""
    if form == "parquet":
        needs("pandas", "frames", "Parquet")
        needs("pyarrow", "frames", "Parquet")


def write_table(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """Write rows of equal keys as CSV or Parquet, depending on the suffix."""
    require_format(path.suffix[1:])
    with writing(path) as partial:
        if path.suffix == ".parquet":
            pandas = needs("pandas", "frames", "Parquet")
            pandas.DataFrame(list(rows)).to_parquet(partial, index=False)
        else:
            with open(partial, "w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, rows[0].keys())
                writer.writeheader()
                writer.writerows(rows)
    return path


def write_json(path: Path, value: object) -> Path:
    """Write an object as readable JSON."""
    return write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> Path:
    """Write text in UTF-8."""
    with writing(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return path
