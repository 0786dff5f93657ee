"""Learning on a graph of users, all in one place: CoLin and GOBLin as published."""

from __future__ import annotations

import numpy as np
from scipy.linalg.blas import dsyrk

from fedbandit.engine.fast.choose import scratch
from fedbandit.engine.fast.delayed import no_late
from fedbandit.engine.fast.graph_loop import FOLD, GraphRules, Kernel, empty_kernel, run_graph
from fedbandit.engine.fast.persist import checked, dump_late, load_late
from fedbandit.engine.fast.plan import plan_of
from fedbandit.engine.fast.rules import EVENT, REFUSED
from fedbandit.engine.fast.statistics import empty_rows
from fedbandit.engine.ledger import Ledger, keep_books
from fedbandit.engine.outcome import Outcome
from fedbandit.environments.block import Block, Environment
from fedbandit.machines.graph_noise import NoiseOnModel, graph_noise
from fedbandit.policies import LinPHE
from fedbandit.privacy.reward_sums import SPREAD
from fedbandit.rewards import AS_THEY_ARE, refused, reward_plan
from fedbandit.sharing import NEVER
from fedbandit.state import State, joined, parts_of
from fedbandit.streams import policy_key
from fedbandit.structures import OnGraph
from fedbandit.structures.graph_model import kernel_of
from fedbandit.system import System
from fedbandit.types import Array
from fedbandit.world import World


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
        self.private = system.guarantee.basis != "none"
        M = system.structure.mixing(world)
        K = M @ M.T
        self.mixed, self.ridge = K, float(system.ridge)
        self.noise = graph_noise(system, world, seed)
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
            self._draw_noise(pause.seat)
        elif pause.status == REFUSED:
            raise refused(self.rules.rewards, float(out.reward[pause.at]))
        return pause.resume

    def _draw_noise(self, u: int) -> None:
        """User u has one more observation: new noise."""
        assert self.noise is not None
        self.noise.observed(u, self.kernel.V)
        self._show_noise()

    def _show_noise(self) -> None:
        """Write down the noise where the loop reads it."""
        kernel, noise = self.kernel, self.noise
        assert noise is not None
        kernel.shift[:] = noise.shift
        if isinstance(noise, NoiseOnModel):
            kernel.lift[:] = noise.lift
            kernel.wider[0] = noise.published.wider(noise.observations)
        else:
            kernel.variance[:] = noise.known.deviations(noise.observations) ** 2

    @property
    def logdet(self) -> float:
        """log det A/det λI."""
        return float(self.kernel.logdet[0])

    def ledger(self) -> Ledger | None:
        """Rewards clipped, if there is a privacy part."""
        return keep_books({}, (), int(self.rules.rewards.clipped[0])) if self.private else None

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
        """Statistics of all users, noise, and rewards under way: everything else follows."""
        kernel = self.kernel
        arrays = {"V": kernel.V, "s": kernel.s, "n": kernel.own, "steps": kernel.steps, **dump_late(self.late)}
        parts = {"users": State({"clipped": int(self.rules.rewards.clipped[0])}, arrays)}
        return joined({}, parts if self.noise is None else {**parts, "noise": self.noise.state()})

    def restore(self, state: State) -> None:
        """Go on from there."""
        parts, kernel = parts_of(state), self.kernel
        header, arrays = parts["users"]
        for name, array in (("V", kernel.V), ("s", kernel.s), ("n", kernel.own), ("steps", kernel.steps)):
            array[:] = checked(arrays, name, array.shape)
        kernel.P[:], kernel.logdet[0] = kernel_of(self.mixed, kernel.V, self.ridge)
        kernel.theta[:], kernel.kept[0] = kernel.P @ kernel.s.reshape(-1), 0
        self.rules.rewards.clipped[0] = header["clipped"]
        load_late(self.late, arrays)
        if self.noise is not None:
            self.noise.restore(parts["noise"])
            self._show_noise()


def fold(kernel: Kernel) -> None:
    """P −= Σ c cᵀ, in place; BLAS sees the lower triangle of P as the upper one of its transpose."""
    m = int(kernel.kept[0])
    given = kernel.P.T
    result = dsyrk(-1.0, kernel.changes[:m].T, beta=1.0, c=given, overwrite_c=1)
    assert np.shares_memory(result, kernel.P), "BLAS copied P"
    kernel.kept[0] = 0
