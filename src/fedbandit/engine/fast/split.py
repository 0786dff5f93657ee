"""Learning with a shared and a personal part: Async-LinUCB-AM, under any protocol that exchanges statistics."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedbandit.engine.fast.choose import scratch
from fedbandit.engine.fast.choose_split import split_scratch
from fedbandit.engine.fast.cohorts import Hub, empty_hub
from fedbandit.engine.fast.delayed import Late, no_late
from fedbandit.engine.fast.exchange import Exchange
from fedbandit.engine.fast.housekeeping import make_room, pack_hub, unpack_hub
from fedbandit.engine.fast.hub import upload_row
from fedbandit.engine.fast.memory import lazy_zeros
from fedbandit.engine.fast.plan import plan_of
from fedbandit.engine.fast.rules import EVENT, HUB_FULL, REFUSED
from fedbandit.engine.fast.slots import Seats
from fedbandit.engine.fast.split_loop import BEGIN, RUNNING, SplitRows, SplitRules, run_split
from fedbandit.engine.fast.split_model import begin, may_begin
from fedbandit.engine.fast.statistics import VERSION, empty_rows, row_length, scratch_matrix, start_row
from fedbandit.engine.outcome import Outcome
from fedbandit.environments.block import Block, Environment
from fedbandit.protocols import Coordinator, MemberKeeper
from fedbandit.protocols.trigger import pick, triggered
from fedbandit.rewards import AS_THEY_ARE, refused, reward_plan
from fedbandit.state import State
from fedbandit.streams import policy_key
from fedbandit.structures import GlobalLocal
from fedbandit.system import System
from fedbandit.types import Array
from fedbandit.world import World

NEVER = 2**62


class SplitLearner:
    """The rows of all clients and the coordinator's memory, which is of the shared part only."""

    def __init__(self, system: System, env: Environment, world: World, seed: int, *, fuse: bool = True) -> None:
        structure, protocol = system.structure, system.protocol
        assert isinstance(structure, GlobalLocal)
        self.parts = parts = structure.parts(world)
        self.dim = parts.shared
        self.world = world
        self.ridge = float(system.ridge)
        N, personal = world.n_clients, parts.own > 0
        startup = structure.startup and personal
        self.rows = SplitRows(
            shared=lazy_zeros((N, row_length(parts.shared))),
            own=lazy_zeros((N, row_length(parts.own))) if personal else np.zeros((0, 0)),
            first=lazy_zeros((N, row_length(world.dim))) if startup else np.zeros((0, 0)),
            phase=np.full(N, -1),
            looked=np.zeros(N, dtype=np.int64),
            sizes=structure.sizes(world),
        )
        trigger = protocol.trigger()
        fused = fuse and protocol.fused
        self.rules = SplitRules(
            kind=int(trigger.kind),
            thresholds=trigger.thresholds if fused else np.resize(trigger.thresholds, N),
            batch=trigger.batch,
            ridge=self.ridge,
            speaks=protocol.says != "nothing",
            fused=fused,
            counting=protocol.counting,
            warm=protocol.join != "cold",
            joining_counts=protocol.join == "warm",
            startup=startup,
            perturbed=system.privacy.reward_rule != AS_THEY_ARE,
            rewards=reward_plan(system.privacy.reward_rule, seed),
            blank_shared=_blank(parts.shared, self.ridge),
            blank_own=_blank(max(parts.own, 1), self.ridge),
            blank_first=_blank(world.dim, self.ridge),
        )
        plan = plan_of(system.policy, system.as_seen(world), system.ridge, policy_key(seed))
        self.plan = plan._replace(sigma=plan.sigma + structure.partial_noise)
        group_of = np.zeros(1, dtype=np.int64)
        self._hub = empty_hub(
            parts.shared, N if self.rules.speaks else 1, 1, group_of, protocol.log_gamma_download(), self.ridge
        )
        coordinator: Coordinator | None = None
        if not fused:
            coordinator = protocol.coordinator(self._hub, self.ridge, parts.shared, None)
        self.exchange = None
        if coordinator is not None:
            self.exchange = Exchange(system, coordinator, self.rules.thresholds, self.plan, parts.shared, seed)
        self.seats = Seats(np.arange(N), np.arange(N), np.array([N, 0]))
        self.late = no_late(min(env.longest_delay, world.horizon), env.dim)
        self.whole = scratch(env.n_arms, world.dim)
        self.work = split_scratch(env.n_arms, parts, world.dim)
        self._masked = np.zeros((env.n_arms, world.dim))
        self._positions = np.arange(env.n_arms)

    @property
    def hub(self) -> Hub:
        """The coordinator's memory."""
        return self._hub if self.exchange is None else self._coordinator.hub

    @property
    def _coordinator(self) -> Coordinator:
        assert self.exchange is not None
        assert not isinstance(self.exchange.coordinator, MemberKeeper)
        return self.exchange.coordinator

    def use_hub(self, hub: Hub) -> None:
        """Replace the coordinator's memory."""
        if self.exchange is None:
            self._hub = hub
        else:
            self._coordinator.hub = hub

    @property
    def control_messages(self) -> int:
        """Messages that carried no statistics."""
        return 0 if self.exchange is None else self.exchange.control_messages

    @property
    def clusters(self) -> None:
        """There are none."""
        return None

    def run(self, start: int, stop: int, before: int, block: Block, out: Outcome) -> int:
        """Run the compiled loop until it needs something, give it that, and say where to go on."""
        pause = run_split(
            start,
            stop,
            before,
            block,
            self.rows,
            self.parts,
            self.hub,
            self.late,
            self.plan,
            self.rules,
            self.whole,
            self.work,
            self._masked,
            self._positions,
            out,
        )
        if pause.status == BEGIN:
            self._look(pause.seat, out, pause.at)
        elif pause.status == EVENT:
            assert self.exchange is not None
            self.exchange.speak(pause.seat, self.rows.shared, self.seats, out, pause.at)
        elif pause.status == REFUSED:
            raise refused(self.rules.rewards, float(out.reward[pause.at]))
        elif pause.status == HUB_FULL:
            self.use_hub(make_room(self.hub))
        return pause.resume

    def _look(self, i: int, out: Outcome, s: int) -> None:
        """Client i may be through with its start-up; then it has much to say."""
        rows, d_g = self.rows, self.parts.shared
        size = int(rows.sizes[i])
        if not may_begin(rows.first[i], rows.shared[i], self.parts, size, self.world.dim):
            rows.looked[i] = int(rows.shared[i, VERSION])
            return
        begin(rows.first[i], rows.shared[i], rows.own[i], self.parts, size, self.world.dim, self.ridge)
        rows.phase[i] = RUNNING
        if not triggered(self.rules.kind, pick(self.rules.thresholds, i), self.rules.batch, rows.shared[i]):
            return
        if self.exchange is not None:
            self.exchange.speak(i, rows.shared, self.seats, out, s)
        else:
            M = scratch_matrix(d_g)
            out.uploads[s] += 1
            out.downloads[s] += upload_row(self.hub, i, rows.shared[i], d_g, self.ridge, self.rules.counting, M)

    def ledger(self) -> None:
        """Nothing is booked."""

    def next_wake(self, done: int) -> int:  # noqa: ARG002
        """There is nothing to do between rounds."""
        return NEVER

    def end_round(self, done: int, out: Outcome, s: int) -> None:
        """Nothing."""

    def state(self) -> State:
        """Rows, hub, rewards under way, and what the exchange remembers."""
        arrays: dict[str, Any] = {f"rows.{k}": v for k, v in self.rows._asdict().items()}
        arrays |= {f"late.{k}": v for k, v in self.late._asdict().items()}
        arrays |= pack_hub(self.hub)
        if self.exchange is None:
            return State({}, arrays)
        header, more = self.exchange.state()
        return State(header, arrays | more)

    def restore(self, state: State) -> None:
        """Go on from there."""
        arrays = state.arrays
        self.rows = SplitRows(*(arrays[f"rows.{k}"] for k in SplitRows._fields))
        self.late = Late(*(arrays[f"late.{k}"] for k in Late._fields))
        self.use_hub(unpack_hub(self.hub, arrays))
        if self.exchange is not None:
            self.exchange.restore(state)


def _blank(dim: int, ridge: float) -> Array:
    row = empty_rows(1, dim)[0]
    start_row(row, dim, ridge)
    return row
