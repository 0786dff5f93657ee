"""`simulate`: run a system on an environment."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

from fedbandit.engine.checkpoint import fingerprint, read_checkpoint, write_checkpoint
from fedbandit.engine.exchange import Exchange
from fedbandit.engine.loop import DONE, EVENT, HUB_FULL, Outcome, Rules, Seats, no_late, outcome, run, settle_all
from fedbandit.engine.result import Communication, Result
from fedbandit.environments.block import Block, Environment, actions_per_round, world_of
from fedbandit.errors import FedbanditError, whole_number
from fedbandit.memory import enlarged, lazy_zeros
from fedbandit.policies import scratch
from fedbandit.protocols.hub import Hub, empty_hub, make_room
from fedbandit.statistics import empty_rows, grown, light_length, row_length, start_row
from fedbandit.streams import policy_key
from fedbandit.system import System

LARGEST_AT_ONCE = 2**33
"""Bytes of address space that may be set aside for all rows at once; beyond that they grow as clients first act."""


def simulate(
    system: System,
    env: Environment,
    horizon: int,
    seed: int = 0,
    *,
    progress: Callable[[int], object] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 100_000,
) -> Result:
    """Run `system` on `env` for `horizon` rounds and return curves, arms, communication and guarantee.

    The same arguments give the same result. `progress` is called with the number of rounds done since its last call.
    With `checkpoint`, the state is saved to that file about every `checkpoint_every` rounds; if the file is there
    already, the simulation goes on from it (and refuses a file of other arguments).

    >>> import fedbandit as fb
    >>> env = fb.environments.homogeneous(n_clients=5, dim=3, n_arms=4)
    >>> result = fb.simulate(fb.async_linucb(gamma_upload=2.0, gamma_download=2.0), env, horizon=200, seed=0)
    >>> result.regret.shape, result.communication.uploads > 0
    ((200,), True)
    """
    simulation = Simulation(system, env, horizon, seed)
    identity = None if checkpoint is None else fingerprint(system, env, horizon, seed)
    if checkpoint is not None and identity is not None and os.path.exists(checkpoint):
        read_checkpoint(checkpoint, simulation, identity)
        if progress is not None:
            progress(simulation.round)
    saved = simulation.round
    while not simulation.finished:
        before = simulation.round
        simulation.advance()
        if progress is not None:
            progress(simulation.round - before)
        if checkpoint is not None and identity is not None and simulation.round - saved >= checkpoint_every:
            write_checkpoint(checkpoint, simulation, identity)
            saved = simulation.round
    return simulation.result()


class Simulation:
    """The state of one run. It advances block by block; all randomness is a function of the seed and the position."""

    def __init__(self, system: System, env: Environment, horizon: int, seed: int, *, fuse: bool = True) -> None:
        if not isinstance(system, System):
            raise FedbanditError(f"The system is {system!r}, but must be a System; did you forget to call the preset?")
        seed, horizon = whole_number("seed", seed, 0), whole_number("horizon", horizon, 1)
        world = world_of(env, horizon)
        self.system = system.told(world)
        self.env, self.horizon, self.seed = env, horizon, seed
        self.per_round = actions_per_round(env)
        self.interactions = world.horizon
        self.stream = env.open(seed)
        protocol, layout = self.system.protocol, system.structure.layout(world)
        trigger = protocol.trigger()
        speaks = protocol.says != "nothing"
        blank = empty_rows(1, env.dim)[0]
        start_row(blank, env.dim, system.ridge)
        self.rules = Rules(
            kind=int(trigger.kind),
            thresholds=trigger.thresholds,
            ridge=float(system.ridge),
            speaks=speaks,
            fused=fuse and protocol.fused,
            counting=protocol.counting,
            warm=protocol.join != "cold",
            joining_counts=protocol.join == "warm",
            blank=blank,
        )
        self.plan = system.policy.plan(world, system.ridge, policy_key(seed))
        at_once = 8 * layout.n_rows * row_length(env.dim) <= LARGEST_AT_ONCE
        capacity = layout.n_rows if at_once else min(layout.n_rows, 4096)
        self.rows = lazy_zeros((capacity, row_length(env.dim)))
        self.lights = lazy_zeros((capacity, light_length(env.dim)))
        self.bench = blank.copy()
        self.seats = Seats(
            row_of=np.empty(0, dtype=np.int64) if layout.row_of is None else layout.row_of,
            seat_of=np.full(layout.n_rows, -1),
            row_at=np.zeros(capacity, dtype=np.int64),
            taken=np.zeros(2, dtype=np.int64),
        )
        n_members = layout.n_rows if speaks else 1
        self._hub = empty_hub(
            env.dim, n_members, layout.n_groups, layout.group_of, protocol.log_gamma_download(), system.ridge
        )
        coordinator = None if self.rules.fused else protocol.coordinator(self._hub, system.ridge, env.dim)
        self.exchange = None if coordinator is None else Exchange(protocol, coordinator, env.dim)
        self.late = no_late(min(env.longest_delay, self.interactions), env.dim)
        self.work = scratch(env.n_arms, env.dim)
        self.done = 0  # interactions
        self.totals = outcome(horizon)._replace(arms=np.zeros(self.interactions, dtype=np.int64))

    @property
    def hub(self) -> Hub:
        """The coordinator's memory."""
        return self._hub if self.exchange is None else self.exchange.coordinator.hub

    def use_hub(self, hub: Hub) -> None:
        """Replace the coordinator's memory."""
        if self.exchange is None:
            self._hub = hub
        else:
            self.exchange.coordinator.hub = hub

    @property
    def round(self) -> int:
        """Rounds that are finished."""
        return self.done // self.per_round

    @property
    def finished(self) -> bool:
        """Whether the horizon is reached."""
        return self.done == self.interactions

    def advance(self) -> None:
        """Run to the end of the next block."""
        chunk = self.stream.chunk
        stop = min((self.done // chunk + 1) * chunk, self.interactions)
        block = self.stream.block(self.done, stop)
        out = self._outcome_of(self.done, stop)
        s = 0
        while s < stop - self.done:
            s = self._run(s, stop - self.done, block, out)
        self._add_up(out, self.done, stop)
        self.done = stop

    def _run(self, s: int, stop: int, block: Block, out: Outcome) -> int:
        """Run the compiled loop until it needs something, give it that, and say where to go on."""
        pause = run(
            s,
            stop,
            self.done,
            block,
            self.rows,
            self.lights,
            self.bench,
            self.seats,
            self.hub,
            self.late,
            self.plan,
            self.rules,
            self.work,
            out,
        )
        if pause.status == EVENT:
            assert self.exchange is not None
            self.exchange.speak(pause.seat, self.rows, self.seats, out, pause.at)
        elif pause.status == HUB_FULL:
            self.use_hub(make_room(self.hub))
        elif pause.status != DONE:
            capacity = min(2 * len(self.seats.row_at), len(self.seats.seat_of))
            self.rows = enlarged(self.rows, capacity)
            self.lights = enlarged(self.lights, capacity)
            self.seats = self.seats._replace(row_at=grown(self.seats.row_at, capacity))
        return pause.resume

    def settle(self) -> None:
        """Give every row that has acted a full seat, so that `rows` shows them all. It changes no outcome."""
        settle_all(self.rows, self.lights, self.bench, self.seats, self.hub, self.rules, self.work)

    def _outcome_of(self, start: int, stop: int) -> Outcome:
        """Where the loop writes: straight into the totals if a round is one interaction."""
        if self.per_round == 1:
            return Outcome._make(array[start:stop] for array in self.totals)
        return outcome(stop - start)._replace(arms=self.totals.arms[start:stop])

    def _add_up(self, out: Outcome, start: int, stop: int) -> None:
        if self.per_round > 1:
            of_round = np.arange(start, stop) // self.per_round
            for total, part in zip(self.totals[1:], out[1:], strict=True):
                np.add.at(total, of_round, part)

    def result(self) -> Result:
        """The outcome of the finished simulation."""
        totals = self.totals
        control = 0 if self.exchange is None else self.exchange.control_messages
        return Result(
            system=self.system.name,
            environment=self.env.name,
            horizon=self.horizon,
            seed=self.seed,
            regret=np.cumsum(totals.regret),
            reward=np.cumsum(totals.reward),
            arms=totals.arms if self.per_round == 1 else totals.arms.reshape(self.horizon, self.per_round),
            communication=Communication(totals.uploads, totals.downloads, self.env.dim, control),
            guarantee=self.system.guarantee,
            parameters=self.system.parameters(),
        )
