"""Learning with neighbourhoods: each user's own statistics, and a graph of who is like whom."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.engine.fast.algebra import add, add_outer, clear, matrix_in
from fedbandit.engine.fast.choose import Scratch, choose, scratch
from fedbandit.engine.fast.delayed import Late, no_late, send_later
from fedbandit.engine.fast.homogeneity import compare, summarise
from fedbandit.engine.fast.jit import compiled_free, compiled_lean
from fedbandit.engine.fast.outcome import pull
from fedbandit.engine.fast.packed import pack
from fedbandit.engine.fast.persist import checked, dump_late, load_late
from fedbandit.engine.fast.plan import PolicyPlan, plan_of
from fedbandit.engine.fast.rewards import learnt
from fedbandit.engine.fast.statistics import STEPS, TIE, N, base_b_of, base_of, empty_rows, refresh, start_row
from fedbandit.engine.outcome import Outcome
from fedbandit.engine.partitions import Partitions
from fedbandit.environments.block import Block, Environment
from fedbandit.rewards import AS_THEY_ARE, RewardPlan, refused, reward_plan
from fedbandit.sharing import NEVER
from fedbandit.state import State
from fedbandit.streams import policy_key
from fedbandit.structures import Neighbourhoods
from fedbandit.structures.cliques import cliques
from fedbandit.structures.homogeneity import LEAST_NOISE
from fedbandit.system import System
from fedbandit.types import Array, Ints
from fedbandit.world import World


class Users(NamedTuple):
    """What is known of every user, and of pairs."""

    V: Array  # (N, d, d)
    b: Array  # (N, d)
    n: Ints
    steps: Ints  # arms chosen
    tested: Ints  # observations at the last test
    form: Array  # bᵀV⁻b
    rank: Ints
    formed: Ints  # the observations in form and rank
    near: NDArray[np.bool_]  # (N, N)


KEPT = ("V", "b", "n", "steps", "tested")
"""What a state holds of users, beside who is near whom."""


class NeighbourhoodRules(NamedTuple):
    """The structure as the loop sees it."""

    thresholds: Array  # of s σ², by degrees of freedom
    retest: float
    ridge: float
    perturbed: bool
    rewards: RewardPlan


class Tests(NamedTuple):
    """Memory for tests."""

    everyone: Ints
    s: Array
    df: Ints
    M: Array
    column: Array


class NeighbourhoodsLearner:
    """All users' statistics in one place; the compiled loop."""

    control_messages = 0

    def __init__(self, system: System, env: Environment, world: World, seed: int) -> None:
        self.dim = env.dim
        structure = system.structure
        assert isinstance(structure, Neighbourhoods)
        n, d, seen = world.n_clients, world.dim, system.as_seen(world)
        sigma = max(seen.noise if structure.noise is None else structure.noise, LEAST_NOISE)
        self.rules = NeighbourhoodRules(
            thresholds=structure.thresholds(world) * sigma**2,
            retest=float(structure.retest),
            ridge=float(system.ridge),
            perturbed=system.privacy.reward_rule != AS_THEY_ARE,
            rewards=reward_plan(system.privacy.reward_rule, seed),
        )
        self.plan = plan_of(system.policy, seen, system.ridge, policy_key(seed))
        zeros = np.zeros(n, dtype=np.int64)
        self.users = Users(
            V=np.zeros((n, d, d)),
            b=np.zeros((n, d)),
            n=zeros,
            steps=zeros.copy(),
            tested=zeros.copy(),
            form=np.zeros(n),
            rank=zeros.copy(),
            formed=zeros.copy(),
            near=np.ones((n, n), dtype=np.bool_),
        )
        self.row = empty_rows(1, d)[0]
        start_row(self.row, d, system.ridge)
        self.tests = Tests(np.arange(n), np.zeros(n), zeros.copy(), np.zeros((d + 1, d)), np.zeros(d + 1))
        self.late = no_late(min(env.longest_delay, world.horizon), d)
        self.work = scratch(env.n_arms, d)
        self.per_round, self.done = world.per_round, 0

    @property
    def clusters(self) -> Partitions:
        """The maximal cliques of the graph at the end."""
        found = Partitions()
        found.record_clusters(self.done, cliques(self.users.near))
        return found

    def run(self, start: int, stop: int, before: int, block: Block, out: Outcome) -> int:
        """All interactions: nothing here needs Python."""
        bad = run(
            start, stop, before, block, self.users, self.late, self.plan, self.rules, self.row, self.tests,
            self.work, out,
        )  # fmt: skip
        if bad >= 0:
            raise refused(self.rules.rewards, float(out.reward[bad]))
        self.done = (before + stop) // self.per_round
        return stop

    def ledger(self) -> None:
        """Nothing is booked."""

    def next_wake(self, done: int) -> int:  # noqa: ARG002
        """Nothing happens between rounds."""
        return NEVER

    def end_round(self, done: int, out: Outcome, s: int) -> None:
        """Nothing."""

    def state(self) -> State:
        """Users' statistics, who is near whom, and rewards under way."""
        kept = {f"users.{name}": getattr(self.users, name) for name in KEPT}
        header = {"done": self.done, "clipped": int(self.rules.rewards.clipped[0])}
        return State(header, {**kept, "users.near": self.users.near.astype(np.uint8), **dump_late(self.late)})

    def restore(self, state: State) -> None:
        """Go on from there."""
        header, arrays = state
        self.done, self.rules.rewards.clipped[0] = header["done"], header["clipped"]
        for name in (*KEPT, "near"):
            now = getattr(self.users, name)
            now[:] = checked(arrays, f"users.{name}", now.shape)
        self.users.formed[:] = -1
        load_late(self.late, arrays)


