"""Learning with rows: every model is a row of statistics, clients and coordinator exchange them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedbandit.engine.fast.choose import ready_for, scratch
from fedbandit.engine.fast.cohorts import FREE, USED, Hub, empty_hub
from fedbandit.engine.fast.delayed import Late, no_late
from fedbandit.engine.fast.exchange import Exchange
from fedbandit.engine.fast.frontier import Frontier
from fedbandit.engine.fast.housekeeping import make_room, pack_hub, unpack_hub
from fedbandit.engine.fast.hub import own_all
from fedbandit.engine.fast.layout import layout_of
from fedbandit.engine.fast.light import light_length, tidy
from fedbandit.engine.fast.loop import run
from fedbandit.engine.fast.memory import enlarged, room_for, unknown
from fedbandit.engine.fast.peer_exchange import PeerExchange
from fedbandit.engine.fast.plan import plan_of
from fedbandit.engine.fast.row_sums import shared_row
from fedbandit.engine.fast.rules import DONE, EVENT, HUB_FULL, REFUSED, Rules
from fedbandit.engine.fast.scratch_row import settle_all
from fedbandit.engine.fast.slots import FULL, Seats
from fedbandit.engine.fast.statistics import adopt, empty_rows, grown, row_length, scratch_matrix, start_row, tidy_rows
from fedbandit.engine.ledger import Ledger, keep_books
from fedbandit.engine.outcome import Outcome
from fedbandit.engine.partitions import Partitions
from fedbandit.environments.block import Block, Environment
from fedbandit.messages import Join
from fedbandit.protocols import Coordinator, Kind, MemberKeeper
from fedbandit.rewards import AS_THEY_ARE, refused, reward_plan
from fedbandit.sharing import NEVER, Sharing, prior_share
from fedbandit.state import State
from fedbandit.streams import policy_key
from fedbandit.system import System
from fedbandit.types import Ints
from fedbandit.world import World

LARGEST_AT_ONCE = 2**33
"""Bytes of address space set aside for all rows at once; beyond that they grow as clients first act, if they may."""


class RowsLearner:
    """The rows of all clients and the coordinator's memory; the compiled loop, and Python for what it cannot do."""

    def __init__(self, system: System, env: Environment, world: World, seed: int, *, fuse: bool = True) -> None:
        self.dim = env.dim
        self.private = system.guarantee.basis != "none"
        protocol, layout = system.protocol, layout_of(system.structure, world)
        noise, known_one_by_one = system.pool_noise(), system.member_coordinator(world, seed)
        n_rows = layout.n_rows * protocol.period
        trigger = protocol.trigger()
        speaks = protocol.says in ("upload", "request") and known_one_by_one is None
        raw = system.privacy.perturbs in ("nothing", "rewards")
        fused = fuse and protocol.fused and layout.fresh and known_one_by_one is None and raw
        blank = empty_rows(1, env.dim)[0]
        start_row(blank, env.dim, system.ridge)
        self.rules = Rules(
            kind=int(trigger.kind),
            thresholds=trigger.thresholds if fused else np.resize(trigger.thresholds, n_rows),
            ridge=float(system.ridge),
            speaks=speaks,
            fused=fused,
            counting=protocol.counting,
            warm=protocol.join != "cold",
            joining_counts=protocol.join == "warm",
            blank=blank,
            batch=trigger.batch,
            fresh=layout.fresh,
            perturbed=system.privacy.reward_rule != AS_THEY_ARE,
            rewards=reward_plan(system.privacy.reward_rule, seed),
        )
        self.plan = plan_of(system.policy, system.as_seen(world), system.ridge, policy_key(seed))
        at_once = known_one_by_one is not None or 8 * n_rows * row_length(env.dim) <= LARGEST_AT_ONCE
        capacity = n_rows if at_once else min(n_rows, 4096)
        self.rows = room_for((capacity + 1, row_length(env.dim)))  # one is the bench
        self.lights = room_for((capacity, light_length(env.dim)))
        self.row_of = layout.row_of  # the row that serves a user, or None if it has the user's number
        self._turns = protocol.period, world.per_round
        self._who: tuple[Block, int, Ints] | None = None  # of the last block
        self.seats = Seats(
            seat_of=unknown(n_rows),
            row_at=np.zeros(capacity, dtype=np.int64),
            taken=np.zeros(2, dtype=np.int64),
        )
        n_members = n_rows if speaks else 1
        self._hub = empty_hub(
            env.dim, n_members, layout.n_groups, layout.group_of, protocol.log_gamma_download(), system.ridge
        )
        coordinator: Coordinator | MemberKeeper | None = known_one_by_one
        if coordinator is None and not fused:
            coordinator = protocol.coordinator(self._hub, system.ridge, env.dim, noise)
        self.exchange: Exchange | PeerExchange | None = None
        if protocol.says == "gossip":
            self.exchange = PeerExchange(system, self.rules.thresholds, self.plan, noise, env.dim, seed)
        elif coordinator is not None:
            self.exchange = Exchange(
                system,
                coordinator,
                self.rules.thresholds,
                self.plan,
                env.dim,
                seed,
                counted=layout.counted,
                fresh=layout.fresh,
            )
        self.explore = plan_of(system.explorer, world, system.ridge, policy_key(seed))
        self.clusters: Partitions | None = None
        if known_one_by_one is not None:
            self._seat_everyone(known_one_by_one.sharing)
            if protocol.join == "member":
                for i in range(world.n_clients):
                    known_one_by_one.receive(Join(i))  # there is nothing yet to answer with
            if system.structure.by_member:
                self.clusters = Partitions()
                self.clusters.record_clusters(0, known_one_by_one.sharing.groups())
        self._frontiers = Frontier(), Frontier(), Frontier(), Frontier()
        self._used = 0, 0, 0, 0  # of what they watch, when they last looked
        self.late = no_late(min(env.longest_delay, world.horizon), env.dim)
        self.work = scratch(env.n_arms, env.dim)

    @property
    def hub(self) -> Hub:
        """The coordinator's memory."""
        machine = self.exchange.coordinator if isinstance(self.exchange, Exchange) else None
        return self._hub if machine is None or isinstance(machine, MemberKeeper) else machine.hub

    def use_hub(self, hub: Hub) -> None:
        """Replace the coordinator's memory."""
        machine = self.exchange.coordinator if isinstance(self.exchange, Exchange) else None
        if machine is None or isinstance(machine, MemberKeeper):
            self._hub = hub
        else:
            machine.hub = hub

    @property
    def members(self) -> MemberKeeper | None:
        """The coordinator, if it knows its members one by one."""
        machine = self.exchange.coordinator if isinstance(self.exchange, Exchange) else None
        return machine if isinstance(machine, MemberKeeper) else None

    def _seat_everyone(self, sharing: Sharing) -> None:
        """Give every row its seat at once: an addressed download finds it, whether or not it has acted."""
        n = len(self.seats.seat_of)
        self.rows[:n] = self.rules.blank
        for i, row in enumerate(self.rows[:n]):
            prior = prior_share(sharing, i)
            if prior is not None:
                given = shared_row([prior.sums], prior.slack, self.dim, self.rules.ridge, scratch_matrix(self.dim))
                adopt(row, given, self.dim, self.rules.ridge, scratch_matrix(self.dim))
        self.seats.seat_of[:] = np.arange(n)
        self.seats.row_at[:n] = np.arange(n)
        self.seats.taken[FULL] = n

    @property
    def control_messages(self) -> int:
        """Messages that carried no statistics."""
        return 0 if self.exchange is None else self.exchange.control_messages

    def ledger(self) -> Ledger | None:
        """What privacy has cost, if there is a privacy part."""
        if not self.private:
            return None
        streams, spent = (
            ({}, set[int]()) if self.exchange is None else (self.exchange.outlets.streams, self.exchange.outlets.spent)
        )
        return keep_books(streams, spent, int(self.rules.rewards.clipped[0]))

    def run(self, start: int, stop: int, before: int, block: Block, out: Outcome) -> int:
        """Run the compiled loop until it needs something, give it that, and say where to go on."""
        stop = self._greet(start, stop, block, out)
        self.work = ready_for(self.work, block.X, block.arms.size)
        exploring = self.members is not None and self.members.exploring
        pause = run(
            start,
            stop,
            before,
            block,
            self._who_serves(block, before),
            self.rows,
            self.lights,
            self.seats,
            self.hub,
            self.late,
            self.explore if exploring else self.plan,
            self.rules._replace(kind=int(Kind.NEVER)) if exploring else self.rules,
            self.work,
            out,
        )
        if pause.status == EVENT:
            assert self.exchange is not None
            self.exchange.speak(pause.seat, self.rows, self.seats, out, pause.at)
        elif pause.status == REFUSED:
            raise refused(self.rules.rewards, float(out.reward[pause.at]))
        elif pause.status == HUB_FULL:
            self.use_hub(make_room(self.hub))
        elif pause.status != DONE:
            capacity = min(2 * len(self.seats.row_at), len(self.seats.seat_of))
            self.rows = enlarged(self.rows, capacity + 1)
            self.lights = enlarged(self.lights, capacity)
            self.seats = self.seats._replace(row_at=grown(self.seats.row_at, capacity))
        if pause.status != EVENT:  # there may be as many as interactions
            self._look_ahead()
        return pause.resume

    def _look_ahead(self) -> None:
        """Have the memory that is used next handed out."""
        (taken, light), hub = self.seats.taken.tolist(), self.hub
        snapshots, cohorts = hub.users.size - int(hub.counters[FREE]), int(hub.counters[USED])
        used = taken, light, snapshots, cohorts
        if used == self._used:
            return
        self._used = used
        arrays = self.rows, self.lights, hub.snapshots, hub.cohorts
        for frontier, array, rows in zip(self._frontiers, arrays, used, strict=True):
            frontier.reach(array, rows)

    def _who_serves(self, block: Block, before: int) -> Ints:
        """The row that serves the user of each interaction; of several estimators, the one whose turn it is."""
        if self._who is None or self._who[0] is not block or self._who[1] != before:
            who = block.clients if self.row_of is None else self.row_of[block.clients]
            period, per_round = self._turns
            if period > 1:
                who = who * period + (before + np.arange(who.size)) // per_round % period
            self._who = block, before, who
        return self._who[2]

    def _greet(self, start: int, stop: int, block: Block, out: Outcome) -> int:
        """Let a client that first acts join a coordinator that knows its members; where the next such one acts."""
        if not isinstance(self.exchange, Exchange) or self.members is None or self.members.joined.all():
            return stop
        newcomer = int(block.clients[start])
        if not self.members.joined[newcomer]:
            self.exchange.deliver(self.members.receive(Join(newcomer)), self.rows, self.seats, out, start)
        new = np.flatnonzero(~self.members.joined[block.clients[start:stop]])
        return start + int(new[0]) if new.size else stop

    def next_wake(self, done: int) -> int:
        """When the coordinator wants to look at everybody; rows alone have nothing to do between rounds."""
        if isinstance(self.exchange, PeerExchange):
            return done + 1
        return NEVER if self.members is None else self.members.next_wake(done)

    def end_round(self, done: int, out: Outcome, s: int) -> None:
        """Let the coordinator do what it does between rounds."""
        if isinstance(self.exchange, PeerExchange):
            self.exchange.end_round(self.rows, self.seats, out, s)
        elif self.exchange is not None and self.members is not None:
            before = self.members.sharing.groups()
            self.exchange.deliver(self.members.end_round(done), self.rows, self.seats, out, s)
            if self.clusters is not None and self.members.sharing.groups() != before:
                self.clusters.record_clusters(done, self.members.sharing.groups())

    def settle(self) -> None:
        """Give every row that has acted a full seat, so that `rows` shows them all. It changes no outcome."""
        settle_all(self.rows, self.lights, self.seats, self.hub, self.rules, self.work)
        self._own_bases()

    def _own_bases(self) -> None:
        if self.rules.fused and self.rules.speaks:
            taken = int(self.seats.taken[FULL])
            own_all(self.hub, self.rows[:taken], self.seats.row_at[:taken], self.dim)

    def state(self) -> State:
        """Rows, seats, hub, rewards under way, and what the exchange remembers."""
        taken, light = self.seats.taken.tolist()
        self._own_bases()
        tidy_rows(self.rows[:taken], self.dim)
        arrays: dict[str, Any] = {"rows": self.rows[:taken], "lights": tidy(self.lights[:light], self.dim)}
        arrays |= {f"late.{k}": v for k, v in self.late._asdict().items()}
        arrays |= pack_hub(self.hub)
        arrays["seat_of"] = self.seats.seat_of
        arrays["row_at"] = self.seats.row_at[:taken]
        clipped = {"clipped": int(self.rules.rewards.clipped[0])}
        if self.exchange is None:
            return State(clipped, arrays)
        header, more = self.exchange.state()
        found = {} if self.clusters is None else self.clusters.arrays()
        return State(header | clipped, arrays | more | found)

    def restore(self, state: State) -> None:
        """Go on from there."""
        arrays = state.arrays
        taken = [len(arrays["rows"]), len(arrays["lights"])]
        room = max(len(self.seats.row_at), *taken)
        self.rows = enlarged(arrays["rows"], room + 1)
        self.lights = enlarged(arrays["lights"], room)
        self.late = Late(*(arrays[f"late.{k}"] for k in Late._fields))
        self.seats = self.seats._replace(
            seat_of=arrays["seat_of"], row_at=grown(arrays["row_at"], room), taken=np.array(taken)
        )
        self.rules.rewards.clipped[0] = state.header["clipped"]
        self.use_hub(unpack_hub(self.hub, arrays))
        if self.exchange is not None:
            self.exchange.restore(state)
        if self.clusters is not None:
            self.clusters = Partitions.from_arrays(arrays)
