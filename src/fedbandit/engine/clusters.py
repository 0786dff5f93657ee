"""Learning with clusters: users of a local cluster share a row, and clusters change while running."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedbandit.assembly import NEVER
from fedbandit.engine.cluster_loop import (
    LEAVES,
    MEETING,
    TORN,
    Groups,
    add_own,
    check_off,
    end_phase,
    mergeable,
    prune,
    run_clusters,
    sum_up,
)
from fedbandit.engine.exchange import Exchange
from fedbandit.engine.loop import EVENT, HUB_FULL, REFUSED, Late, Outcome, Rules, Seats, no_late
from fedbandit.engine.partitions import Partitions
from fedbandit.environments.block import Block, Environment, actions_per_round
from fedbandit.errors import FedbanditError
from fedbandit.memory import lazy_zeros
from fedbandit.policies import scratch
from fedbandit.protocols import Coordinator
from fedbandit.protocols.hub import Hub, empty_hub, has_room, join, make_room, pack_hub, settle_pool, unpack_hub
from fedbandit.rewards import AS_THEY_ARE, refused, reward_plan
from fedbandit.state import State
from fedbandit.statistics import (
    N_OWN,
    Array,
    Ints,
    N,
    b_of,
    base_of,
    empty_rows,
    grown,
    recompute,
    row_length,
    start_row,
    theta_of,
)
from fedbandit.streams import policy_key
from fedbandit.structures import Clustering, Rule
from fedbandit.structures.clustering import components
from fedbandit.structures.phased_clusters import merge_clusters, next_phase
from fedbandit.system import System
from fedbandit.world import World

ROOM = 4096
"""Cohorts there is room for at first: local clusters are few, but they may speak at every interaction."""

MOST_EDGES = 2**31
"""Pairs of users of one server, over all servers: a byte each."""


def groups_of(server_of: Ints, dim: int, *, graphs: bool) -> Groups:
    """One local cluster for each server, and complete graphs if graphs are needed."""
    n = server_of.size
    members = np.argsort(server_of, kind="stable")
    start = np.searchsorted(server_of[members], np.arange(server_of.max() + 2))
    sizes = np.diff(start)
    edges_at = np.concatenate([[0], np.cumsum(sizes**2)]) if graphs else np.zeros(sizes.size + 1, dtype=np.int64)
    if edges_at[-1] > MOST_EDGES:
        raise FedbanditError(
            f"The largest local server has {sizes.max():,} users, whose graph has too many edges; spread them over "
            "more servers, or use sclub, which keeps no graph."
        )
    place = np.empty(n, dtype=np.int64)
    place[members] = np.arange(n) - start[server_of[members]]
    size = np.zeros(n, dtype=np.int64)
    size[members[start[:-1]]] = sizes
    return Groups(
        row_of=members[start[server_of]],
        server_of=server_of,
        members=members,
        start=start,
        place=place,
        edges=np.ones(edges_at[-1], dtype=np.bool_),
        edges_at=edges_at,
        size=size,
        waiting=size.copy(),
        checked=np.zeros(n, dtype=np.bool_),
        served=np.zeros(sizes.size, dtype=np.int64),
        pivot=np.zeros((n, dim)),
        pivot_n=np.zeros(n),
        dropped=np.zeros(n, dtype=np.int64),
    )


class ClustersLearner:
    """Rows of local clusters, own statistics of users, and the coordinator's memory, one pool a global cluster.

    Local servers see the statistics of their users (`own`); what crosses to the coordinator are sums over a local
    cluster, in uploads (`hub`) and at the beginning of a phase (`end_round`).
    """

    def __init__(self, system: System, env: Environment, world: World, seed: int, *, fuse: bool = True) -> None:
        structure, protocol = system.structure, system.protocol
        assert isinstance(structure, Clustering)
        self.dim, self.ridge, self.protocol = env.dim, float(system.ridge), protocol
        self.law = structure.law()
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
            fused=fuse and protocol.fused,
            counting=protocol.counting,
            warm=True,
            joining_counts=True,
            blank=blank,
            batch=trigger.batch,
            fresh=True,
            perturbed=system.privacy.reward_rule != AS_THEY_ARE,
            rewards=reward_plan(system.privacy.reward_rule, seed),
            period=1,
            per_round=world.per_round,
        )
        self.system, self.seed = system, seed
        self.plan = system.policy.plan(system.as_seen(world), system.ridge, policy_key(seed))
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
            self._open_hub(self._leaders(), np.zeros(self._leaders().size, dtype=np.int64), 1)
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
                self._tear(int(self.groups.server_of[pause.seat]))
            else:
                self._rearrange_sets(pause.seat, leaving=pause.status == LEAVES)
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
            self._connect(server)
        leaders = self._leaders()
        V, b, n = self._sums(np.searchsorted(leaders, self.groups.row_of), leaders.size)
        label = merge_clusters(
            V, b, n, self.groups.server_of[leaders], self.ridge, self.law.merge, within=self.law.within
        )
        out.uploads[s] += leaders.size
        first = np.full(label.max() + 1, self.own.shape[0])
        np.minimum.at(first, label, leaders)
        global_of = first[label[np.searchsorted(leaders, self.groups.row_of)]]
        if np.array_equal(global_of, self.global_of) and np.array_equal(before, self.groups.row_of):
            return
        self.global_of = global_of
        self.partitions.record(done, global_of)
        self._renew(leaders, label, V, b, n)
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
        hub = empty_hub(self.dim, members, n_groups, group_of, self.protocol.log_gamma_download(), self.ridge)
        room = max(ROOM, hub.key.size)
        return hub._replace(cohorts=grown(hub.cohorts, room), key=grown(hub.key, room))

    def _open_hub(self, leaders: Ints, label: Ints, n_groups: int) -> None:
        """A new hub for these local clusters, and machines for it if the exchange is not compiled."""
        group_of = np.full(self.own.shape[0], -1)
        group_of[leaders] = label
        hub = self._empty_hub(group_of, n_groups)
        if self.rules.fused:
            self._hub = hub
        else:
            self.coordinator = self.protocol.coordinator(hub, self.ridge, self.dim)
            assert self.coordinator is not None
            spoken = self.control_messages
            self.exchange = Exchange(
                self.system, self.coordinator, self.rules.thresholds, self.plan, self.dim, self.seed
            )
            self.exchange.control_messages = spoken
        for r in leaders:
            self._join(int(r))

    def _join(self, r: int) -> None:
        if not has_room(self.hub):
            self._use_hub(make_room(self.hub))
        join(self.hub, r, True, self.rules.counting)

    def _renew(self, leaders: Ints, label: Ints, V: Array, b: Array, n: Array) -> None:
        """Every global cluster has the sum of its local ones, and each of these has all of it (Alg. 2 lines 10–18)."""
        n_groups = int(label.max()) + 1
        self.rows[leaders] = self.rules.blank
        self.rows[leaders, N_OWN] = n
        if not self.law.fresh:
            self.shared[leaders] = self.rules.blank
        self._open_hub(leaders[:0], label[:0], n_groups)
        hub = self.hub
        hub.group_of[leaders] = label
        for k, g in enumerate(label):
            pool = hub.pool[g]
            base_of(pool, self.dim)[:] += V[k]
            b_of(pool, self.dim)[:] += b[k]
            pool[N] += n[k]
        for g in range(n_groups):
            settle_pool(hub, g, self.dim, self.ridge, self.work.M)
        for r in leaders:
            self._join(int(r))

    def _speak(self, r: int, out: Outcome, s: int) -> None:
        assert self.exchange is not None
        everyone = np.arange(self.own.shape[0])
        seats = Seats(everyone[:0], everyone, everyone, np.array([everyone.size, 0]))
        self.exchange.speak(r, self.rows, seats, out, s)
        if not self.law.fresh:
            self.shared[r] = self.rows[r]

    @property
    def control_messages(self) -> int:
        """Messages that carried no statistics."""
        return 0 if self.exchange is None else self.exchange.control_messages

    # ----------------------------------------------------------------------------------------------------- clusters

    @property
    def clusters(self) -> Partitions:
        """Who was together, over time."""
        return self.partitions

    def _leaders(self) -> Ints:
        """The rows in use: the smallest user of each local cluster."""
        return np.flatnonzero(self.groups.row_of == np.arange(self.own.shape[0]))

    def _sums(self, into: Ints, count: int) -> tuple[Array, Array, Array]:
        V, b, n = np.zeros((count, self.dim, self.dim)), np.zeros((count, self.dim)), np.zeros(count)
        add_own(self.own, into, V, b, n)
        return V, b, n

    def _connect(self, server: int) -> Ints:
        """Make the connected components of a server's graph its local clusters; the rows that are new or smaller."""
        groups = self.groups
        users = groups.members[groups.start[server] : groups.start[server + 1]]
        edges = groups.edges[groups.edges_at[server] : groups.edges_at[server + 1]]
        label = components(edges.reshape(users.size, users.size))
        first = users[np.unique(label, return_index=True)[1]]
        row_of = first[label]
        touched = np.unique(row_of[np.isin(groups.row_of[users], groups.row_of[users[row_of != groups.row_of[users]]])])
        groups.row_of[users] = row_of
        groups.size[users] = 0
        groups.size[first] = np.bincount(label)
        return touched

    def _tear(self, server: int) -> None:
        """Edges of a server are gone: rows for what has come apart (CLUB)."""
        for r in self._connect(server):
            self._sum_up(int(r))

    def _sum_up(self, r: int) -> None:
        sum_up(r, self.own, self.rows, self.groups, self.rules.blank, self.ridge, self.work.M)

    def _rearrange_sets(self, i: int, *, leaving: bool) -> None:
        """User i has acted: it leaves its set if it must, then sets merge while they can (SCLUB, Alg. 1)."""
        groups, server = self.groups, int(self.groups.server_of[i])
        if leaving:
            self._part(i)
        check_off(i, groups)
        while mergeable(server, self.rows, groups, self.law, self.dim, self.pair):
            p, q = self.pair.tolist()
            groups.row_of[groups.row_of == q] = p
            groups.size[p] += groups.size[q]
            groups.size[q] = 0
            self._sum_up(p)
            self._take_pivot(p)
        end_phase(server, self.rows, groups, self.dim)

    def _part(self, i: int) -> None:
        """User i leaves its set; what remains keeps θ̃ and ñ, under another number if i was its smallest user."""
        groups, r = self.groups, int(self.groups.row_of[i])
        rest = np.flatnonzero(groups.row_of == r)
        rest = rest[rest != i]
        q = int(rest[0])
        groups.row_of[rest] = q
        groups.pivot[q], groups.pivot_n[q] = groups.pivot[r], groups.pivot_n[r]
        groups.size[r] = 0
        groups.row_of[i] = i
        for row, users in ((q, rest), (i, np.array([i]))):
            groups.size[row] = users.size
            groups.waiting[row] = users.size - groups.checked[users].sum()
            self._sum_up(row)
        self._take_pivot(i)

    def _take_pivot(self, r: int) -> None:
        self.groups.pivot[r] = theta_of(self.rows[r], self.dim)
        self.groups.pivot_n[r] = self.rows[r, N]

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
        if self.exchange is None:
            return State({}, arrays)
        header, more = self.exchange.state()
        return State(header, arrays | more)

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
        if self.exchange is not None:
            self.exchange.restore(state)
