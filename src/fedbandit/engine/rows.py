"""Learning with rows: every model is a row of statistics, clients and coordinator exchange them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedbandit.engine.exchange import Exchange
from fedbandit.engine.loop import (
    DONE,
    EVENT,
    HUB_FULL,
    Late,
    Outcome,
    Rules,
    Seats,
    no_late,
    run,
    settle_all,
)
from fedbandit.engine.partitions import Partitions
from fedbandit.environments.block import Block, Environment
from fedbandit.memory import enlarged, lazy_zeros
from fedbandit.policies import scratch
from fedbandit.protocols.hub import Hub, empty_hub, make_room
from fedbandit.statistics import empty_rows, grown, light_length, row_length, start_row
from fedbandit.streams import policy_key
from fedbandit.system import System
from fedbandit.world import World

LARGEST_AT_ONCE = 2**33
"""Bytes of address space that may be set aside for all rows at once; beyond that they grow as clients first act."""

NEVER = 2**62


class RowsLearner:
    """The rows of all clients and the coordinator's memory; the compiled loop, and Python for what it cannot do."""

    def __init__(self, system: System, env: Environment, world: World, seed: int, *, fuse: bool = True) -> None:
        self.dim = env.dim
        protocol, layout = system.protocol, system.structure.layout(world)
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
        self.late = no_late(min(env.longest_delay, world.horizon), env.dim)
        self.work = scratch(env.n_arms, env.dim)

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
    def control_messages(self) -> int:
        """Messages that carried no statistics."""
        return 0 if self.exchange is None else self.exchange.control_messages

    @property
    def clusters(self) -> Partitions | None:
        """Rows alone find none."""
        return None

    def run(self, start: int, stop: int, before: int, block: Block, out: Outcome) -> int:
        """Run the compiled loop until it needs something, give it that, and say where to go on."""
        pause = run(
            start,
            stop,
            before,
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

    def next_wake(self, done: int) -> int:  # noqa: ARG002 - rows alone have nothing to do between rounds
        """Nothing is due at the end of a round."""
        return NEVER

    def end_round(self, done: int, out: Outcome, s: int) -> None:
        """Nothing is due."""

    def settle(self) -> None:
        """Give every row that has acted a full seat, so that `rows` shows them all. It changes no outcome."""
        settle_all(self.rows, self.lights, self.bench, self.seats, self.hub, self.rules, self.work)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Rows, seats, hub, rewards under way, and what the exchange remembers."""
        taken, light = self.seats.taken.tolist()
        arrays: dict[str, Any] = {"rows": self.rows[:taken], "lights": self.lights[:light]}
        arrays |= {f"late.{k}": v for k, v in self.late._asdict().items()}
        arrays |= {f"hub.{k}": v for k, v in self.hub._asdict().items()}
        arrays["seat_of"] = self.seats.seat_of
        arrays["row_at"] = self.seats.row_at[:taken]
        return {} if self.exchange is None else self.exchange.state(), arrays

    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Go on from there."""
        taken = [len(arrays["rows"]), len(arrays["lights"])]
        room = max(len(self.seats.row_at), *taken)
        self.rows = enlarged(arrays["rows"], room)
        self.lights = enlarged(arrays["lights"], room)
        self.late = Late(*(arrays[f"late.{k}"] for k in Late._fields))
        self.seats = self.seats._replace(
            seat_of=arrays["seat_of"], row_at=grown(arrays["row_at"], room), taken=np.array(taken)
        )
        self.use_hub(Hub(*(arrays[f"hub.{k}"] for k in Hub._fields)))
        if self.exchange is not None:
            self.exchange.restore(values)
