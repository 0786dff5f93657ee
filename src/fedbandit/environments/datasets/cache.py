"""Prepared data kept on disk under a name made of their contents: raw files, options and version of the preparation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedbandit.environments.datasets.folders import cache_folder
from fedbandit.errors import FedbanditError
from fedbandit.files import read_arrays, write_arrays

PREPARATION = 1
"""Raise this when prepared arrays change their meaning or their numbers."""

Prepared = tuple[dict[str, Any], dict[str, Any]]


def cached(
    name: str, files: Sequence[Path], options: dict[str, Any], prepare: Callable[[], Prepared]
) -> tuple[dict[str, Any], dict[str, Any], bool]:
    """The header and arrays that `prepare` gives, from the cache if they are there; and whether they were."""
    folder = cache_folder() / "prepared"
    digest = hashlib.sha256(json.dumps([PREPARATION, name, options], sort_keys=True).encode())
    for file in files:
        digest.update(f"{file.name} {_digest_of(file, folder)}".encode())
    target = folder / f"{name}-{digest.hexdigest()[:32]}.npz"
    if target.is_file():
        with suppress(FedbanditError):  # a damaged file is made anew
            header, arrays = read_arrays(target)
            return header, arrays, True
    header, arrays = prepare()
    with suppress(OSError, FedbanditError):  # a cache that cannot be written is only slow
        folder.mkdir(parents=True, exist_ok=True)
        write_arrays(target, header, arrays)
    return header, arrays, False


def _digest_of(file: Path, folder: Path) -> str:
    """SHA-256 of a file; that of a large one is remembered together with its size and time of change."""
    stat = file.stat()
    large = stat.st_size > 2**26
    memory = folder / f"digest-{hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:32]}.json"
    known = [stat.st_size, stat.st_mtime_ns]
    if large:
        with suppress(OSError, ValueError, KeyError, TypeError):
            remembered = json.loads(memory.read_text())
            if remembered["known"] == known:
                return str(remembered["digest"])
    with open(file, "rb") as data:
        digest = hashlib.file_digest(data, "sha256").hexdigest()
    if large:
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            memory.write_text(json.dumps({"known": known, "digest": digest}))
    return digest
