"""Learning on a graph of users, all in one place: CoLin and GOBLin as published."""

from __future__ import annotations

import numpy as np
from scipy.linalg.blas import dsyrk

from fedbandit.engine.fast.choose import scratch
from fedbandit.engine.fast.delayed import Late, no_late
from fedbandit.engine.fast.graph_loop import FOLD, GraphRules, Kernel, empty_kernel, run_graph
from fedbandit.engine.fast.graph_noise import NoiseOnModel, graph_noise
from fedbandit.engine.fast.plan import plan_of
from fedbandit.engine.fast.rules import EVENT, REFUSED
from fedbandit.engine.fast.statistics import empty_rows
from fedbandit.engine.outcome import Outcome
from fedbandit.environments.block import Block, Environment
from fedbandit.policies import LinPHE
from fedbandit.privacy.reward_sums import SPREAD
from fedbandit.rewards import AS_THEY_ARE, refused, reward_plan
from fedbandit.state import State
from fedbandit.streams import policy_key
from fedbandit.structures import OnGraph
from fedbandit.system import System
from fedbandit.types import Array
from fedbandit.world import World

NEVER = 2**62


class GraphLearner:
    """One model of all users; the compiled loop, and Python for products of matrices and for noise."""

    control_messages = 0

    def __init__(
        self,
        system: System,
        env: Environment,
        world: World,
        seed: int,
    ) -> None:
        assert isinstance(system.structure, OnGraph)
        self.dim = env.dim
        M = system.structure.mixing(world)
        K = M @ M.T
        self.noise = graph_noise(system, M, world, seed)
        noisy, lifted = self.noise is not None, isinstance(self.noise, NoiseOnModel)
        self.kernel = empty_kernel(K, env.dim, system.ridge, noisy=noisy, lifted=lifted)
        self.plan = plan_of(system.policy, system.as_seen(world), system.ridge, policy_key(seed))
        self.rules = GraphRules(
            bias=system.structure.biases(world, system.ridge),
            start=np.diagonal(K) / system.ridge,
            whole=system.structure.whole,
            spread=SPREAD,
            effective=isinstance(system.policy, LinPHE),
            noisy=noisy,
            perturbed=system.privacy.reward_rule != AS_THEY_ARE,
            rewards=reward_plan(system.privacy.reward_rule, seed),
        )
        self.bench = empty_rows(1, env.dim)[0]
        self.column = np.zeros(world.n_clients * env.dim)
        self.late = no_late(min(env.longest_delay, world.horizon), env.dim)
        self.work = scratch(env.n_arms, env.dim)

    @property
    def clusters(self) -> None:
        """There are none."""
        return None

    def run(self, start: int, stop: int, before: int, block: Block, out: Outcome) -> int:
        """Run the compiled loop until it needs something, give it that, and say where to go on."""
        pause = run_graph(
            start,
            stop,
            before,
            block,
            self.kernel,
            self.bench,
            self.column,
            self.late,
            self.plan,
            self.rules,
            self.work,
            out,
        )
        if pause.status == FOLD:
            fold(self.kernel)
        elif pause.status == EVENT:
            assert self.noise is not None
            self.noise.observed(pause.seat, self.kernel)
        elif pause.status == REFUSED:
            raise refused(self.rules.rewards, float(out.reward[pause.at]))
        return pause.resume

    def ledger(self) -> None:
        """Nothing is booked."""

    def next_wake(self, done: int) -> int:  # noqa: ARG002
        """There is nothing to do between rounds."""
        return NEVER

    def end_round(self, done: int, out: Outcome, s: int) -> None:
        """Nothing."""

    def parameters(self) -> Array:
        """What arms are scored with: the estimates θ̃_u of all users (N, d), noise included."""
        theta = self.kernel.theta.copy()
        if self.kernel.shift.size:
            fold(self.kernel)
            P = np.tril(self.kernel.P)
            theta += (P + np.tril(P, -1).T) @ self.kernel.shift
            theta += self.kernel.lift if self.kernel.lift.size else 0.0
        return np.asarray(theta.reshape(-1, self.dim))

    def state(self) -> State:
        """The model, and rewards under way."""
        arrays = {f"kernel.{k}": v for k, v in self.kernel._asdict().items()}
        if self.noise is not None:
            arrays |= self.noise.state()
        return State({}, arrays | {f"late.{k}": v for k, v in self.late._asdict().items()})

    def restore(self, state: State) -> None:
        """Go on from there."""
        arrays = state.arrays
        self.kernel = Kernel(*(arrays[f"kernel.{k}"] for k in Kernel._fields))
        self.late = Late(*(arrays[f"late.{k}"] for k in Late._fields))
        if self.noise is not None:
            self.noise.restore(arrays)


def fold(kernel: Kernel) -> None:
    """P −= Σ c cᵀ, in place; BLAS sees the lower triangle of P as the upper one of its transpose."""
    m = int(kernel.kept[0])
    given = kernel.P.T
    result = dsyrk(-1.0, kernel.changes[:m].T, beta=1.0, c=given, overwrite_c=1)
    assert np.shares_memory(result, kernel.P), "BLAS copied P"
    kernel.kept[0] = 0
