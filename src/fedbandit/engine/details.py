"""What a simulation can say beside its curves, if it is asked: who gained what, and what each client believes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fedbandit.errors import FedbanditError, needs, require, whole_number
from fedbandit.types import Array, Ints


@dataclass(frozen=True)
class ByClient:
    """Regret, reward and messages of each client (`simulate(…, per_client=True)`).

    `clients`, `regrets` and `rewards` have an entry for each interaction, in order: who acted, what was missed, what
    was earned. `uploads` and `downloads` (N,) count messages with statistics from and to each client.

    Where local servers share what clusters of their users have learnt (FCLUB), users send nothing, and these are None.
    `server_of` is then the server of each user, and `server_uploads` and `server_downloads` (L,) count the messages
    from and to each server. The compiled engine does not count them: they are None if it was asked for.
    """

    n_clients: int
    clients: Ints = field(repr=False)
    regrets: Array = field(repr=False)
    rewards: Array = field(repr=False)
    uploads: Ints | None = field(default=None, repr=False)
    downloads: Ints | None = field(default=None, repr=False)
    server_of: Ints | None = field(default=None, repr=False)
    server_uploads: Ints | None = field(default=None, repr=False)
    server_downloads: Ints | None = field(default=None, repr=False)

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

    def to_frame(self, by: Literal["client", "server"] = "client") -> Any:
        """A pandas DataFrame with one line a client, or a local server (needs `fedbandit[frames]`)."""
        columns: dict[str, Any] = {"client": np.arange(self.n_clients)}
        of_clients = {"interactions": self.interactions, "regret": self.regret, "reward": self.reward}
        if by == "server":
            if self.server_of is None:
                raise FedbanditError("Here clients speak for themselves; by='client' has what they sent.")
            if self.server_uploads is None:
                raise FedbanditError(
                    "The fast engine does not count messages of servers; use engine='plain' or 'auto'."
                )
            columns = {"server": np.arange(int(self.server_of.max()) + 1), "users": np.bincount(self.server_of)}
            columns |= {name: np.bincount(self.server_of, values) for name, values in of_clients.items()}
            columns["interactions"] = columns["interactions"].astype(np.int64)
            columns |= {"uploads": self.server_uploads, "downloads": self.server_downloads}
        elif self.server_of is not None:
            columns |= {"server": self.server_of, **of_clients}
        else:
            columns |= {**of_clients, "uploads": self.uploads, "downloads": self.downloads}
        return needs("pandas", "frames", "A data frame").DataFrame(columns)

    def arrays(self) -> dict[str, Any]:
        """For a file."""
        found = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "n_clients"}
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
