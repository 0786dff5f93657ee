"""Learning with a shared and a personal part: Async-LinUCB-AM, under any protocol that exchanges statistics."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedbandit.engine.fast.choose import scratch
from fedbandit.engine.fast.choose_split import split_scratch
from fedbandit.engine.fast.cohorts import empty_hub
from fedbandit.engine.fast.delayed import no_late
from fedbandit.engine.fast.housekeeping import dump_hub, load_hub, make_room
from fedbandit.engine.fast.hub import upload_row
from fedbandit.engine.fast.memory import lazy_zeros
from fedbandit.engine.fast.persist import checked, dump_late, dump_rows, load_late, load_rows
from fedbandit.engine.fast.plan import plan_of
from fedbandit.engine.fast.row_link import RowLink
from fedbandit.engine.fast.row_model import RowHolder
from fedbandit.engine.fast.rules import EVENT, HUB_FULL, NEWCOMER, REFUSED
from fedbandit.engine.fast.split_loop import ABSENT, BEGIN, RUNNING, STARTING, SplitRows, SplitRules, enter, run_split
from fedbandit.engine.fast.split_model import begin, may_begin
from fedbandit.engine.fast.statistics import VERSION, empty_rows, row_length, scratch_matrix, start_row
from fedbandit.engine.fast.triggers import batch_of, kind_of, log_gamma_download, pick, triggered
from fedbandit.engine.outcome import Outcome
from fedbandit.environments.block import Block, Environment
from fedbandit.protocols import CountTriggered, EventTriggered, Never
from fedbandit.rewards import AS_THEY_ARE, refused, reward_plan
from fedbandit.sharing import NEVER
from fedbandit.state import State, joined, parts_of
from fedbandit.streams import policy_key
from fedbandit.structures import GlobalLocal
from fedbandit.system import System
from fedbandit.types import Array
from fedbandit.world import World


class SplitLearner(RowHolder):
    """The rows of all clients and the coordinator's memory, which is of the shared part only."""

    def __init__(self, system: System, env: Environment, world: World, seed: int) -> None:
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
        self.fused = fused = isinstance(protocol, EventTriggered | CountTriggered | Never)
        self.rules = SplitRules(
            kind=int(kind_of(trigger)),
            thresholds=trigger.thresholds if fused else np.resize(trigger.thresholds, N),
            batch=batch_of(trigger),
            ridge=self.ridge,
            speaks=fused and protocol.says != "nothing",
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
        self.hub = empty_hub(
            parts.shared,
            N if self.rules.speaks else 1,
            1,
            np.zeros(1, dtype=np.int64),
            log_gamma_download(protocol),
            self.ridge,
        )
        self.link = None if fused else RowLink(system, world, seed, self, self.rules.thresholds)
        self.met = np.full(0 if fused else N, protocol.join == "member")
        self.late = no_late(min(env.longest_delay, world.horizon), env.dim)
        self.whole = scratch(env.n_arms, world.dim)
        self.work = split_scratch(env.n_arms, parts, world.dim)
        self._masked = np.zeros((env.n_arms, world.dim))
        self._positions = np.arange(env.n_arms)

    def row_of_model(self, number: int) -> Array:
        """The shared row of a client, whether or not it has acted."""
        if self.rows.phase[number] == ABSENT:
            enter(self.rows, self.rules, number, self.parts.own)
        return self.rows.shared[number]

    def is_silent(self, number: int) -> bool:
        """Nothing is exchanged before the start-up is over."""
        return bool(self.rows.phase[number] == STARTING)

    @property
    def control_messages(self) -> int:
        """Messages that carried no statistics."""
        return 0 if self.link is None else self.link.control_messages

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
            self.met,
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
            assert self.link is not None
            self.link.speak(pause.seat, out, pause.at)
        elif pause.status == NEWCOMER:
            assert self.link is not None
            self.met[pause.seat] = True
            self.link.meet(pause.seat, out, pause.at)
        elif pause.status == REFUSED:
            raise refused(self.rules.rewards, float(out.reward[pause.at]))
        elif pause.status == HUB_FULL:
            self.hub = make_room(self.hub)
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
        if self.link is not None:
            self.link.speak(i, out, s)
        else:
            M = scratch_matrix(d_g)
            out.uploads[s] += 1
            out.downloads[s] += upload_row(self.hub, i, rows.shared[i], d_g, self.ridge, self.rules.counting, M)

    def ledger(self) -> None:
        """Nothing is booked."""

    def next_wake(self, done: int) -> int:
        """When the coordinator has something to do between rounds."""
        return NEVER if self.link is None else self.link.next_wake(done)

    def end_round(self, done: int, out: Outcome, s: int) -> None:
        """Let the coordinator do it."""
        assert self.link is not None
        self.link.end(done, out, s)

    def state(self) -> State:
        """Statistics of rows and hub, rewards under way, and what the link remembers."""
        arrays: dict[str, Any] = {name: getattr(self.rows, name) for name in ("phase", "looked")}
        for name, dim in self._dims.items():
            arrays |= dump_rows(getattr(self.rows, name), dim, name)
        arrays |= {**dump_late(self.late), **dump_hub(self.hub, self.dim), "met": self.met.astype(np.int64)}
        parts = {} if self.link is None else {"link": self.link.state()}
        return joined({}, {"rows": State({}, arrays), **parts})

    def restore(self, state: State) -> None:
        """Go on from there."""
        parts = parts_of(state)
        arrays = parts["rows"].arrays
        for name in ("phase", "looked"):
            getattr(self.rows, name)[:] = checked(arrays, name, self.rows.phase.shape)
        for name, dim in self._dims.items():
            load_rows(getattr(self.rows, name), dim, name, arrays, self.ridge)
        load_late(self.late, arrays)
        self.met[:] = checked(arrays, "met", self.met.shape)
        self.hub = load_hub(self.hub, self.dim, arrays, self.ridge)
        if self.link is not None:
            self.link.restore(parts["link"])

    @property
    def _dims(self) -> dict[str, int]:
        """The dimension of each kind of rows that there are."""
        dims = {"shared": self.parts.shared, "own": self.parts.own, "first": self.world.dim}
        return {name: dim for name, dim in dims.items() if len(getattr(self.rows, name))}


def _blank(dim: int, ridge: float) -> Array:
    row = empty_rows(1, dim)[0]
    start_row(row, dim, ridge)
    return row
