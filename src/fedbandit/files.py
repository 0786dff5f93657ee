"""Arrays on disk: .npz with a JSON header, written whole or not at all, read without pickle."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from fedbandit.errors import FedbanditError


def write_arrays(path: str | os.PathLike[str], header: dict[str, Any], arrays: dict[str, Any]) -> Path:
    """Write named arrays and a JSON header to an .npz file, whole or not at all."""
    target = Path(path)
    partial = target.with_name(target.name + ".partial")
    text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    try:
        with open(partial, "wb") as file:
            np.savez(file, header=text, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise FedbanditError(f"{os.fspath(path)!r} cannot be written: {error.strerror or error}.") from None
    return target


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
    except (AttributeError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile):
        raise FedbanditError(f"{os.fspath(path)!r} is not a file that fedbandit wrote.") from None
    return header, arrays
