"""A clustering whose code only the coordinator of a federation has.

A clustering runs at the coordinator alone: clients upload, and adopt what they are sent. So it may stand in a file of
the coordinator's, `structure = "my.py:MyClusters(distance=0.4)"` in its configuration. Clients are told its name and
the digest of the file, which is part of the terms, and never load anything. What would change clients (another model,
exploration, noise for so many releases) has to be installed everywhere.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fedbandit.errors import FedbanditError
from fedbandit.parts import build_part
from fedbandit.sharing import FoundGroups, Members, Noise, Sharing
from fedbandit.structures.structure import Structure
from fedbandit.world import World

_HELD: dict[tuple[str, str], Structure] = {}
"""The clusterings that this process holds, by their names and digests."""
_LOADED: dict[Path, str] = {}


@dataclass(frozen=True)
class HeldByCoordinator(Structure):
    """Everybody is alone until the coordinator has found groups, as `part` of a file with this digest does."""

    part: str
    digest: str

    by_member: ClassVar[bool] = True

    def require_at_hand(self) -> None:
        """Refuse a coordinator that has another file than the federation was begun with, or none."""
        if (self.part, self.digest) not in _HELD:
            raise FedbanditError(
                f"The federation's clustering is {self.part} of a file with the digest {self.digest[:8]}, which "
                "is not at hand as it was; put it back, or use another name for a new federation."
            )

    def sharing(self, world: World, ridge: float) -> Sharing:
        """That of the part, where it is at hand."""
        held = _HELD.get((self.part, self.digest))
        return FoundElsewhere(self, world.n_clients) if held is None else held.sharing(world, ridge)


class FoundElsewhere(FoundGroups):
    """The groups as a client knows them: nobody has been found yet."""

    def __init__(self, structure: HeldByCoordinator, n_clients: int) -> None:
        super().__init__(n_clients)
        self.structure = structure

    def next_wake(self, done: int) -> int:  # noqa: ARG002 - at no time
        """Only the coordinator knows."""
        raise unknown_schedule(self.structure.part)

    def find(self, members: Members, done: int, noise: Noise | None) -> list[list[int]]:
        """Only the coordinator knows how."""
        raise NotImplementedError


def unknown_schedule(part: str) -> FedbanditError:
    """Why noise on statistics cannot be calibrated: for how many releases is not known."""
    return FedbanditError(
        f"{part} stands in a file of the coordinator's, so that clients do not know how often it calls them, and how "
        "much noise that takes; install it as part of fedbandit (CONTRIBUTING.md), and give its name."
    )


def hold(text: str, folder: Path) -> str:
    """Load the clustering that a text such as `my.py:MyClusters(distance=0.4)` names; how clients are told of it."""
    file, _, part = text.partition(".py:")
    path = (folder / f"{file}.py").resolve()
    structure: Structure = build_part("structure", f"{path}:{part}", {})
    if not isinstance(structure, Structure):
        raise FedbanditError(f"structure is {text!r}, which is not a Structure; see CONTRIBUTING.md.")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:32]
    if _LOADED.setdefault(path, digest) != digest:
        raise FedbanditError(f"{str(path)!r} has changed since it was loaded; start the coordinator again.")
    _require_clients_do_not_need(structure, part)
    _HELD[part, digest] = structure
    return f"held-by-coordinator(part={part!r}, digest={digest!r})"


def _require_clients_do_not_need(structure: Structure, part: str) -> None:
    """Refuse a structure that says something about clients, or does not look for groups."""
    facts = {name for name in vars(Structure) if not name.startswith("_")} - {"sharing", "by_member"}
    own = sorted(name for name in facts if getattr(type(structure), name, None) is not getattr(Structure, name))
    found = isinstance(structure.sharing(World(2, 1, 1), 1.0), FoundGroups) if structure.by_member else False
    if own or not found:
        why = f"says for itself what {own[0]} is" if own else "looks for no groups while running"
        raise FedbanditError(
            f"{part} {why}, so every client of a federation must have the same code: install it as part of fedbandit "
            "(CONTRIBUTING.md), and give its name."
        )
