"""What a simulation gives back."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from html import escape
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fedbandit._version import __version__
from fedbandit.encoded_sums import statistics_scalars
from fedbandit.engine.details import ByClient, Estimates, read_by_client, read_estimates
from fedbandit.engine.ledger import Ledger, read_ledger
from fedbandit.engine.partitions import Partition, Partitions
from fedbandit.engine.services import Service, Services
from fedbandit.errors import FedbanditError, needs, require
from fedbandit.files import read_arrays, write_arrays
from fedbandit.messages import Download, Request, Upload, encoded_size
from fedbandit.privacy import Guarantee
from fedbandit.types import Array, Ints


@dataclass(frozen=True, repr=False)
class Communication:
    """Messages that carried statistics, in each round; totals and cumulative curves follow from them."""

    per_round_uploads: Ints
    per_round_downloads: Ints
    dim: int
    control_messages: int = 0  # requests and calls to upload, which carry no statistics
    blocks: Ints | None = None  # with a θ for each action: how many blocks uploads, and downloads, had in all

    def __repr__(self) -> str:
        """The totals."""
        totals = ("uploads", "downloads", "control_messages", "scalars", "bytes")
        return f"Communication({', '.join(f'{name}={getattr(self, name)}' for name in totals)})"

    @property
    def uploads(self) -> int:
        """Transfers of statistics from clients to the coordinator."""
        return int(self.per_round_uploads.sum())

    @property
    def downloads(self) -> int:
        """Transfers of statistics from the coordinator to clients."""
        return int(self.per_round_downloads.sum())

    @property
    def messages(self) -> int:
        """Uploads and downloads together: the papers' communication cost."""
        return self.uploads + self.downloads

    @property
    def scalars(self) -> int:
        """Numbers transferred: b and the triangle of V in each message."""
        messages = self.messages if self.blocks is None else int(self.blocks.sum())
        return messages * statistics_scalars(self.dim)

    @property
    def bytes(self) -> int:
        """Encoded size of all messages, control messages included; joining and receipts are not counted."""
        up, down = self._sizes()
        control = self.control_messages * encoded_size(Request, self.dim)
        return round(self.uploads * up + self.downloads * down) + control

    def _sizes(self) -> tuple[float, float]:
        """Bytes of an upload, and of a download; on average, where their numbers of blocks differ."""
        if self.blocks is None:
            return encoded_size(Upload, self.dim), encoded_size(Download, self.dim)
        sizes = []
        for kind, count, blocks in zip((Upload, Download), (self.uploads, self.downloads), self.blocks, strict=True):
            empty, one = (encoded_size(kind, self.dim, m) for m in (0, 1))
            sizes.append(empty + (one - empty) * int(blocks) / max(count, 1))
        return sizes[0], sizes[1]

    @property
    def upload_curve(self) -> Ints:
        """Uploads up to and including each round."""
        return np.cumsum(self.per_round_uploads)

    @property
    def download_curve(self) -> Ints:
        """Downloads up to and including each round."""
        return np.cumsum(self.per_round_downloads)

    @property
    def message_curve(self) -> Ints:
        """Uploads and downloads up to and including each round."""
        return self.upload_curve + self.download_curve

    @property
    def scalar_curve(self) -> Ints:
        """Numbers transferred up to and including each round."""
        if self.blocks is None:
            return self.message_curve * statistics_scalars(self.dim)
        counts = zip((self.uploads, self.downloads), (self.upload_curve, self.download_curve), self.blocks, strict=True)
        blocks = sum(curve * (int(m) / max(count, 1)) for count, curve, m in counts)
        return np.rint(blocks * statistics_scalars(self.dim)).astype(np.int64)

    @property
    def byte_curve(self) -> Ints:
        """Encoded size of uploads and downloads up to and including each round, control messages aside."""
        up, down = self._sizes()
        return np.rint(self.upload_curve * up + self.download_curve * down).astype(np.int64)


