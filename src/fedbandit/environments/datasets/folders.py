"""Where data sets are looked for, and what to do when they are not there. Nothing is ever downloaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedbandit.errors import FedbanditError


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
