"""Where data sets are looked for, what to do when they are not there, and prepared ones. Nothing is ever downloaded."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbandit.errors import FedbanditError
from fedbandit.files import read_arrays, write_arrays


@dataclass(frozen=True)
class Origin:
    """What a data set is called, where it comes from, and by which files it is recognised."""

    title: str
    download: str
    folders: tuple[str, ...]  # usual names of its folder, the best first
    signs: tuple[tuple[str, ...], ...]  # any of these sets of files says: here it is
    keyword: str = "path=… (--path)"  # what names its folder


def cache_folder() -> Path:
    """$FEDBANDIT_CACHE, or the platform's usual folder for what may be deleted."""
    if own := os.environ.get("FEDBANDIT_CACHE"):
        return Path(own)
    if sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        root = Path.home() / "Library" / "Caches"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "fedbandit"


def find_folder(origin: Origin, path: str | os.PathLike[str] | None) -> Path:
    """The folder with the files: `path`, or in $FEDBANDIT_DATA, or in the cache folder's `data`.

    Each of these may be the folder itself, or one that holds it under a usual name.
    """
    if path is not None:
        return _search(origin, [Path(path)])
    places = [Path(text) for text in (os.environ.get("FEDBANDIT_DATA"),) if text]
    return _search(origin, [*places, cache_folder() / "data"])


def is_here(origin: Origin, folder: Path) -> bool:
    """Whether a folder has the files by which the data set is recognised."""
    return any(all((folder / name).is_file() for name in sign) for sign in origin.signs)


def _search(origin: Origin, places: Sequence[Path]) -> Path:
    for place in places:
        for folder in (place, *(place / name for name in origin.folders)):
            if is_here(origin, folder):
                return folder
    looked = " and ".join(repr(str(place)) for place in places)
    wanted = ", or ".join(" and ".join(sign) for sign in origin.signs)
    raise FedbanditError(
        f"{origin.title} is not in {looked}: download {origin.download}, unpack it there as {origin.folders[0]!r} "
        f"(the folder must have {wanted}), or name its folder with {origin.keyword} or FEDBANDIT_DATA."
    )


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
