"""What is learnt: ridge regression on sufficient statistics, in plain NumPy.

A model of n observations (x, y) with regulariser λ is

    V = Σ x xᵀ,   b = Σ x y,   V(λ) = V + λI,   θ̂ = V(λ)⁻¹ b,   logdet = log det V(λ)/det λI.

V and b are kept in two parts: what the model has in common with its coordinator (`shared`), and what it has observed
and not yet uploaded (`pending`): V = V_shared + ΔV, b = b_shared + Δb. The inverse, θ̂ and logdet follow each
observation by the Sherman–Morrison formula and the matrix determinant lemma, in O(d²), and are computed afresh now and
then.

A policy sees any model as a sum of independent linear *parts*, each an ordinary ridge regression on its own entries of
a context (`Model.parts`): one part here, two in a global and local model, one per user on a graph.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, cast

import numpy as np

from fedbandit.solving import REFRESH_EVERY as REFRESH_EVERY
from fedbandit.solving import include, invert, solve
from fedbandit.state import require_arrays_like
from fedbandit.sums import EXACT, Slack, Sums, nothing
from fedbandit.types import Array, Ints

TIE = 1e-9
"""Two scores, or a measure and its threshold, closer than this are equal: summation order must not decide."""


class Width(NamedTuple):
    """What a policy says about widths: α of exact statistics, σ, and whether α is fixed by hand."""

    alpha: float
    sigma: float = 0.0
    fixed: bool = False


Rows = slice | Ints
"""Some rows of an array."""


class Part(Protocol):
    """One linear part of a model: what a policy may ask of it. X holds one context a row, cut to this part."""

    ridge: float
    theta: Array
    """θ̂."""
    inverse: Array
    """V(λ)⁻¹."""
    slack: Slack
    partial_noise: float
    """What is added to σ, where observations are themselves estimates."""

    @property
    def groups(self) -> Sequence[Rows]:
        """Which contexts have one θ: all of them, but in a stack (`Model.stacks`)."""
        ...

    @property
    def logdet(self) -> float | Array:
        """log det V(λ)/det λI, and more where V does not show all that is known (`Slack.offset`)."""
        ...

    @property
    def V(self) -> Array:
        """Σ x xᵀ of what the part has learnt from, without ridge."""
        ...

    def means(self, X: Array) -> Array:
        """xᵀθ̂ of each context."""
        ...

    def norms(self, X: Array) -> Array:
        """‖x‖_{V(λ)⁻¹} = √(xᵀ V(λ)⁻¹ x) of each context."""
        ...

    def lengths(self, X: Array) -> Array:
        """‖V(λ)⁻¹ x‖₂ of each context."""
        ...


class Model(Protocol):
    """What a policy chooses with, whatever its structure."""

    @property
    def n(self) -> int:
        """Observations that it has learnt from, own and received."""
        ...

    def parts(self, contexts: Array) -> Sequence[tuple[Part, Array]]:
        """The parts that a mean is the sum of, one θ each, with its own entries of the contexts."""
        ...

    def stacks(self, contexts: Array) -> Sequence[tuple[Part, Array]]:
        """The same for policies in a hurry: parts of which each context has one only may come as one, stacked.

        θ̂, V, V(λ)⁻¹ and logdet of a stack have an axis more in front: one for each context.
        """
        ...

    def means(self, contexts: Array) -> Array:
        """The estimated mean reward of each context."""
        ...


class Growing(Protocol):
    """What a trigger may look at: how much a model has, and how much of it is pending."""

    @property
    def n_own(self) -> int:
        """Own observations, pending or not."""
        ...

    @property
    def n_pending(self) -> int:
        """Δn: own observations that are not uploaded."""
        ...

    @property
    def logdet(self) -> float:
        """log det V(λ)/det λI."""
        ...

    @property
    def shared_logdet(self) -> float:
        """log det (V − ΔV)(λ)/det λI: without what is pending."""
        ...


class LinearModel:
    """A model of one part that has θ̂ and V(λ)⁻¹ at hand: what a policy asks of them."""

    groups: ClassVar[Sequence[Rows]] = (slice(None),)
    theta: Array
    inverse: Array

    def parts(self, contexts: Array) -> Sequence[tuple[Part, Array]]:
        """Itself alone."""
        return ((cast(Part, self), contexts),)

    def stacks(self, contexts: Array) -> Sequence[tuple[Part, Array]]:
        """Nothing to stack."""
        return self.parts(contexts)

    def means(self, X: Array) -> Array:
        """xᵀθ̂ of each context."""
        return X @ self.theta

    def norms(self, X: Array) -> Array:
        """‖x‖_{V(λ)⁻¹} of each context."""
        squares: Array = ((X @ self.inverse) * X).sum(axis=1)
        return np.sqrt(np.maximum(squares, 0.0, out=squares))

    def lengths(self, X: Array) -> Array:
        """‖V(λ)⁻¹ x‖₂ of each context."""
        return np.asarray(np.linalg.norm(X @ self.inverse, axis=1))


class FittedModel(LinearModel):
    """The ridge regression of given sums, once: it learns nothing more."""

    def __init__(self, sums: Sums, ridge: float) -> None:
        self.ridge = ridge
        self.V, self.n = sums.V, sums.n
        self.inverse, self.theta, self.logdet, _ = solve(sums, ridge)
        self.slack, self.partial_noise = EXACT, 0.0


class RidgeModel(LinearModel):
    """One model: a client's, a local cluster's, or one part of either.

    A `fresh` model learns from an observation at once. One that is not learns only from what it `adopt`s: its own
    observations wait in `pending`, and reach it as the release that a privacy mechanism made of them.

    >>> model = RidgeModel(2, ridge=1.0)
    >>> model.observe(np.array([1.0, 0.0]), 1.0)
    >>> model.theta.tolist(), model.pending().n
    ([0.5, 0.0], 1)
    """

    def __init__(self, dim: int, ridge: float, *, fresh: bool = True, partial_noise: float = 0.0) -> None:
        self.dim = dim
        self.ridge = ridge
        self.fresh = fresh
        self.partial_noise = partial_noise
        self.inverse: Array = np.eye(dim) / ridge
        self.theta: Array = np.zeros(dim)
        self.logdet = 0.0
        self.shared_logdet = 0.0  # of what coordinator and model have in common; triggers compare logdet with it
        self.slack = EXACT
        self.n = 0
        self.n_own = 0  # own observations, pending or not
        self.n_pending = 0
        self.version = 0  # of the download that the shared part stems from
        self._shared_V: Array = np.zeros((dim, dim))
        self._shared_b: Array = np.zeros(dim)
        self._pending_V: Array = np.zeros((dim, dim))
        self._pending_b: Array = np.zeros(dim)
        self._pending_X: list[Array] | None = []  # the contexts of ΔV while they are few, else None
        self._updates = 0

    @property
    def V(self) -> Array:
        """Σ x xᵀ of what the model has learnt from."""
        return self._shared_V + self._pending_V if self.fresh else self._shared_V

    @property
    def b(self) -> Array:
        """Σ x y of what the model has learnt from."""
        return self._shared_b + self._pending_b if self.fresh else self._shared_b

    # What a client does with it

    silent: ClassVar[bool] = False
    """Whether it has nothing to exchange yet, whatever its trigger says."""

    def observe(self, x: Array, y: float) -> None:
        """Add the observation (x, y).

        With u = V(λ)⁻¹x and q = xᵀu: V(λ)⁻¹ −= u uᵀ/(1+q), θ̂ += u (y − xᵀθ̂)/(1+q), logdet += log(1+q).
        """
        self._pending_V += np.multiply.outer(x, x)
        self._pending_b += y * x
        self.n_own += 1
        self.n_pending += 1
        if self._pending_X is not None:
            self._pending_X.append(x)
            if 2 * len(self._pending_X) > self.dim:
                self._pending_X = None
        if not self.fresh:
            return
        u = self.inverse @ x
        growth = 1.0 + float(x @ u)
        self.theta += ((y - float(x @ self.theta)) / growth) * u
        self.inverse -= np.multiply.outer(u, u / growth)
        self.logdet += math.log(growth)
        self.n += 1
        self._updates += 1
        if self._updates >= REFRESH_EVERY:
            self._recompute()

    def observe_sums(self, sums: Sums) -> None:
        """Add many observations of its own at once."""
        self._pending_V += sums.V
        self._pending_b += sums.b
        self._pending_X = None
        self.n_own += sums.n
        self.n_pending += sums.n
        if self.fresh:
            self.n += sums.n
            self._recompute()

    def forget(self, factor: float) -> None:
        """Let all observations count so many times what they did (`forgetting`)."""
        if self.n == 0:
            return
        self._shared_V, self._shared_b = factor * self._shared_V, factor * self._shared_b
        self._pending_V *= factor
        self._pending_b *= factor
        self._pending_X = None if self.n_pending else []
        self.shared_logdet = invert(self._shared_V, self.ridge)[1]
        self._recompute()

    def pending(self) -> Sums:
        """A copy of what has been observed and not uploaded."""
        if self.n_pending == 0:
            return nothing(self.dim)
        return Sums(self._pending_V.copy(), self._pending_b.copy(), self.n_pending)

    def in_common(self) -> Sums:
        """What coordinator and model have in common."""
        return Sums(self._shared_V, self._shared_b, self.n - (self.n_pending if self.fresh else 0))

    def mark_sent(self) -> None:
        """What was pending is now in common with the coordinator. The model itself does not change."""
        self.shared_logdet = self.logdet
        if self.n_pending == 0:
            return
        if self.fresh:
            self._shared_V = self._shared_V + self._pending_V
            self._shared_b = self._shared_b + self._pending_b
        self._pending_V[:] = 0.0
        self._pending_b[:] = 0.0
        self._pending_X = []
        self.n_pending = 0

    def adopt(self, sums: Sums, slack: Slack = EXACT, version: int = 0) -> None:
        """Replace what is in common with the coordinator; a fresh model puts its pending observations back on top.

        One that is not fresh leaves them aside: the arms that it chooses next, whose contexts are sent as they are,
        must not depend on rewards that were never noised.
        """
        self._shared_V, self._shared_b = sums.V, sums.b
        self.slack, self.version = slack, version
        self.n = sums.n
        given = solve(sums, self.ridge)
        self.shared_logdet = given.logdet + slack.offset - (slack.headstart if self.fresh else 0.0)
        if not self.fresh or self.n_pending == 0:
            self.inverse, self.theta = given.inverse.copy(), given.theta.copy()
            self.logdet = given.logdet + slack.offset
            self._updates = 0
            return
        self.n += self.n_pending
        if self._pending_X:
            b = self._shared_b + self._pending_b
            self.inverse, self.theta, logdet, _ = include(given, np.array(self._pending_X), b)
            self.logdet = logdet + slack.offset
            self._updates = len(self._pending_X)
        else:
            self._recompute()

    def _recompute(self) -> None:
        self.inverse, logdet = invert(self._shared_V + self._pending_V, self.ridge)
        self.theta = self.inverse @ (self._shared_b + self._pending_b)
        self.logdet = logdet + self.slack.offset
        self._updates = 0

    # How it is kept

    def dump(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Numbers and arrays from which `load` makes the same model, to rounding."""
        numbers = {name: getattr(self, name) for name in ("n", "n_own", "n_pending", "version", "shared_logdet")}
        arrays = {
            "V": self._shared_V,
            "b": self._shared_b,
            "pending_V": self._pending_V,
            "pending_b": self._pending_b,
            "slack": np.array(self.slack),
        }
        return numbers, {name: array.copy() for name, array in arrays.items()}

    def load(self, numbers: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Go on from what `dump` gave."""
        require_arrays_like(arrays, self.dump()[1])
        self.n, self.n_own, self.n_pending = (int(numbers[name]) for name in ("n", "n_own", "n_pending"))
        self.version, self.shared_logdet = int(numbers["version"]), float(numbers["shared_logdet"])
        self._shared_V, self._shared_b = arrays["V"].copy(), arrays["b"].copy()
        self._pending_V, self._pending_b = arrays["pending_V"].copy(), arrays["pending_b"].copy()
        self._pending_X = None if self.n_pending else []
        self.slack = Slack(*arrays["slack"].tolist())
        if self.fresh:
            self._recompute()
        else:
            given = solve(Sums(self._shared_V, self._shared_b, self.n), self.ridge)
            self.inverse, self.theta = given.inverse.copy(), given.theta.copy()
            self.logdet = given.logdet + self.slack.offset
