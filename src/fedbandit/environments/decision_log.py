"""A client's log of its own decisions, as JSON lines on its own device: for `fedbandit replay`, never sent.

One line for a decision when it is made, one for its reward when it comes:

    {"id": "7f…", "at": 1700000000.0, "client": "shop-3", "policy": "igw", "known": true,
     "arms": [[…], […]], "chosen": 1, "propensity": 0.83}
    {"id": "7f…", "reward": 1.0}

Where each of A actions has a θ of its own, "actions" is A, and the first entry of an arm is the number of its action.
`propensity` is the probability with which the chosen arm was chosen; `known` says whether it has a formula or was
estimated. Files are numbered, `decisions-000001.jsonl`, …; a new one is begun by every writer and when one is full.
"""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np

from fedbandit.environments.logged import LoggedDecisions
from fedbandit.errors import FedbanditError, checked_call, require, whole_number
from fedbandit.files import make_folder
from fedbandit.types import Array

PATTERN = "decisions-*.jsonl"


class DecisionLog:
    """Writes decisions and rewards to a folder; several threads may, and several processes, each to files of its own.

    A file has at most about `most_bytes`; of full files the newest `keep` stay, all of them by default. Lines reach the
    operating system at once, so that a crash of the program loses none. One that cannot be written, since the disk is
    full, is a FedbanditError, and left out.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> log = DecisionLog(folder, client="shop-3")
    >>> log.decided("a", np.eye(2), chosen=1, propensity=0.5, known=True, policy="uniform", at=0.0)
    >>> log.decided("b", np.eye(2), chosen=0, propensity=0.5, known=True, policy="uniform", at=1.0)
    >>> log.rewarded("a", 1.0)
    >>> log.close()
    >>> read_decision_log(folder).notes
    ('1 of 2 decisions have no reward and were left out.',)
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, client: str = "", most_bytes: int = 64 * 2**20, keep: int | None = None
    ) -> None:
        self.folder, self.client = Path(folder), client
        self.most_bytes = whole_number("most_bytes", most_bytes)
        self.keep = keep if keep is None else whole_number("keep", keep)
        make_folder(self.folder)
        self._lock = threading.Lock()
        self._written: list[Path] = []
        self._size = 0  # of the file, in whole lines
        self._full = False  # the next line goes to a new one
        self._file = self._begin()

    def decided(
        self,
        id: str,
        arms: Array,
        chosen: int,
        propensity: float,
        *,
        known: bool,
        policy: str,
        at: float,
        actions: int = 0,
    ) -> None:
        """A decision was made at this time (seconds since 1970); with `actions`, arms are rows (action, features)."""
        said: dict[str, Any] = {"id": id, "at": at, "client": self.client, "policy": policy, "known": known}
        said |= {"actions": actions} if actions else {}
        self._write({**said, "arms": arms.tolist(), "chosen": chosen, "propensity": propensity})

    def rewarded(self, id: str, reward: float) -> None:
        """The reward of a decision has come."""
        self._write({"id": id, "reward": reward})

    def close(self) -> None:
        """Write nothing more."""
        with self._lock:
            self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        """Write a line, or nothing of it: what cannot be written is a FedbanditError, and the line is left out."""
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            if self._full:
                self._file.close()
                self._file, self._full = self._begin(), False
            try:
                whole, why = self._file.write(data) == len(data), os.strerror(errno.ENOSPC)
            except OSError as error:
                whole, why = False, error.strerror or str(error)
            if not whole:
                self._cut_off()
                raise FedbanditError(f"{str(self._written[-1])!r} cannot be written: {why}.")
            self._size += len(data)
            self._full = self._size >= self.most_bytes

    def _cut_off(self) -> None:
        """Take back what was written of a line; where that fails, it stays the last one of its file."""
        try:
            self._file.truncate(self._size)
            self._file.seek(self._size)
        except OSError:
            self._full = True

    def _begin(self) -> FileIO:
        """A new file, with the next number that nobody has."""
        if self.keep is not None:
            for path in self._written[: -self.keep or None]:
                path.unlink(missing_ok=True)
            self._written = self._written[-self.keep :]
        numbers = [int(path.stem.rpartition("-")[2]) for path in self.folder.glob(PATTERN)]
        number = max(numbers, default=0)
        while True:
            number += 1
            path = self.folder / f"decisions-{number:06}.jsonl"
            try:
                file = open(path, "xb", buffering=0)  # noqa: SIM115 - closed by close()
            except FileExistsError:
                continue
            except OSError as error:
                raise FedbanditError(f"{str(path)!r} cannot be written: {error.strerror or error}.") from None
            self._written.append(path)
            self._size = 0
            return file


@checked_call
def read_decision_log(path: str | os.PathLike[str], *, default_reward: float | None = None) -> LoggedDecisions:
    """The decisions in a .jsonl file, or in all files of a folder, in the order in which they were made.

    A decision whose reward never came is left out, or has the `default_reward`; `notes` counts them.
    """
    decisions: dict[str, dict[str, Any]] = {}
    rewards: dict[str, float] = {}
    notes: list[str] = []
    for where, line in _lines(Path(path), notes):
        try:
            if "reward" in line:
                rewards[str(line["id"])] = float(line["reward"])
                continue
            arms = np.array(line["arms"], dtype=np.float64)
            ok = arms.ndim == 2 and 0 <= line["chosen"] < len(arms) and 0 < line["propensity"] <= 1 + 1e-9
        except (KeyError, TypeError, ValueError):
            ok = False
        if not ok or not np.isfinite(arms).all():
            raise FedbanditError(f"{where}: a decision needs id, arms (K, d), chosen below K and propensity in (0, 1].")
        decisions[str(line["id"])] = {**line, "arms": arms, "where": where}
    require(len(decisions) > 0, "the log", str(path), "one with at least one decision")
    kept = [id for id in decisions if default_reward is not None or id in rewards]
    if missing := sum(id not in rewards for id in decisions):
        what = "were left out" if default_reward is None else f"count as {default_reward:g}"
        notes.append(f"{missing:,} of {len(decisions):,} decisions have no reward and {what}.")
    if estimated := sum(not decisions[id].get("known", True) for id in kept):
        notes.append(f"The propensities of {estimated:,} decisions are estimates.")
    return _logged([decisions[id] for id in kept], [rewards.get(id, default_reward or 0.0) for id in kept], notes)


def _logged(decisions: list[dict[str, Any]], rewards: list[float], notes: list[str]) -> LoggedDecisions:
    if not decisions:
        raise FedbanditError("No decision of the log has a reward; say default_reward=… for those that got none.")
    d = decisions[0]["arms"].shape[1]
    for line in decisions:
        if line["arms"].shape[1] != d:
            raise FedbanditError(f"{line['where']}: contexts have length {line['arms'].shape[1]}, the first ones {d}.")
    counts = np.array([len(line["arms"]) for line in decisions])
    offered = np.arange(counts.max()) < counts[:, None]
    arms = np.zeros(offered.shape, dtype=np.int64)
    arms[offered] = np.arange(counts.sum())
    X = np.concatenate([line["arms"] for line in decisions])
    n_actions = max(int(line.get("actions", 0)) for line in decisions)
    x = X[:, 1:] if n_actions else X
    names, clients = np.unique([str(line.get("client", "")) for line in decisions], return_inverse=True)
    p = np.minimum([float(line["propensity"]) for line in decisions], 1.0)
    return LoggedDecisions(
        clients=clients.astype(np.int64),
        X=X,
        arms=arms,
        counts=counts,
        chosen=np.array([int(line["chosen"]) for line in decisions]),
        rewards=np.array(rewards),
        propensities=p,
        client_names=tuple(names.tolist()),
        bound=max(float(np.sqrt(np.einsum("ij,ij->i", x, x).max())), 1e-12),
        n_actions=n_actions,
        uniform=bool(np.allclose(p * counts, 1.0, rtol=0, atol=1e-6)),
        notes=tuple(notes),
    )


def _lines(path: Path, notes: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each line with its place; a last line that was cut when its writer died is left out, and noted."""
    files = sorted(path.glob(PATTERN)) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise FedbanditError(f"There is no decision log {str(path)!r}: a .jsonl file, or a folder with {PATTERN}.")
    for file in files:
        lines = file.read_bytes().split(b"\n")
        for i, line in enumerate(lines):
            where = f"{str(file)!r}, line {i + 1}"
            try:
                if line.strip():
                    said = json.loads(line)
                    if not isinstance(said, dict) or "id" not in said:
                        raise FedbanditError(f"{where}: a line of a decision log is an object with an id.")
                    yield where, said
            except (json.JSONDecodeError, UnicodeDecodeError):
                if i < len(lines) - 1:
                    raise FedbanditError(f"{where}: this is not JSON.") from None
                notes.append(f"{where} was cut, and is left out.")
