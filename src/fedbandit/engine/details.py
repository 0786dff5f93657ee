"""What a simulation can say beside its curves, if it is asked: who gained what, and what each client believes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fedbandit.errors import FedbanditError, needs, require, whole_number
from fedbandit.types import Array, Ints


@dataclass(frozen=True)
class ByClient:
    """Regret, reward and messages of each client (`simulate(…, per_client=True)`).

    `clients`, `regrets` and `rewards` have an entry for each interaction, in order: who acted, what was missed, what
    was earned. `uploads` and `downloads` (N,) count messages with statistics from and to each client. Where users share
    a server, messages are those of its local clusters, by their number, and only the plain engine knows them.
    """

    n_clients: int
    clients: Ints = field(repr=False)
    regrets: Array = field(repr=False)
    rewards: Array = field(repr=False)
    uploads: Ints | None = field(default=None, repr=False)
    downloads: Ints | None = field(default=None, repr=False)

    @property
    def interactions(self) -> Ints:
        """How often each client acted, (N,)."""
        return np.bincount(self.clients, minlength=self.n_clients)

    @property
    def regret(self) -> Array:
        """The regret of each client in the end, (N,)."""
        return np.asarray(np.bincount(self.clients, self.regrets, self.n_clients), dtype=np.float64)

    @property
    def reward(self) -> Array:
        """The reward of each client in the end, (N,)."""
        return np.asarray(np.bincount(self.clients, self.rewards, self.n_clients), dtype=np.float64)

    def curve(self, client: int, of: Literal["regret", "reward"] = "regret") -> Array:
        """A client's cumulative regret or reward after each of its own interactions."""
        require(0 <= client < self.n_clients, "client", client, f"a number from 0 to {self.n_clients - 1}")
        require(of in ("regret", "reward"), "of", of, "'regret' or 'reward'")
        return np.cumsum((self.regrets if of == "regret" else self.rewards)[self.clients == client])

    def to_frame(self) -> Any:
        """A pandas DataFrame with one line a client (needs `fedbandit[frames]`)."""
        columns: dict[str, Any] = {"client": np.arange(self.n_clients), "interactions": self.interactions}
        columns |= {"regret": self.regret, "reward": self.reward}
        if self.uploads is not None and self.downloads is not None:
            columns |= {"uploads": self.uploads, "downloads": self.downloads}
        return needs("pandas", "frames", "A data frame").DataFrame(columns)

    def arrays(self) -> dict[str, Any]:
        """For a file."""
        found = {key: getattr(self, key) for key in ("clients", "regrets", "rewards", "uploads", "downloads")}
        return {f"by_client.{key}": value for key, value in found.items() if value is not None}


@dataclass(frozen=True)
class Estimates:
    """θ̂ of each client after some rounds (`simulate(…, watch=[…])`).

    `theta` is (R, N, d), NaN where a client has not acted yet.
    """

    rounds: Ints
    theta: Array = field(repr=False)

    def error(self, parameters: ArrayLike) -> Array:
        """‖θ̂ − θ‖₂ of each client after each of the rounds, (R, N), for true parameters (N, d), or (d,) for all.

        >>> Estimates(np.array([9]), np.array([[[1.0, 0.0], [1.0, 1.0]]])).error([1.0, 0.0]).tolist()
        [[0.0, 1.0]]
        """
        truth = np.asarray(parameters, dtype=np.float64)
        allowed = (self.theta.shape[1:], self.theta.shape[2:])
        require(truth.shape in allowed, "the shape of parameters", truth.shape, f"{allowed[0]} or {allowed[1]}")
        return np.asarray(np.linalg.norm(self.theta - truth, axis=2))

    def arrays(self) -> dict[str, Any]:
        """For a file."""
        return {"estimates.rounds": self.rounds, "estimates.theta": self.theta}


def read_by_client(n_clients: int | None, arrays: Mapping[str, Any]) -> ByClient | None:
    """From a file."""
    parts = {key.removeprefix("by_client."): value for key, value in arrays.items() if key.startswith("by_client.")}
    return ByClient(n_clients, **parts) if parts and n_clients is not None else None


def read_estimates(arrays: Mapping[str, Any]) -> Estimates | None:
    """From a file."""
    found = "estimates.rounds" in arrays
    return Estimates(arrays["estimates.rounds"], arrays["estimates.theta"]) if found else None


def rounds_to_watch(watch: Sequence[int], horizon: int) -> list[int]:
    """The rounds in order, each once."""
    try:
        return sorted({whole_number("watch", done, 1, horizon) for done in watch})
    except TypeError:
        raise FedbanditError(f"watch is {watch!r}, but must be a list of rounds from 1 to {horizon}.") from None
