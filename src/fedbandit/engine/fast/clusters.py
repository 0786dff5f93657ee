"""Learning with clusters: users of a local cluster share a row, and clusters change while running."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fedbandit.engine.fast.choose import scratch
from fedbandit.engine.fast.cluster_loop import LEAVES, MEETING, TORN, run_clusters
from fedbandit.engine.fast.cluster_rules import Rule, law_of
from fedbandit.engine.fast.cohorts import Hub, empty_hub, has_room
from fedbandit.engine.fast.delayed import Late, no_late
from fedbandit.engine.fast.exchange import Exchange
from fedbandit.engine.fast.groups import Groups, groups_of, prune
from fedbandit.engine.fast.housekeeping import make_room, pack_hub, unpack_hub
from fedbandit.engine.fast.hub import join, settle_pool
from fedbandit.engine.fast.memory import lazy_zeros
from fedbandit.engine.fast.plan import plan_of
from fedbandit.engine.fast.regrouping import Models, connect, leaders_of, local_sums, rearrange_sets, tear
from fedbandit.engine.fast.rules import EVENT, HUB_FULL, REFUSED, Rules
from fedbandit.engine.fast.slots import Seats
from fedbandit.engine.fast.statistics import (
    N_OWN,
    N,
    add_to_base,
    base_b_of,
    empty_rows,
    recompute,
    row_length,
    start_row,
)
from fedbandit.engine.ledger import Ledger, keep_books
from fedbandit.engine.outcome import Outcome
from fedbandit.engine.partitions import Partitions
from fedbandit.environments.block import Block, Environment, actions_per_round
from fedbandit.errors import FedbanditError
from fedbandit.privacy.privacy import Releases
from fedbandit.protocols import Coordinator, SynchronousCoordinator
from fedbandit.protocols.coordinator import StarCoordinator
from fedbandit.rewards import AS_THEY_ARE, refused, reward_plan
from fedbandit.sharing import NEVER
from fedbandit.state import State
from fedbandit.streams import Stream, generator, policy_key
from fedbandit.structures import Clustering
from fedbandit.structures.phased_clusters import merge_clusters, next_phase
from fedbandit.sums import Sums
from fedbandit.system import System
from fedbandit.types import Array, Ints
from fedbandit.world import World

ROOM = 4096
"""Cohorts there is room for at first: local clusters are few, but they may speak at every interaction."""


class ClustersLearner:
    """Rows of local clusters, own statistics of users, and the coordinator's memory, one pool a global cluster.

    Local servers see the statistics of their users (`own`); what crosses to the coordinator are sums over a local
    cluster, in uploads (`hub`) and at the beginning of a phase (`end_round`).
    """

    def __init__(self, system: System, env: Environment, world: World, seed: int, *, fuse: bool = True) -> None:
        structure, protocol = system.structure, system.protocol
        assert isinstance(structure, Clustering)
        self.dim, self.ridge, self.protocol = env.dim, float(system.ridge), protocol
        self.law = law_of(structure)
        self.interactions, self.per_round = world.horizon, actions_per_round(env)
        trigger = protocol.trigger()
        if trigger.thresholds.size > 1 or protocol.log_gamma_download().size > 1:
            raise FedbanditError(
                "One threshold for each client was given, but it is local clusters that communicate here: give one "
                "number for all."
            )
        blank = empty_rows(1, env.dim)[0]
        start_row(blank, env.dim, self.ridge)
        self.rules = Rules(
            kind=int(trigger.kind),
            thresholds=np.resize(trigger.thresholds, world.n_clients),
            ridge=self.ridge,
            speaks=protocol.says != "nothing",
            fused=fuse and protocol.fused and system.privacy.perturbs != "statistics",
            counting=protocol.counting,
            warm=True,
            joining_counts=True,
            blank=blank,
            batch=trigger.batch,
            fresh=True,
            perturbed=system.privacy.reward_rule != AS_THEY_ARE,
            rewards=reward_plan(system.privacy.reward_rule, seed),
        )
        self.system, self.seed, self.noise = system, seed, system.pool_noise()
        self.private = system.guarantee.basis != "none"
        self.generation = self.opened = 0  # clusterings so far, and the one whose streams are in use
        self.plan = plan_of(system.policy, system.as_seen(world), system.ridge, policy_key(seed))
        server_of = structure.servers(world)
        graphs = self.law.rule in (Rule.PHASES, Rule.PRUNING)
        self.groups = groups_of(server_of, env.dim, graphs=graphs)
        n = world.n_clients
        self.own, self.rows = (lazy_zeros((n, row_length(env.dim))) for _ in range(2))
        self.own[:] = blank
        self.rows[:] = blank
        self.shared = self.rows[:0] if self.law.fresh else self.rows.copy()
        self.global_of = np.zeros(n, dtype=np.int64) if structure.federated else self.groups.row_of.copy()
        self.late = no_late(min(env.longest_delay, world.horizon), env.dim)
        self.work = scratch(env.n_arms, env.dim)
        self.pair = np.zeros(2, dtype=np.int64)
        self.exchange: Exchange | None = None
        self.coordinator: Coordinator | None = None
        self._hub = self._empty_hub(np.zeros(n, dtype=np.int64), 1)
        if self.rules.speaks:
            leaders = leaders_of(self.groups)
            sums = local_sums(self._models, leaders)
            self._open_hub(leaders, np.zeros(leaders.size, dtype=np.int64), *sums, self._new_streams(leaders))
        self.partitions = Partitions.of_labels(self.global_of)

    # ------------------------------------------------------------------------------------------------ the time loop

    def run(self, start: int, stop: int, before: int, block: Block, out: Outcome) -> int:
        """Run the compiled loop until it needs something, give it that, and say where to go on."""
        pause = run_clusters(
            start,
            stop,
            before,
            block,
            self.own,
            self.rows,
            self.shared,
            self.groups,
            self.hub,
            self.late,
            self.plan,
            self.rules,
            self.law,
            self.work,
            self.pair,
            out,
        )
        if pause.status == REFUSED:
            raise refused(self.rules.rewards, float(out.reward[pause.at]))
        if pause.status == EVENT:
            self._speak(pause.seat, out, pause.at)
        elif pause.status == HUB_FULL:
            self._use_hub(make_room(self.hub))
        elif pause.status in (TORN, LEAVES, MEETING):
            if pause.status == TORN:
                tear(self._models, int(self.groups.server_of[pause.seat]))
            else:
                rearrange_sets(self._models, self.law, pause.seat, leaving=pause.status == LEAVES)
            self.global_of = self.groups.row_of.copy()
            self.partitions.record((before + pause.at) // self.per_round + 1, self.global_of)
        return pause.resume

    def next_wake(self, done: int) -> int:
        """The beginning of the next phase."""
        return next_phase(done) if self.law.rule == Rule.PHASES else NEVER

    def end_round(self, done: int, out: Outcome, s: int) -> None:
        """A phase begins: find local clusters, upload and merge them, renew if anything is new (FCLUB, Alg. 2)."""
        if done * self.per_round >= self.interactions:
            return
        for row in self.own:
            recompute(row, self.dim, self.ridge, self.work.M)
        for i in range(self.own.shape[0]):
            prune(i, self.own, self.groups, self.law.split, self.dim)
        before = self.groups.row_of.copy()
        for server in range(self.groups.served.size):
            connect(self.groups, server)
        leaders = leaders_of(self.groups)
        V, b, n = local_sums(self._models, leaders)
        streams = self._new_streams(leaders)
        usable = self._noise(leaders, V, b, n, streams)
        label = merge_clusters(
            usable, b, n, self.groups.server_of[leaders], self.ridge, self.law.merge, within=self.law.within
        )
        out.uploads[s] += leaders.size
        first = np.full(label.max() + 1, self.own.shape[0])
        np.minimum.at(first, label, leaders)
        global_of = first[label[np.searchsorted(leaders, self.groups.row_of)]]
        if np.array_equal(global_of, self.global_of) and np.array_equal(before, self.groups.row_of):
            return
        self.global_of = global_of
        self.partitions.record(done, global_of)
        self._open_hub(leaders, label, V, b, n, streams)
        out.downloads[s] += leaders.size

    # ------------------------------------------------------------------------------------------------- coordination

    @property
    def hub(self) -> Hub:
        """The coordinator's memory; its members are local clusters, its groups global ones."""
        return self._hub if self.coordinator is None else self.coordinator.hub

    def _use_hub(self, hub: Hub) -> None:
        if self.coordinator is None:
            self._hub = hub
        else:
            self.coordinator.hub = hub

    def _empty_hub(self, group_of: Ints, n_groups: int) -> Hub:
        members = self.own.shape[0] if self.rules.speaks else 1
        log_gamma = self.protocol.log_gamma_download()
        return empty_hub(self.dim, members, n_groups, group_of, log_gamma, self.ridge, room=ROOM)

    def _new_streams(self, leaders: Ints) -> dict[int, Releases]:
        """A privacy stream for each local cluster, if there is noise: FCLUB builds trees anew with every clustering."""
        self.generation += 1
        return self._streams(leaders, self.generation)

    def _streams(self, leaders: Ints, generation: int) -> dict[int, Releases]:
        made = {
            int(r): self.system.privacy.stream(int(r), partial(generator, self.seed, Stream.NOISE, int(r), generation))
            for r in leaders
            if self.system.privacy.perturbs == "statistics"
        }
        return {r: stream for r, stream in made.items() if stream is not None}

    def _noise(self, leaders: Ints, V: Array, b: Array, n: Array, streams: dict[int, Releases]) -> Array:
        """Noise what local clusters upload when a phase begins, in place; V as it can be used to estimate."""
        usable = V.copy()
        for k, r in enumerate(leaders.tolist()):
            if r in streams and n[k] > 0:
                V[k], b[k], _ = streams[r].release(Sums(V[k], b[k], int(n[k])))
                usable[k] = V[k] if self.noise is None else self.noise.repair(V[k], {r: 1}, self.ridge)[0]
        return usable

    def _open_hub(self, leaders: Ints, label: Ints, V: Array, b: Array, n: Array, streams: dict[int, Releases]) -> None:
        """A new hub: each global cluster has the sum of its local ones, and each of these has all of it.

        FCLUB, Alg. 2 lines 10–18, and with nothing observed yet Alg. 1 lines 3–4. If the exchange is not compiled, a
        new coordinator machine keeps the hub, and goes on with these streams of noise.
        """
        n_groups = int(label.max()) + 1
        group_of = np.full(self.own.shape[0], -1)
        group_of[leaders] = label
        hub = self._empty_hub(group_of, n_groups)
        for k, g in enumerate(label):
            add_to_base(hub.pool[g], self.dim, V[k])
            base_b_of(hub.pool[g], self.dim)[:] += b[k]
            hub.pool[g, N] += n[k]
        coordinator = None if self.rules.fused else self.protocol.coordinator(hub, self.ridge, self.dim, self.noise)
        if isinstance(coordinator, StarCoordinator | SynchronousCoordinator) and self.noise is not None:
            for k, g in enumerate(label.tolist()):
                coordinator.noisy[g] = coordinator.noisy.get(g, 0.0) + V[k]
                if n[k] > 0:
                    coordinator.released.setdefault(g, {})[int(leaders[k])] = 1
            for g in range(n_groups):
                coordinator.settle(g)
        else:
            for g in range(n_groups):
                settle_pool(hub, g, self.dim, self.ridge, self.work.M)
        for r in leaders:
            if not has_room(hub):
                hub = make_room(hub)
            join(hub, int(r), True, self.rules.counting)
        self.rows[leaders] = self.rules.blank
        self.rows[leaders, N_OWN] = n
        if not self.law.fresh:
            self.shared[leaders] = self.rules.blank
        if coordinator is None:
            self._hub = hub
        else:
            coordinator.hub = hub
            self.coordinator = coordinator
            spoken = self.control_messages
            self.exchange = Exchange(
                self.system, self.coordinator, self.rules.thresholds, self.plan, self.dim, self.seed
            )
            self.exchange.control_messages = spoken
            self.exchange.outlets.streams.update(streams)
            self.opened = self.generation

    def _speak(self, r: int, out: Outcome, s: int) -> None:
        assert self.exchange is not None
        everyone = np.arange(self.own.shape[0])
        seats = Seats(everyone, everyone, np.array([everyone.size, 0]))
        self.exchange.speak(r, self.rows, seats, out, s)
        if not self.law.fresh:
            self.shared[r] = self.rows[r]

    @property
    def control_messages(self) -> int:
        """Messages that carried no statistics."""
        return 0 if self.exchange is None else self.exchange.control_messages

    def ledger(self) -> Ledger | None:
        """What privacy has cost, if there is a privacy part: of the streams that local clusters have now."""
        if not self.private:
            return None
        outlets = None if self.exchange is None else self.exchange.outlets
        streams, spent = ({}, set[int]()) if outlets is None else (outlets.streams, outlets.spent)
        return keep_books(streams, spent, int(self.rules.rewards.clipped[0]))

    @property
    def _models(self) -> Models:
        return Models(self.own, self.rows, self.groups, self.rules.blank, self.ridge, self.work.M)

    @property
    def clusters(self) -> Partitions:
        """Who was together, over time."""
        return self.partitions

    # -------------------------------------------------------------------------------------------------- checkpoints

    def state(self) -> State:
        """Statistics, clusters, hub, rewards under way, and what the exchange remembers."""
        arrays: dict[str, Any] = {
            "own": self.own,
            "rows": self.rows,
            "shared": self.shared,
            "global_of": self.global_of,
        }
        for name, part in (("late", self.late), ("groups", self.groups)):
            arrays |= {f"{name}.{k}": v for k, v in part._asdict().items()}
        arrays |= pack_hub(self.hub) | self.partitions.arrays()
        books = {"clipped": int(self.rules.rewards.clipped[0]), "generation": [self.generation, self.opened]}
        if self.exchange is None:
            return State(books, arrays)
        header, more = self.exchange.state()
        return State(header | books, arrays | more)

    def restore(self, state: State) -> None:
        """Go on from there."""
        arrays = state.arrays
        self.own, self.rows, self.shared = arrays["own"], arrays["rows"], arrays["shared"]
        self.global_of = arrays["global_of"]
        self.late = Late(*(arrays[f"late.{k}"] for k in Late._fields))
        self.groups = Groups(*(arrays[f"groups.{k}"] for k in Groups._fields))
        self.partitions = Partitions.from_arrays(arrays)
        like = self._empty_hub(arrays["hub.group_of"], len(arrays["hub.pool"]))
        self._use_hub(unpack_hub(like, arrays))
        self.rules.rewards.clipped[0] = state.header["clipped"]
        self.generation, self.opened = state.header["generation"]
        if self.exchange is not None:
            self.exchange.outlets.streams = self._streams(leaders_of(self.groups), self.opened)
            self.exchange.restore(state)
