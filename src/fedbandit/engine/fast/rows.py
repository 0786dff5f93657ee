"""Learning with rows: every model is a row of statistics, clients and coordinator exchange them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from fedbandit.engine.fast.choose import ready_for, scratch
from fedbandit.engine.fast.cohorts import CONTROL, empty_hub
from fedbandit.engine.fast.compact import compact_length, dump_compact, load_compact, settle_all
from fedbandit.engine.fast.housekeeping import dump_hub, load_hub, make_room
from fedbandit.engine.fast.loop import run
from fedbandit.engine.fast.memory import enlarged, grown, minus_ones, room_for
from fedbandit.engine.fast.persist import dump_late, dump_rows, load_late, load_rows
from fedbandit.engine.fast.plan import plan_of
from fedbandit.engine.fast.rewards import no_late
from fedbandit.engine.fast.row import empty_rows, row_length, start_row
from fedbandit.engine.fast.row_link import RowLink, RowPeers
from fedbandit.engine.fast.rules import (
    EVENT,
    HUB_FULL,
    NEWCOMER,
    REFUSED,
    ROWS_FULL,
    LoopRules,
    TriggerKind,
    batch_of,
    kind_of,
    log_gamma_download,
)
from fedbandit.engine.fast.slots import Slots, layout_of, take_slot
from fedbandit.engine.learner import Outcome
from fedbandit.engine.ledger import Ledger, keep_books
from fedbandit.engine.partitions import Partitions
from fedbandit.engine.services import Services
from fedbandit.environments.block import Block, Environment
from fedbandit.protocols import CountTriggered, EventTriggered, Never, QueueCoordinator, Synchronous
from fedbandit.rewards import AS_THEY_ARE, refused, reward_plan
from fedbandit.sharing import NEVER, Grounded
from fedbandit.state import State, joined, parts_of, stored
from fedbandit.streams import policy_key
from fedbandit.system import System
from fedbandit.types import Array, Ints
from fedbandit.world import World

LARGEST_AT_ONCE = 2**33
"""Bytes of address space set aside for all rows at once; beyond that they grow as clients first act, if they may."""


LARGE = 64
"""Dimensions from which on it takes longer to adopt a download than to ask whether there is one."""


class RowsLearner:
    """The rows of all clients. Either their whole exchange is compiled (the hub), or machines carry it (a link).

    Cohorts of the hub do not know whose messages they are: `by_machines` is for who asks.
    """

    def __init__(self, system: System, env: Environment, world: World, seed: int, *, by_machines: bool = False) -> None:
        self._made_of = system, env, world, seed
        carried = by_machines and system.structure.separate and system.protocol.says != "nothing"
        self._begin(system, env, world, seed, fused=is_fused(system, world) and not carried)

    def _begin(self, system: System, env: Environment, world: World, seed: int, *, fused: bool) -> None:
        self.dim = env.dim
        self.private = system.guarantee.basis != "none"
        protocol, layout = system.protocol, layout_of(system.structure, world)
        n_rows = layout.n_rows * protocol.period
        trigger = protocol.trigger()
        self.fused = fused
        speaks = self.fused and protocol.says in ("upload", "request")
        blank = empty_rows(1, env.dim)[0]
        start_row(blank, env.dim, system.ridge)
        self.rules = LoopRules(
            kind=int(kind_of(trigger)),
            thresholds=trigger.thresholds if self.fused else np.resize(trigger.thresholds, n_rows),
            ridge=float(system.ridge),
            speaks=speaks,
            fused=self.fused,
            calls=protocol.says == "request",
            counting=protocol.counting,
            warm=protocol.join != "cold",
            joining_counts=protocol.join == "warm",
            blank=blank,
            batch=batch_of(trigger),
            fresh=system.structure.fresh,
            perturbed=system.privacy.reward_rule != AS_THEY_ARE,
            rewards=reward_plan(system.privacy.reward_rule, seed),
        )
        self.plan = plan_of(system.policy, system.as_seen(world), system.ridge, policy_key(seed))
        at_once = not self.fused or 8 * n_rows * row_length(env.dim) <= LARGEST_AT_ONCE
        capacity = n_rows if at_once else min(n_rows, 4096)
        self.rows = room_for((capacity + 1, row_length(env.dim)))  # one is the scratch row
        self.compacts = room_for((capacity, compact_length(env.dim)))
        self.row_of = layout.row_of  # the row that serves a user, or None if it has the user's number
        self._turns = protocol.period, world.per_round
        self._who: tuple[Block, int, Ints] | None = None  # of the last block
        peers = protocol.says == "gossip"
        self.slots = Slots(
            slot_of=minus_ones(n_rows),
            row_at=np.zeros(capacity, dtype=np.int64),
            taken=np.zeros(2, dtype=np.int64),
            met=np.zeros(0 if self.fused or peers else n_rows, dtype=np.bool_),
        )
        self.hub = empty_hub(
            env.dim,
            n_rows if speaks else 1,
            layout.n_groups,
            layout.group_of,
            log_gamma_download(protocol),
            system.ridge,
        )
        self.explore = plan_of(system.explorer, world, system.ridge, policy_key(seed))
        self.link: RowLink | RowPeers | None = None
        self.clusters: Partitions | None = None
        if peers:
            self.link = RowPeers(system, world, seed, self, self.rules.thresholds)
        elif not self.fused:
            self.link = RowLink(system, world, seed, self, self.rules.thresholds)
            grounded = isinstance(self.link.start, Grounded)
            self.slots.met[:] = protocol.join == "member" and not grounded
            if system.structure.by_member:
                self.clusters = Partitions()
                self.clusters.record_clusters(0, self.link.start.groups())
        machine = self.link.coordinator if isinstance(self.link, RowLink) else None
        self._server = machine if isinstance(machine, QueueCoordinator) else None
        self.services = None if self._server is None else Services()
        self._deferred: tuple[int, int] | None = None  # a row that wants to speak, and the interaction it does so in
        self.late = no_late(min(env.longest_delay, world.horizon), env.dim)
        self.work = scratch(env.n_arms, env.dim)

    def row_of_model(self, number: int) -> Array:
        """A row of its own for a client that is sent something, whether or not it has acted."""
        if self.slots.slot_of[number] < 0:
            self.rows[take_slot(self.slots, number)] = self.rules.blank
        return self.rows[self.slots.slot_of[number]]

    def postpone(self, number: int) -> bool | None:
        """Where rows are large, one adopts its last download before it acts, instead of each one as it comes."""
        if self.dim < LARGE or self.late.row.size > 1:
            return None
        has_acted = bool(self.slots.met[number])
        self.slots.met[number] = False
        return has_acted

    @property
    def control_messages(self) -> int:
        """Messages that carried no statistics."""
        return int(self.hub.counters[CONTROL]) if self.link is None else self.link.control_messages

    def ledger(self) -> Ledger | None:
        """What privacy has cost, if there is a privacy part."""
        if not self.private:
            return None
        streams, spent = ({}, []) if self.link is None else (self.link.streams(), self.link.exhausted())
        return keep_books(streams, spent, int(self.rules.rewards.clipped[0]))

    @property
    def by_client(self) -> tuple[Counter[int], Counter[int]] | None:
        """Messages from and to each client, where machines carry them or there are none."""
        if self.link is not None:
            return self.link.sent_by, self.link.received_by
        return None if self.rules.speaks else (Counter(), Counter())

    @property
    def exploring(self) -> bool:
        """Whether clients explore, and nobody speaks."""
        machine = self.link.coordinator if isinstance(self.link, RowLink) else None
        return machine is not None and machine.exploring

    def run(self, start: int, stop: int, before: int, block: Block, out: Outcome) -> int:
        """Run the compiled loop until it needs something, give it that, and say where to go on."""
        if self._deferred is not None:
            self._speak(*self._deferred, out)
            self._note_services((before + self._deferred[1]) // self._turns[1] + 1)
            self._deferred = None
            return start  # what was said may have to be answered at the end of this round
        exploring = self.exploring
        self.work = ready_for(self.work, block.X, block.arms.size)
        pause = run(
            start,
            stop,
            before,
            block,
            self._who_serves(block, before),
            self.rows,
            self.compacts,
            self.slots,
            self.hub,
            self.late,
            self.explore if exploring else self.plan,
            self.rules._replace(kind=int(TriggerKind.NEVER)) if exploring else self.rules,
            self.work,
            out,
        )
        if pause.status == EVENT:
            r = int(self.slots.row_at[pause.slot])
            if pause.at == pause.resume > start:
                # A late reward, seen in the round that now begins: let the one before it end first.
                self._deferred = r, pause.at
            else:
                self._speak(r, pause.at, out)
                self._note_services((before + pause.at) // self._turns[1] + 1)
        elif pause.status == NEWCOMER:
            assert isinstance(self.link, RowLink)
            self.slots.met[pause.slot] = True
            self.link.meet(pause.slot, out, pause.at)
        elif pause.status == REFUSED:
            raise refused(self.rules.rewards, float(out.reward[pause.at]))
        elif pause.status == HUB_FULL:
            self.hub = make_room(self.hub)
        elif pause.status == ROWS_FULL:
            capacity = min(2 * len(self.slots.row_at), len(self.slots.slot_of))
            self.rows = enlarged(self.rows, capacity + 1)
            self.compacts = enlarged(self.compacts, capacity)
            self.slots = self.slots._replace(row_at=grown(self.slots.row_at, capacity))
        return pause.resume

    def _speak(self, r: int, at: int, out: Outcome) -> None:
        assert self.link is not None
        self.link.speak(r, out, at)

    def _who_serves(self, block: Block, before: int) -> Ints:
        """The row that serves the user of each interaction; of several estimators, the one whose turn it is."""
        if self._who is None or self._who[0] is not block or self._who[1] != before:
            who = block.clients if self.row_of is None else self.row_of[block.clients]
            period, per_round = self._turns
            if period > 1:
                who = who * period + (before + np.arange(who.size)) // per_round % period
            self._who = block, before, who
        return self._who[2]

    def next_wake(self, done: int) -> int:
        """When the coordinator wants to look at everybody; rows alone have nothing to do between rounds."""
        if isinstance(self.link, RowPeers):
            return done + 1
        return NEVER if self.link is None else self.link.next_wake(done)

    def end_round(self, done: int, out: Outcome, s: int) -> None:
        """Let the coordinator do what it does between rounds."""
        assert self.link is not None
        before = None if self.clusters is None else self._groups()
        self.link.end(done, out, s)
        if self.clusters is not None and self._groups() != before:
            self.clusters.record_clusters(done, self._groups())
        self._note_services(done)

    def _note_services(self, done: int) -> None:
        if self._server is not None and self.services is not None:
            self.services.look(self._server, done)

    def _groups(self) -> list[list[int]]:
        assert isinstance(self.link, RowLink)
        assert self.link.coordinator is not None
        return self.link.coordinator.sharing.groups()

    def settle(self) -> None:
        """Give every row that has acted a full slot, so that `rows` shows them all. It changes no outcome."""
        settle_all(self.rows, self.compacts, self.slots, self.hub, self.rules, self.work)

    def state(self) -> State:
        """Statistics of rows and hub, rewards under way, and what the link remembers."""
        if isinstance(self.link, RowLink):
            self.slots.met[self.link.settle()] = True
        taken, compact = self.slots.taken.tolist()
        arrays: dict[str, Any] = {
            **dump_rows(self.rows[:taken], self.dim, "rows"),
            **dump_compact(self.compacts[:compact], self.dim),
            **dump_late(self.late),
            **dump_hub(self.hub, self.dim),
            "slot_of": self.slots.slot_of,
            "row_at": self.slots.row_at[:taken],
            "met": self.slots.met.astype(np.int64),
            **({} if self.clusters is None else self.clusters.arrays()),
            **({} if self.services is None else self.services.arrays()),
        }
        control = int(self.hub.counters[CONTROL])
        header = {"clipped": int(self.rules.rewards.clipped[0]), "deferred": self._deferred, "control": control}
        parts = {} if self.link is None else {"link": self.link.state()}
        return joined({}, {"rows": State(header, arrays), **parts})

    def restore(self, state: State) -> None:
        """Go on from there."""
        parts = parts_of(state)
        if self.fused and "link" in parts:
            self._begin(*self._made_of, fused=False)  # machines carried what was said when this was kept
        header, arrays = mine = parts["rows"]
        taken = [len(arrays["rows.b"]), len(arrays["compact.numbers"])]
        room = max(len(self.slots.row_at), *taken)
        self.rows = room_for((room + 1, self.rows.shape[1]))
        self.compacts = room_for((room, self.compacts.shape[1]))
        self.slots = self.slots._replace(
            slot_of=stored(mine, "slot_of", self.slots.slot_of.shape),
            row_at=grown(arrays["row_at"], room),
            taken=np.array(taken),
            met=stored(mine, "met", self.slots.met.shape).astype(np.bool_),
        )
        self.rules.rewards.clipped[0] = header["clipped"]
        self._deferred = None if header["deferred"] is None else tuple(header["deferred"])
        self.hub = load_hub(self.hub, self.dim, mine, self.rules.ridge)
        self.hub.counters[CONTROL] = header["control"]
        if self.link is not None:
            self.link.restore(parts["link"])  # before the rows: exchanges begin with what is public
        load_rows(self.rows[: taken[0]], self.dim, "rows", mine, self.rules.ridge, fresh=self.rules.fresh)
        load_compact(self.compacts[: taken[1]], self.dim, mine)
        load_late(self.late, mine)
        if self.clusters is not None:
            self.clusters = Partitions.from_arrays(arrays)
        if "served.rounds" in arrays:
            self.services = Services.from_arrays(arrays)


def is_fused(system: System, world: World) -> bool:
    """Whether nothing but compiled code has to see an exchange: exact statistics, and groups known beforehand."""
    exact = system.privacy.perturbs in ("nothing", "rewards")
    separate = system.structure.separate
    known = isinstance(system.protocol, EventTriggered | CountTriggered | Never)
    known = known or (isinstance(system.protocol, Synchronous) and separate)
    alone = isinstance(system.protocol, Never) or not separate
    return known and exact and system.structure.fresh and (alone or not system.knows_members(world))
