"""Learning with clusters: users of a local cluster share a row, and clusters change while running."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fedbandit.engine.fast.choose import scratch
from fedbandit.engine.fast.cluster_loop import LEAVES, MEETING, TORN, run_clusters
from fedbandit.engine.fast.cohorts import Hub, empty_hub, has_room
from fedbandit.engine.fast.groups import ClusterRuleKind, Groups, cluster_rule_of, groups_of, prune
from fedbandit.engine.fast.housekeeping import dump_hub, load_hub, make_room
from fedbandit.engine.fast.hub import join, settle_pool
from fedbandit.engine.fast.memory import lazy_zeros
from fedbandit.engine.fast.persist import dump_late, dump_rows, load_late, load_rows
from fedbandit.engine.fast.plan import plan_of
from fedbandit.engine.fast.regrouping import Models, connect, leaders_of, local_sums, rearrange_sets, tear
from fedbandit.engine.fast.rewards import no_late
from fedbandit.engine.fast.row import N_OWN, N, base_b_of, empty_rows, row_length, start_row
from fedbandit.engine.fast.rules import HUB_FULL, REFUSED, LoopRules, batch_of, kind_of, log_gamma_download
from fedbandit.engine.fast.statistics import add_to_base, recompute
from fedbandit.engine.learner import Outcome
from fedbandit.engine.ledger import Ledger, keep_books
from fedbandit.engine.partitions import Partitions
from fedbandit.environments.block import Block, Environment, actions_per_round
from fedbandit.machines.phases import refuse_thresholds_by_client
from fedbandit.rewards import AS_THEY_ARE, refused, reward_plan
from fedbandit.sharing import NEVER
from fedbandit.state import State, stored
from fedbandit.streams import policy_key
from fedbandit.structures import Clustering
from fedbandit.structures.phased_clusters import merge_clusters, next_phase
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

    services: ClassVar[None] = None
    by_client: ClassVar[None] = None

    def __init__(self, system: System, env: Environment, world: World, seed: int) -> None:
        structure, protocol = system.structure, system.protocol
        assert isinstance(structure, Clustering)
        self.dim, self.ridge, self.protocol = env.dim, float(system.ridge), protocol
        self.clustering = cluster_rule_of(structure)
        self.interactions, self.per_round = world.horizon, actions_per_round(env)
        trigger = protocol.trigger()
        refuse_thresholds_by_client(protocol)
        blank = empty_rows(1, env.dim)[0]
        start_row(blank, env.dim, self.ridge)
        self.rules = LoopRules(
            kind=int(kind_of(trigger)),
            thresholds=np.resize(trigger.thresholds, world.n_clients),
            ridge=self.ridge,
            speaks=protocol.says != "nothing",
            fused=True,
            calls=False,
            counting=protocol.counting,
            warm=True,
            joining_counts=True,
            blank=blank,
            batch=batch_of(trigger),
            fresh=True,
            perturbed=system.privacy.reward_rule != AS_THEY_ARE,
            rewards=reward_plan(system.privacy.reward_rule, seed),
        )
        self.private = system.guarantee.basis != "none"
        self.plan = plan_of(system.policy, system.as_seen(world), system.ridge, policy_key(seed))
        server_of = structure.servers(world)
        graphs = self.clustering.kind in (ClusterRuleKind.PHASES, ClusterRuleKind.PRUNING)
        self.groups = groups_of(server_of, env.dim, graphs=graphs)
        n = world.n_clients
        self.own, self.rows = (lazy_zeros((n, row_length(env.dim))) for _ in range(2))
        self.own[:] = blank
        self.rows[:] = blank
        self.shared = self.rows[:0] if self.clustering.fresh else self.rows.copy()
        self.global_of = np.zeros(n, dtype=np.int64) if structure.federated else self.groups.row_of.copy()
        self.late = no_late(min(env.longest_delay, world.horizon), env.dim)
        self.work = scratch(env.n_arms, env.dim)
        self.pair = np.zeros(2, dtype=np.int64)
        self.hub = self._empty_hub(np.zeros(n, dtype=np.int64), 1)
        if self.rules.speaks:
            leaders = leaders_of(self.groups)
            sums = local_sums(self._models, leaders)
            self._open_hub(leaders, np.zeros(leaders.size, dtype=np.int64), *sums)
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
            self.clustering,
            self.work,
            self.pair,
            out,
        )
        if pause.status == REFUSED:
            raise refused(self.rules.rewards, float(out.reward[pause.at]))
        if pause.status == HUB_FULL:
            self.hub = make_room(self.hub)
        elif pause.status in (TORN, LEAVES, MEETING):
            if pause.status == TORN:
                tear(self._models, int(self.groups.server_of[pause.slot]))
            else:
                rearrange_sets(self._models, self.clustering, pause.slot, leaving=pause.status == LEAVES)
            self._note((before + pause.at) // self.per_round + 1, self.groups.row_of.copy())
        return pause.resume

    def _note(self, done: int, global_of: Ints) -> None:
        """Who is together after `done` rounds; often it is who was, for a user who left a set may come back at once."""
        if not np.array_equal(global_of, self.global_of):
            self.partitions.record(done, global_of)
        self.global_of = global_of

    def next_wake(self, done: int) -> int:
        """The beginning of the next phase."""
        return next_phase(done) if self.clustering.kind == ClusterRuleKind.PHASES else NEVER

    def end_round(self, done: int, out: Outcome, s: int) -> None:
        """A phase begins: find local clusters, upload and merge them, renew if anything is new (FCLUB, Alg. 2)."""
        if done * self.per_round >= self.interactions:
            return
        for row in self.own:
            recompute(row, self.dim, self.ridge, self.work.M)
        for i in range(self.own.shape[0]):
            prune(i, self.own, self.groups, self.clustering.split, self.dim)
        before = self.groups.row_of.copy()
        for server in range(self.groups.served.size):
            connect(self.groups, server)
        leaders = leaders_of(self.groups)
        V, b, n = local_sums(self._models, leaders)
        label = merge_clusters(
            V, b, n, self.groups.server_of[leaders], self.ridge, self.clustering.merge, within=self.clustering.within
        )
        out.uploads[s] += leaders.size
        first = np.full(label.max() + 1, self.own.shape[0])
        np.minimum.at(first, label, leaders)
        global_of = first[label[np.searchsorted(leaders, self.groups.row_of)]]
        if np.array_equal(global_of, self.global_of) and np.array_equal(before, self.groups.row_of):
            return
        self._note(done, global_of)
        self._open_hub(leaders, label, V, b, n)
        out.downloads[s] += leaders.size

    # ------------------------------------------------------------------------------------------------- coordination

    def _empty_hub(self, group_of: Ints, n_groups: int) -> Hub:
        members = self.own.shape[0] if self.rules.speaks else 1
        log_gamma = log_gamma_download(self.protocol)
        return empty_hub(self.dim, members, n_groups, group_of, log_gamma, self.ridge, room=ROOM)

    def _open_hub(self, leaders: Ints, label: Ints, V: Array, b: Array, n: Array) -> None:
        """A new hub: each global cluster has the sum of its local ones, and each of these has all of it.

        FCLUB, Alg. 2 lines 10–18, and with nothing observed yet Alg. 1 lines 3–4.
        """
        n_groups = int(label.max()) + 1
        group_of = np.full(self.own.shape[0], -1)
        group_of[leaders] = label
        hub = self._empty_hub(group_of, n_groups)
        for k, g in enumerate(label):
            add_to_base(hub.pool[g], self.dim, V[k])
            base_b_of(hub.pool[g], self.dim)[:] += b[k]
            hub.pool[g, N] += n[k]
        for g in range(n_groups):
            settle_pool(hub, g, self.dim, self.ridge, self.work.M)
        for r in leaders:
            if not has_room(hub):
                hub = make_room(hub)
            join(hub, int(r), True, self.rules.counting)
        self.rows[leaders] = self.rules.blank
        self.rows[leaders, N_OWN] = n
        if not self.clustering.fresh:
            self.shared[leaders] = self.rules.blank
        self.hub = hub

    control_messages = 0

    def ledger(self) -> Ledger | None:
        """Rewards clipped, if there is a privacy part."""
        if not self.private:
            return None
        return keep_books({}, (), int(self.rules.rewards.clipped[0]))

    @property
    def _models(self) -> Models:
        return Models(self.own, self.rows, self.groups, self.rules.blank, self.ridge, self.work.M)

    @property
    def clusters(self) -> Partitions:
        """Who was together, over time."""
        return self.partitions

    # -------------------------------------------------------------------------------------------------- checkpoints

    def state(self) -> State:
        """Statistics of users, clusters and hub, who is where, and rewards under way."""
        arrays: dict[str, Any] = {f"groups.{k}": np.asarray(v) for k, v in self.groups._asdict().items()}
        arrays |= {k: v.astype(np.uint8) for k, v in arrays.items() if v.dtype == np.bool_}
        for name in ("own", "rows", "shared"):
            arrays |= dump_rows(getattr(self, name), self.dim, name)
        arrays |= dump_late(self.late) | dump_hub(self.hub, self.dim) | self.partitions.arrays()
        header = {"clipped": int(self.rules.rewards.clipped[0]), "n_groups": len(self.hub.pool)}
        return State(header, arrays | {"global_of": self.global_of, "group_of": self.hub.group_of})

    def restore(self, state: State) -> None:
        """Go on from there."""
        header, arrays = state
        for name in ("own", "rows", "shared"):
            load_rows(getattr(self, name), self.dim, name, state, self.ridge)
        self.global_of = stored(state, "global_of", self.global_of.shape)
        load_late(self.late, state)
        kept = {k: stored(state, f"groups.{k}", v.shape).astype(v.dtype) for k, v in self.groups._asdict().items()}
        self.groups = Groups(**kept)
        fresh = self._empty_hub(stored(state, "group_of", self.hub.group_of.shape), header["n_groups"])
        self.hub = load_hub(fresh, self.dim, state, self.ridge)
        self.rules.rewards.clipped[0] = header["clipped"]
        self.partitions = Partitions.from_arrays(arrays)