@compiled_lean
def gather(i: int, users: Users, row: Array, d: int, ridge: float, M: Array) -> None:
    """Make `row` the model of user i: the sum over its neighbourhood."""
    V, b = matrix_in(M, 0, d), base_b_of(row, d)
    clear(b)
    for k in range(d):
        clear(V[k])
    row[N] = 0
    for j in range(users.n.shape[0]):
        if users.near[i, j] and users.n[j] > 0:
            for k in range(d):
                add(users.V[j, k], V[k])
            add(users.b[j], b)
            row[N] += users.n[j]
    pack(V, base_of(row, d))
    row[STEPS] = users.steps[i]
    refresh(row, d, ridge, M)


@compiled_lean
def test(i: int, users: Users, rules: NeighbourhoodRules, tests: Tests) -> None:
    """Who is like user i now?"""
    for j in range(users.n.shape[0]):
        if users.formed[j] != users.n[j]:
            summarise(j, users.V, users.b, users.form, users.rank, tests.M, tests.column)
            users.formed[j] = users.n[j]
    compare(
        i, tests.everyone, users.V, users.b, users.form, users.rank, tests.s, tests.df, tests.M, tests.column
    )  # fmt: skip
    for j in range(users.n.shape[0]):
        near = j == i or tests.s[j] <= rules.thresholds[tests.df[j]] + TIE * (1.0 + users.form[i])
        users.near[i, j] = near
        users.near[j, i] = near
    users.tested[i] = users.n[i]


@compiled_free
def run(
    start: int,
    stop: int,
    before: int,
    block: Block,
    users: Users,
    late: Late,
    plan: PolicyPlan,
    rules: NeighbourhoodRules,
    row: Array,
    tests: Tests,
    work: Scratch,
    out: Outcome,
) -> int:
    """Interactions start, …, stop − 1; returns −1, or the interaction whose reward is outside its range."""
    ring = late.first.shape[0]
    delayed = block.delays.shape[0] > 0
    d = block.X.shape[1]
    s = start
    while s < stop:
        now = before + s
        entry = late.first[now % ring] if delayed else -1
        if entry < 0:
            i = block.clients[s]
            gather(i, users, row, d, rules.ridge, work.M)
            offered = block.arms[s, : block.counts[s]]
            a = choose(plan, row, i, block.X, offered, work)
            users.steps[i] += 1
            x = block.X[offered[a]]
            y = pull(block, s, a, out)
            s += 1
            if delayed and block.delays[s - 1] > 0:
                send_later(late, now, block.delays[s - 1], i, x, y)
                continue
        else:
            late.first[now % ring] = late.following[entry]
            i = late.row[entry]
            x = late.x[entry]
            y = late.y[entry]
        if rules.perturbed:
            y = learnt(rules.rewards, y, i, int(users.n[i]))
            if math.isnan(y):
                return s - 1 if entry < 0 else s
        add_outer(users.V[i], x, 1.0)
        for k in range(d):
            users.b[i, k] += x[k] * y
        users.n[i] += 1
        if users.n[i] >= rules.retest * users.tested[i] - TIE:
            test(i, users, rules, tests)
    return -1