@dataclass(frozen=True)
class Result:
    """One run of one system: curves with one point per round, arms, communication, guarantee.

    `arms` is (T,), or (T, N) if all clients act in every round. `engine` is the one that ran. `privacy` says what the
    guarantee has cost so far; it is None where there is none. `by_client` and `estimates` are there if `simulate` was
    asked for them (`per_client`, `watch`).
    """

    system: str
    environment: str
    horizon: int
    seed: int
    regret: Array = field(repr=False)
    reward: Array = field(repr=False)
    arms: Ints = field(repr=False)
    communication: Communication
    guarantee: Guarantee
    parameters: dict[str, object] = field(repr=False)
    engine: str = "plain"
    privacy: Ledger | None = None
    partitions: Partitions | None = field(default=None, repr=False)
    services: Services | None = field(default=None, repr=False)
    by_client: ByClient | None = field(default=None, repr=False)
    estimates: Estimates | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        """What it is, and what came of it."""
        c = self.communication
        return (
            f"Result({self.system} on {self.environment}, {self.horizon:,} rounds, seed {self.seed}: regret "
            f"{self.regret[-1]:,.4g}, reward {self.reward[-1]:,.4g}, {c.uploads:,} uploads, {c.downloads:,} downloads)"
        )

    def _repr_html_(self) -> str:
        cells = {key: f"{v:,.4g}" if isinstance(v, float) else str(v) for key, v in self.summary().items()}
        rows = (f"<tr><th>{escape(key)}</th><td>{escape(text)}</td></tr>" for key, text in cells.items())
        return f"<table>{''.join(rows)}</table>"

    @property
    def clusters(self) -> list[Partition]:
        """Who learned together, over time: partitions of the clients, the last one last; [] without clusters."""
        return [] if self.partitions is None else self.partitions.lists()

    @property
    def cluster_rounds(self) -> list[int]:
        """The round from whose end on each of `clusters` held; the first held from the start (0)."""
        return [] if self.partitions is None else self.partitions.rounds

    def edges(self, k: int = -1) -> list[tuple[int, int]]:
        """All pairs of clients that are together in the k-th of `clusters`.

        Where clusters are maximal cliques (HetoFedBandit, DyClu), these are the edges of the graph of tests.
        """
        found = self.clusters[k] if self.clusters else []
        return sorted({pair for cluster in found for pair in combinations(sorted(cluster), 2)})

    @property
    def served(self) -> list[Service]:
        """Whom a server with a queue has served: (round, cluster, waited), in the order of time; [] without a queue."""
        return [] if self.services is None else self.services.done

    def rand_index(self, partition: ArrayLike) -> list[float]:
        """The adjusted Rand index of each of `clusters` with the true label of every client (`env.partition`).

        [] where no clusters were looked for: `partition` is then not looked at either.
        """
        return [] if self.partitions is None else self.partitions.rand_index(partition)

    def summary(self) -> dict[str, Any]:
        """The totals, as one JSON-ready object."""
        c = self.communication
        return {
            "system": self.system,
            "environment": self.environment,
            "horizon": self.horizon,
            "seed": self.seed,
            "regret": float(self.regret[-1]),
            "reward": float(self.reward[-1]),
            "uploads": c.uploads,
            "downloads": c.downloads,
            "scalars": c.scalars,
            "bytes": c.bytes,
            "engine": self.engine,
            "guarantee": str(self.guarantee),
            **({} if self.privacy is None else {"privacy": self.privacy.summary()}),
        }

    def to_frame(self, by: Literal["round", "client", "server"] = "round") -> Any:
        """A pandas DataFrame with one line per round, or per client if `per_client` was set (`fedbandit[frames]`).

        Where local servers speak for their users, "server" has a line for each of them, with the messages.
        """
        require(by in ("round", "client", "server"), "by", by, "'round', 'client' or 'server'")
        if by != "round":
            if self.by_client is None:
                raise FedbanditError("This result knows no clients; ask for them with simulate(…, per_client=True).")
            return self.by_client.to_frame(by).assign(system=self.system, seed=self.seed)
        return needs("pandas", "frames", "A data frame").DataFrame(
            {
                "round": np.arange(1, self.horizon + 1),
                "regret": self.regret,
                "reward": self.reward,
                "uploads": self.communication.upload_curve,
                "downloads": self.communication.download_curve,
                "system": self.system,
                "seed": self.seed,
            }
        )

    def to_xarray(self) -> Any:
        """An xarray Dataset: curves over `round`, and over `client` if `per_client` was set (`fedbandit[frames]`)."""
        c = self.communication
        curves = {
            "regret": self.regret,
            "reward": self.reward,
            "uploads": c.upload_curve,
            "downloads": c.download_curve,
        }
        variables: dict[str, Any] = {name: ("round", curve) for name, curve in curves.items()}
        variables["arm"] = (("round", "client")[: self.arms.ndim], self.arms)
        coordinates: dict[str, Any] = {"round": np.arange(1, self.horizon + 1)}
        if self.by_client is not None:
            frame = self.by_client.to_frame().set_index("client")
            variables |= {f"client_{name}": ("client", frame[name].to_numpy()) for name in frame}
            coordinates["client"] = frame.index.to_numpy()
            if self.by_client.server_uploads is not None:
                frame = self.by_client.to_frame("server").set_index("server")
                variables |= {f"server_{name}": ("server", frame[name].to_numpy()) for name in frame}
                coordinates["server"] = frame.index.to_numpy()
        about = {"system": self.system, "environment": self.environment, "seed": self.seed, "engine": self.engine}
        return needs("xarray", "frames", "A labelled array").Dataset(
            variables, coordinates, {**about, "guarantee": str(self.guarantee)}
        )

    def plot(
        self,
        ax: Any = None,
        *,
        bounds: Mapping[str, Callable[[Ints], Array]] | None = None,
        message_bounds: Mapping[str, Callable[[Ints], Array]] | None = None,
    ) -> Any:
        """Cumulative regret over rounds, with the messages on a second axis (needs `fedbandit[plots]`).

        `bounds` are functions of rounds to draw beside it, by name, such as those of `fb.bounds`: each is scaled to
        meet the regret at the horizon, since theorems hold up to a constant. `message_bounds` are those on
        communication, on the axis of messages.
        """
        from fedbandit.engine.plot import plot_result

        return plot_result(self, ax, bounds, message_bounds)

    def plot_clusters(self, partition: ArrayLike | None = None, ax: Any = None) -> Any:
        """The number of clusters over rounds and, given the truth, their adjusted Rand index (`fedbandit[plots]`)."""
        from fedbandit.engine.plot import plot_clusters

        return plot_clusters(self, partition, ax)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write to `path` (.npz): arrays and a JSON header, no pickle. Nothing is left half-written."""
        header = {
            "format": 1,
            "version": __version__,
            "system": self.system,
            "environment": self.environment,
            "horizon": self.horizon,
            "seed": self.seed,
            "engine": self.engine,
            "parameters": self.parameters,
            "guarantee": asdict(self.guarantee),
            "dim": self.communication.dim,
            "control_messages": self.communication.control_messages,
            **({} if self.by_client is None else {"n_clients": self.by_client.n_clients}),
            **({} if self.privacy is None else {"clipped": self.privacy.clipped}),
        }
        arrays = {
            "regret": self.regret,
            "reward": self.reward,
            "arms": self.arms,
            "uploads": self.communication.per_round_uploads,
            "downloads": self.communication.per_round_downloads,
        }
        for part in (self.privacy, self.partitions, self.services, self.by_client, self.estimates):
            arrays |= {} if part is None else part.arrays()
        return write_arrays(path, header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Result:
        """Read what `save` wrote."""
        header, arrays = read_arrays(path)
        try:
            return cls(
                system=header["system"],
                environment=header["environment"],
                horizon=header["horizon"],
                seed=header["seed"],
                engine=header["engine"],
                regret=arrays["regret"],
                reward=arrays["reward"],
                arms=arrays["arms"],
                communication=Communication(
                    arrays["uploads"], arrays["downloads"], header["dim"], header["control_messages"]
                ),
                guarantee=Guarantee(**header["guarantee"]),
                parameters=header["parameters"],
                partitions=Partitions.from_arrays(arrays) if "clusters.rounds" in arrays else None,
                services=Services.from_arrays(arrays) if "served.rounds" in arrays else None,
                privacy=read_ledger(header, arrays),
                by_client=read_by_client(header.get("n_clients"), arrays),
                estimates=read_estimates(arrays),
            )
        except KeyError as missing:
            raise FedbanditError(f"{os.fspath(path)!r} is not a saved result: it has no {missing}.") from None
