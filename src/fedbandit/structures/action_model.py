"""A model with one θ for each action, as most bandit libraries have it: A small ridge regressions side by side.

    E y = θ_aᵀ x          for action a of 0, …, A − 1 and features x of length f

An arm is a row (a, x): the number of its action, then its features. The regression on vectors of length A·f that are
zero but for block a has the block-diagonal matrix V = diag(V_0, …, V_{A−1}), so all that is ever needed are A matrices
of f × f:

    V_a = Σ x xᵀ,   b_a = Σ x y     over the observations of action a,      θ̂_a = V_a(λ)⁻¹ b_a
    log det V(λ)/det λI = Σ_a log det V_a(λ)/det λI

An observation changes one block (a rank-one update, O(f²)); a choice reads the blocks of the arms that are offered, all
at once; what is uploaded are the blocks that were observed since (`BlockSums`).

Reference: Li, Chu, Langford & Schapire, A Contextual-Bandit Approach to Personalized News Article Recommendation, 2010,
Alg. 1 (LinUCB with disjoint linear models).

Deviations:
    D1. Where the width is not fixed (`alpha`) it is that of each action's own block, with δ/A in place of δ, so that it
        holds for all actions at once (policies divide their `confidence` by A).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedbandit.errors import FedbanditError
from fedbandit.model import REFRESH_EVERY, LinearModel, Part
from fedbandit.state import State, Varying, require_like
from fedbandit.sums import EXACT, BlockSums, Form, Slack, Sums, in_blocks
from fedbandit.types import Array, Ints


class ActionModel:
    """V_a, b_a, inverse, θ̂_a and log-determinant of each action; what is shared, and what is pending of a few.

    >>> model = ActionModel(3, 2, ridge=1.0)
    >>> model.observe(np.array([1, 1.0, 0.0]), 1.0)
    >>> model.means(np.array([[0, 1.0, 0.0], [1, 1.0, 0.0]])).tolist(), model.pending().actions.tolist()
    ([0.0, 0.5], [1])
    """

    silent = False

    def __init__(self, actions: int, dim: int, ridge: float) -> None:
        self.form = Form(dim, actions)
        self.ridge = ridge
        self.inverse: Array = np.tile(np.eye(dim) / ridge, (actions, 1, 1))
        self.theta: Array = np.zeros((actions, dim))
        self.logdets: Array = np.zeros(actions)
        self.shared_logdet = 0.0
        self.n = self.n_own = self.n_pending = 0
        self.version = 0
        self._shared_V: Array = np.zeros((actions, dim, dim))
        self._shared_b: Array = np.zeros((actions, dim))
        self._owned = True  # whether nobody else holds these two, so that they may be written to
        self._pending: dict[int, tuple[Array, Array]] = {}  # action → V, b
        self._updates: Ints = np.zeros(actions, dtype=np.int64)
        self._all = np.arange(actions)

    # What a policy asks

    def parts(self, contexts: Array) -> Sequence[tuple[Part, Array]]:
        """One for each action that is offered, in the order of their first arms; contexts of other actions are zero."""
        given, X = contexts[:, :1], contexts[:, 1:]
        actions = dict.fromkeys(given[:, 0].astype(np.int64).tolist())
        return [(ActionPart(self, a), np.where(given == a, X, 0.0)) for a in actions]

    def stacks(self, contexts: Array) -> Sequence[tuple[Part, Array]]:
        """The blocks of these arms in one part."""
        return ((self._offered(contexts), contexts[:, 1:]),)

    def means(self, contexts: Array) -> Array:
        """xᵀθ̂_a of each arm."""
        return self._offered(contexts).means(contexts[:, 1:])

    def _offered(self, contexts: Array) -> OfferedActions:
        actions = contexts[:, 0].astype(np.int64)
        every = actions.size == self._all.size and bool((actions == self._all).all())
        return OfferedActions(self, slice(None) if every else actions)  # a slice: nothing is copied

    @property
    def logdet(self) -> float:
        """log det V(λ)/det λI of all blocks."""
        return float(self.logdets.sum())

    # What a client does with it

    def observe(self, x: Array, y: float) -> None:
        """Add the observation of action x[0] with features x[1:]; one block changes."""
        a, x = int(x[0]), x[1:]
        if a not in self._pending:
            self._pending[a] = np.zeros((x.size, x.size)), np.zeros(x.size)
        V, b = self._pending[a]
        V += np.multiply.outer(x, x)
        b += y * x
        self.n += 1
        self.n_own += 1
        self.n_pending += 1
        u = self.inverse[a] @ x
        growth = 1.0 + float(x @ u)
        self.theta[a] += ((y - float(x @ self.theta[a])) / growth) * u
        self.inverse[a] -= np.multiply.outer(u, u / growth)
        self.logdets[a] += math.log(growth)
        self._updates[a] += 1
        if self._updates[a] >= REFRESH_EVERY:
            self._recompute(np.array([a]))

    def observe_sums(self, sums: Sums) -> None:
        """Add many observations of its own at once."""
        blocks = in_blocks(sums)
        for a, V, b in zip(blocks.actions.tolist(), blocks.V, blocks.b, strict=True):
            before_V, before_b = self._pending.get(a, (0.0, 0.0))
            self._pending[a] = before_V + V, before_b + b
        self.n += sums.n
        self.n_own += sums.n
        self.n_pending += sums.n
        self._recompute(blocks.actions)

    def forget(self, factor: float) -> None:
        """Let all observations count so many times what they did; all blocks change."""
        if self.n == 0:
            return
        self._shared_V, self._shared_b, self._owned = factor * self._shared_V, factor * self._shared_b, True
        pending, self._pending = {a: (factor * V, factor * b) for a, (V, b) in self._pending.items()}, {}
        self._recompute(self._all)
        self.shared_logdet = self.logdet
        self._pending = pending
        self._recompute(np.array(sorted(pending), dtype=np.int64))

    def pending(self) -> BlockSums:
        """A copy of the blocks that have been observed and not uploaded."""
        actions, dim = sorted(self._pending), self.form.dim
        V = np.array([self._pending[a][0] for a in actions]).reshape(-1, dim, dim)
        b = np.array([self._pending[a][1] for a in actions]).reshape(-1, dim)
        return BlockSums(V, b, self.n_pending, np.array(actions, dtype=np.int64))

    def V_of(self, actions: Ints) -> Array:
        """Σ x xᵀ of these actions."""
        V = self._shared_V[actions]
        for i, a in enumerate(actions.tolist()):
            if a in self._pending:
                V[i] += self._pending[a][0]
        return V

    def in_common(self) -> Sums:
        """What coordinator and model have in common."""
        self._owned = False
        return Sums(self._shared_V, self._shared_b, self.n - self.n_pending)

    def mark_sent(self) -> None:
        """What was pending is now in common with the coordinator. The model itself does not change."""
        if self._pending and not self._owned:
            self._shared_V, self._shared_b, self._owned = self._shared_V.copy(), self._shared_b.copy(), True
        for a, (V, b) in self._pending.items():
            self._shared_V[a] += V
            self._shared_b[a] += b
        self.shared_logdet = self.logdet
        self._pending = {}
        self.n_pending = 0

    def adopt(self, sums: Sums, slack: Slack = EXACT, version: int = 0) -> None:
        """Replace what is in common with the coordinator, and put pending observations back on top.

        Blocks that are as they were keep their inverses: a download after few uploads costs few of them.
        """
        if slack != EXACT:
            raise FedbanditError("A model with one θ for each action takes exact statistics only.")
        differs = (self._shared_b != sums.b).any(axis=1) | (self._shared_V != sums.V).any(axis=(1, 2))
        self._shared_V, self._shared_b, self._owned, self.version = sums.V, sums.b, False, version
        self.n = sums.n + self.n_pending
        pending, self._pending = self._pending, {}
        self._recompute(np.flatnonzero(differs | np.isin(self._all, list(pending))))
        self.shared_logdet = self.logdet
        self._pending = pending
        if pending:
            self._recompute(np.array(sorted(pending)))

    def _recompute(self, actions: Ints) -> None:
        """The ridge regressions of these actions, afresh."""
        if actions.size == 0:
            return
        V, b = self.V_of(actions), self._shared_b[actions]
        for i, a in enumerate(actions.tolist()):
            if a in self._pending:
                b[i] += self._pending[a][1]
        V[:, range(self.form.dim), range(self.form.dim)] += self.ridge
        sign, logdets = np.linalg.slogdet(V)
        if not (sign > 0).all():
            raise FedbanditError("A matrix of statistics is not positive definite, even with its ridge.")
        inverse = np.linalg.inv(V)
        inverse = (inverse + inverse.transpose(0, 2, 1)) / 2  # symmetric to the last bit: rank-one updates keep it so
        self.inverse[actions] = inverse
        self.theta[actions] = (inverse @ b[:, :, None])[:, :, 0]
        self.logdets[actions] = logdets - self.form.dim * math.log(self.ridge)
        self._updates[actions] = 0

    # How it is kept

    def dump(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Numbers and arrays from which `load` makes the same model, to rounding."""
        numbers = {name: getattr(self, name) for name in ("n", "n_own", "n_pending", "version", "shared_logdet")}
        pending = self.pending()
        arrays = {"pending_actions": pending.actions.astype(np.float64), "pending_V": pending.V, "pending_b": pending.b}
        return numbers, {"V": self._shared_V.copy(), "b": self._shared_b.copy(), **arrays}

    def varying(self) -> Varying:
        """Of these arrays, those whose shape depends on how many actions are pending."""
        f = self.form.dim
        shapes = {"pending_actions": ("p",), "pending_V": ("p", f, f), "pending_b": ("p", f)}
        return {name: (np.float64, shape) for name, shape in shapes.items()}

    def load(self, numbers: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Go on from what `dump` gave."""
        require_like(State({}, dict(arrays)), State({}, self.dump()[1]), self.varying())
        self.n, self.n_own, self.n_pending = (int(numbers[name]) for name in ("n", "n_own", "n_pending"))
        self._shared_V, self._shared_b, self._owned = arrays["V"].copy(), arrays["b"].copy(), True
        pending = zip(arrays["pending_actions"], arrays["pending_V"], arrays["pending_b"], strict=True)
        self._pending = {int(a): (V.copy(), b.copy()) for a, V, b in pending}
        self._recompute(self._all)
        self.version, self.shared_logdet = int(numbers["version"]), float(numbers["shared_logdet"])


class ActionPart(LinearModel):
    """The regression of one action."""

    def __init__(self, model: ActionModel, a: int) -> None:
        self._model, self._action = model, a
        self.ridge, self.slack, self.partial_noise = model.ridge, EXACT, 0.0
        self.theta, self.inverse, self.logdet = model.theta[a], model.inverse[a], float(model.logdets[a])

    @property
    def V(self) -> Array:
        """Σ x xᵀ of the action."""
        return self._model.V_of(np.array([self._action]))[0]


class OfferedActions:
    """The blocks of the arms of one decision as one part: V, inverse, θ̂ and logdet are stacked, one for each arm."""

    def __init__(self, model: ActionModel, actions: Ints | slice) -> None:
        self._model, self._actions = model, actions
        self.ridge, self.slack, self.partial_noise = model.ridge, EXACT, 0.0
        self.theta, self.inverse = model.theta[actions], model.inverse[actions]
        self.logdet = model.logdets[actions]

    @property
    def groups(self) -> list[Ints]:
        """The arms of each action, in the order of their first arms."""
        if isinstance(self._actions, slice):
            return list(np.arange(len(self.theta))[:, None])
        arms: dict[int, list[int]] = {}
        for k, a in enumerate(self._actions.tolist()):
            arms.setdefault(a, []).append(k)
        return [np.array(rows) for rows in arms.values()]

    @property
    def V(self) -> Array:
        """Σ x xᵀ of the action of each arm."""
        return self._model.V_of(np.arange(len(self._model.theta))[self._actions])

    def means(self, X: Array) -> Array:
        """xᵀθ̂_a of each arm."""
        return np.asarray((X * self.theta).sum(axis=1))

    def norms(self, X: Array) -> Array:
        """‖x‖_{V_a(λ)⁻¹} of each arm."""
        squares: Array = (self._solved(X) * X).sum(axis=1)
        return np.sqrt(np.maximum(squares, 0.0, out=squares))

    def lengths(self, X: Array) -> Array:
        """‖V_a(λ)⁻¹ x‖₂ of each arm."""
        return np.asarray(np.linalg.norm(self._solved(X), axis=1))

    def _solved(self, X: Array) -> Array:
        return np.asarray((self.inverse @ X[:, :, None])[:, :, 0])
