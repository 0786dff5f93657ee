"""`simulate`: run a system on an environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from fedbandit.engine import fast
from fedbandit.engine.checkpoint import fingerprint, read_checkpoint, write_checkpoint
from fedbandit.engine.details import ByClient, Estimates, rounds_to_watch
from fedbandit.engine.draws import Ahead
from fedbandit.engine.learner import Learner, Outcome, outcome
from fedbandit.engine.plain import PlainLearner
from fedbandit.engine.result import Communication, Result
from fedbandit.environments.block import Environment, actions_per_round, world_of
from fedbandit.errors import FedbanditError, checked_call, require, whole_number
from fedbandit.files import require_writable
from fedbandit.progress import reporting
from fedbandit.sharing import NEVER
from fedbandit.structures.clustering import FederatedClustering
from fedbandit.system import System, check_system
from fedbandit.types import Array, Ints
from fedbandit.world import World

Engine = Literal["auto", "plain", "fast"]

WORTH_COMPILING = 50_000
"""Interactions that take the plain engine longer than the fast one takes to compile."""


def which_engine(asked: str, system: System, world: World, absent: float = 0.0) -> Literal["plain", "fast"]:
    """The engine that runs a system which was told the world, whose clients are `absent` now and then."""
    require(asked in ("auto", "plain", "fast"), "engine", asked, "'auto', 'plain' or 'fast'")
    if asked == "plain":
        return "plain"
    if not fast.is_installed():
        if asked == "fast":
            raise FedbanditError("The fast engine needs Numba: pip install 'fedbandit[fast]'.")
        return "plain"
    unknown = "clients that are out of reach" if absent > 0 else fast.unknown_part(system)
    if unknown is not None and asked == "fast":
        raise FedbanditError(f"The fast engine does not know {unknown}; use engine='plain', or 'auto'.")
    cold = asked == "auto" and world.horizon <= WORTH_COMPILING and not fast.is_warm(system)
    return "plain" if unknown is not None or cold else "fast"


@checked_call
def simulate(
    system: System,
    env: Environment,
    horizon: int,
    seed: int = 0,
    *,
    engine: Engine = "auto",
    progress: Callable[[int], object] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 100_000,
    per_client: bool = False,
    watch: Sequence[int] = (),
) -> Result:
    """Run `system` on `env` for `horizon` rounds and return curves, arms, communication and guarantee.

    `engine` is "plain" (machines in NumPy, runs everything), "fast" (compiled, for the compositions that it knows) or
    "auto", which takes the fast one where that pays; both pull the same arms and send the same messages.

    The same arguments give the same result. `progress` is called with the number of rounds done since its last call;
    a notebook shows a bar without it.
    With `checkpoint`, the state is saved to that file about every `checkpoint_every` rounds; if the file is there
    already, the simulation goes on from it (and refuses a file of other arguments).

    With `per_client`, `result.by_client` has regret, reward and messages of each client. Where local servers speak for
    their users it has the messages of each server, which "auto" takes the plain engine for: the fast one counts none.
    `watch` is a list of rounds after which θ̂ of each client is noted (`result.estimates`); it needs the plain engine.

    >>> import fedbandit as fb
    >>> env = fb.environments.homogeneous(n_clients=5, dim=3, n_arms=4)
    >>> result = fb.simulate(fb.async_linucb(gamma_upload=2.0, gamma_download=2.0), env, horizon=200, seed=0)
    >>> result.regret.shape, result.communication.uploads > 0
    ((200,), True)
    """
    simulation = Simulation(system, env, horizon, seed, engine=engine, per_client=per_client, watch=watch)
    with reporting(progress, simulation.horizon, "rounds") as tell:
        if checkpoint is not None and simulation.keep(checkpoint, checkpoint_every):
            tell(simulation.round)
        while not simulation.finished:
            before = simulation.round
            simulation.advance()
            tell(simulation.round - before)
    return simulation.result()


class Simulation:
    """The state of one run. It advances block by block; all randomness is a function of the seed and the position.

    Simulations of one environment, horizon and seed may share `blocks`, and should then keep step.
    """

    def __init__(
        self,
        system: System,
        env: Environment,
        horizon: int,
        seed: int,
        *,
        engine: Engine = "auto",
        blocks: Ahead | None = None,
        per_client: bool = False,
        watch: Sequence[int] = (),
    ) -> None:
        check_system(system)
        seed, horizon = whole_number("seed", seed, 0), whole_number("horizon", horizon, 1, 10**12)
        world = world_of(env, horizon, seed)
        self.given, self.system = system, system.told(world)
        self.env, self.horizon, self.seed = env, horizon, seed
        self.per_round = actions_per_round(env)
        self.interactions = world.horizon
        self._blocks = blocks or Ahead(env.open(seed), self.interactions)
        self._checkpoint: tuple[str | os.PathLike[str], str, int] | None = None  # file, identity, rounds between
        self._saved = 0
        self.watch = rounds_to_watch(watch, horizon)
        if self.watch and world.actions:
            raise FedbanditError("Estimates are watched of models with one θ; here each action has its own.")
        if self.watch and engine == "fast":
            raise FedbanditError("The fast engine cannot watch estimates; use engine='plain', or 'auto'.")
        self.asked, self._world, self._per_client = engine, world, per_client
        structure = self.system.structure
        self._server_of = structure.servers(world) if isinstance(structure, FederatedClustering) else None
        counted = per_client and self._server_of is not None and engine == "auto"
        self.use_engine("plain" if self.watch or counted else engine)
        self.done = 0  # interactions
        self.totals = outcome(horizon, self.interactions)  # regret and reward are curves in the end
        self._acted: list[tuple[Ints, Array, Array]] | None = [] if per_client else None  # who, regret, reward
        self._seen: list[Array] = []  # θ̂ of all clients

    def use_engine(self, asked: Engine) -> None:
        """Begin with this engine."""
        self.engine = which_engine(asked, self.system, self._world, self.env.absent)
        given = self.system, self.env, self._world, self.seed
        if self.engine == "plain":
            self.learner: Learner = PlainLearner(*given)
            return
        from fedbandit.engine import fast  # here: it needs a compiler

        self._blocks.kernels = fast.drawing_kernels()  # half of the time otherwise
        self.learner = fast.make_learner(*given, by_client=self._per_client)

    @property
    def round(self) -> int:
        """Rounds that are finished."""
        return self.done // self.per_round

    @property
    def finished(self) -> bool:
        """Whether the horizon is reached."""
        return self.done == self.interactions

    def keep(self, checkpoint: str | os.PathLike[str], every: int) -> bool:
        """Save the state to a file about every so many rounds; if it is there already go on from it, and say so."""
        if self._acted is not None or self.watch:
            raise FedbanditError("A simulation with per_client or watch cannot go on from a checkpoint; leave one out.")
        every = whole_number("checkpoint_every", every)
        identity = fingerprint(self.given, self.env, self.horizon, self.seed)
        self._checkpoint = checkpoint, identity, every
        resumed = os.path.exists(checkpoint)
        if resumed:
            read_checkpoint(checkpoint, self, identity)
            self._saved = self.round
        else:
            require_writable(Path(checkpoint))
        return resumed

    def advance(self) -> None:
        """Run to the end of the next block, stopping at the ends of those rounds after which the learner has work."""
        if self.done == self.interactions:
            return
        block = self._blocks.block(self.done)
        stop = self.done + len(block.clients)
        if self.per_round == 1:  # the loop writes straight into the totals
            out = Outcome._make(array[self.done : stop] for array in self.totals)
        else:
            out = outcome(stop - self.done, 0)._replace(arms=self.totals.arms[self.done : stop])
        s = 0
        while s < stop - self.done:
            watch = self.watch[len(self._seen)] if len(self._seen) < len(self.watch) else NEVER
            wake = min(self.learner.next_wake((self.done + s) // self.per_round), watch)
            before, s = s, self.learner.run(s, min(stop, wake * self.per_round) - self.done, self.done, block, out)
            rounds, within = divmod(self.done + s, self.per_round)
            # Asked again: what was said in this round may have to be answered at its end.
            if s > before and within == 0 and self.learner.next_wake(rounds - 1) == rounds:
                self.learner.end_round(rounds, out, s - 1)
            if s > before and within == 0 and rounds == watch:
                self._seen.append(self._estimates())
        if self._acted is not None:
            self._acted.append((block.clients, out.regret.copy(), out.reward.copy()))
        if self.per_round > 1:
            of_round = np.arange(self.done, stop) // self.per_round
            for total, part in zip(self.totals[1:], out[1:], strict=True):
                np.add.at(total, of_round, part)
        self.done = stop
        if self.finished:
            for curve in (self.totals.regret, self.totals.reward):
                np.cumsum(curve, out=curve)
        if self._checkpoint is not None:
            path, identity, every = self._checkpoint
            if self.round - self._saved >= every:
                write_checkpoint(path, self, identity)
                self._saved = self.round

    def _estimates(self) -> Array:
        """θ̂ of each client: the means of unit vectors, whatever its model's structure is."""
        assert isinstance(self.learner, PlainLearner)
        models = [self.learner.machines.model_of(i) for i in range(self.env.n_clients)]
        unit, unknown = np.eye(self.env.dim), np.full(self.env.dim, np.nan)
        return np.stack([unknown if model is None else model.means(unit) for model in models])

    def _by_client(self) -> ByClient | None:
        if self._acted is None:
            return None
        clients, regrets, rewards = (np.concatenate(parts) for parts in zip(*self._acted, strict=True))
        counts, N, servers = self.learner.by_client or (), self.env.n_clients, self._server_of
        messages = [np.array([count[i] for i in range(N)], dtype=np.int64) for count in counts]
        if servers is None:
            return ByClient(N, clients, regrets, rewards, *messages)
        # members are local clusters, each with the number of its smallest user
        of_servers = [np.bincount(servers, count).astype(np.int64) for count in messages]
        return ByClient(N, clients, regrets, rewards, None, None, servers, *of_servers)

    def result(self) -> Result:
        """The outcome of the finished simulation."""
        if not self.finished:
            raise FedbanditError(f"The simulation is at round {self.round} of {self.horizon}; it has no result yet.")
        totals = self.totals
        return Result(
            system=self.system.name,
            environment=self.env.name,
            horizon=self.horizon,
            seed=self.seed,
            regret=totals.regret,
            reward=totals.reward,
            arms=totals.arms if self.per_round == 1 else totals.arms.reshape(self.horizon, self.per_round),
            communication=Communication(
                totals.uploads,
                totals.downloads,
                self.learner.dim,
                self.learner.control_messages,
                self.learner.blocks if isinstance(self.learner, PlainLearner) else None,
            ),
            guarantee=self.system.guarantee,
            parameters=self.system.parameters(),
            partitions=self.learner.clusters,
            services=self.learner.services,
            privacy=self.learner.ledger(),
            engine=self.engine,
            by_client=self._by_client(),
            estimates=Estimates(np.array(self.watch), np.stack(self._seen)) if self.watch else None,
        )
