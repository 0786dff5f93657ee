"""A model in two parts, one shared by all clients and one of the client's own, learnt by alternating minimisation.

    E y = θ^(g)ᵀ x^(g) + θ^(i)ᵀ x^(l)                                                    (Async-LinUCB, Eq. 2)

Each part is an ordinary ridge model. An observation (x, y) is split into partial rewards ŷ^(g), ŷ^(l), and each part
observes its own (Alg. 3 lines 9–10). The alternation that finds them (Eq. 7) is

    start     θ̂^(g), θ̂^(l) as they are before the observation
    repeat    θ̂^(l) ← ridge regression with (x^(l), ŷ^(l)) added, ŷ^(l) = y − x^(g)ᵀθ̂^(g)
              θ̂^(g) ← ridge regression with (x^(g), ŷ^(g)) added, ŷ^(g) = y − x^(l)ᵀθ̂^(l)
    until     it does not change any more.

With p = xᵀθ̂ before and q = xᵀV(λ)⁻¹x of each part, ridge regression takes xᵀθ̂ to (p + q ŷ)/(1 + q). So the alternation
is a recursion of two numbers that contracts by q_g q_l/((1+q_g)(1+q_l)) < 1, to the same limit from any start:

    r = (y − p_g − p_l)/(1 + q_g + q_l),    ŷ^(g) = p_g + (1 + q_g) r,    ŷ^(l) = p_l + (1 + q_l) r.

That limit is computed directly. The start-up (Alg. 5) ends with the same alternation on all of a client's own data
(line 12); its limit solves one linear system (`_begin`), which needs V and b of these data only.

With `projected` the alternation is Eq. (7) as printed: θ̂ = proj(V⁻b), with a generalised inverse and the projection to
the unit ball in place of ridge regression, from sums alone, as often as it changes anything, at most 100 times.

Deviations from the paper:
    D1. Unless `projected`: ridge regression with λ in place of generalised inverses with projections to the unit ball;
        the alternation is run to its limit. (The authors' code runs 100 alternations.)
    D2. "Full rank" (Alg. 5 line 11) means: the smallest eigenvalue is above 10⁻⁶ of the largest. For a client whose two
        parts see the same features, of the contexts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedbandit.model import Part, RidgeModel
from fedbandit.sums import EXACT, Slack, Sums
from fedbandit.types import Array

FULL_RANK = 1e-6
ALTERNATIONS = 100
SETTLED = 1e-12


class Parts(NamedTuple):
    """Which entries of a context belong to which part: x^(g) = x[:shared], x^(l) = x[first : first + own]."""

    shared: int  # d_g
    first: int
    own: int  # the largest d_i; a client with a smaller one sees zeros beyond


class TwoPartModel:
    """A shared part that is exchanged, a personal one, and while `starting` one ridge model on the whole context."""

    def __init__(
        self,
        parts: Parts,
        size: int,
        dim: int,
        ridge: float,
        *,
        startup: bool,
        partial_noise: float = 0.0,
        projected: bool = False,
    ) -> None:
        self.cut = parts
        self.projected = projected
        self.size = size  # d_i
        self.ridge = ridge
        self.shared = RidgeModel(parts.shared, ridge, partial_noise=partial_noise)
        self.own = RidgeModel(max(parts.own, 1), ridge, partial_noise=partial_noise)
        self.first = RidgeModel(dim, ridge, partial_noise=partial_noise)
        self.starting = startup and parts.own > 0 and size > 0
        self._looked = 0  # the version of the download at which rank was last looked at

    # What a policy asks

    def parts(self, contexts: Array) -> Sequence[tuple[Part, Array]]:
        """The start-up's model; or the shared part, and the personal one if there is any."""
        if self.starting:
            return ((self.first, self._masked(contexts)),)
        if self.cut.own == 0:
            return ((self.shared, contexts[:, : self.cut.shared]),)
        return ((self.shared, contexts[:, : self.cut.shared]), (self.own, self._local(contexts)))

    def stacks(self, contexts: Array) -> Sequence[tuple[Part, Array]]:
        """Nothing to stack."""
        return self.parts(contexts)

    def means(self, contexts: Array) -> Array:
        """x^(g)ᵀθ̂^(g) + x^(l)ᵀθ̂^(l) of each context."""
        means = np.zeros(len(contexts))
        for part, X in self.parts(contexts):
            means += part.means(X)
        return means

    def _local(self, contexts: Array) -> Array:
        """x^(l) of a client with d_i = size."""
        local = np.zeros((len(contexts), self.cut.own))
        local[:, : self.size] = contexts[:, self.cut.first : self.cut.first + self.size]
        return local

    def _masked(self, contexts: Array) -> Array:
        """Contexts without the entries that a client with d_i = size does not use."""
        masked = contexts.copy()
        masked[:, max(self.cut.first + self.size, self.cut.shared) :] = 0.0
        return masked

    # What a client does with it

    @property
    def silent(self) -> bool:
        """Nothing is exchanged before the start-up is over."""
        return self.starting

    @property
    def n(self) -> int:
        """Observations of the part that acts."""
        return self.first.n if self.starting else self.shared.n

    @property
    def n_own(self) -> int:
        """Own observations, those of the start-up included."""
        return self.first.n_own if self.starting else self.shared.n_own

    @property
    def n_pending(self) -> int:
        """Of the shared part."""
        return self.shared.n_pending

    @property
    def logdet(self) -> float:
        """Of the shared part."""
        return self.shared.logdet

    @property
    def shared_logdet(self) -> float:
        """Of what coordinator and shared part have in common."""
        return self.shared.shared_logdet

    @property
    def theta(self) -> Array:
        """Of the shared part."""
        return self.shared.theta

    @property
    def version(self) -> int:
        """Of the last download."""
        return self.shared.version

    def observe(self, x: Array, y: float) -> None:
        """Learn with the part that is due."""
        if self.starting:
            self._start(x, y)
            return
        x_g = x[: self.cut.shared]
        if self.cut.own == 0:
            self.shared.observe(x_g, y)
            return
        x_l = self._local(x[None])[0]
        if self.projected:
            own = x_l[: self.size]
            blocks = np.outer(x_g, x_g), np.outer(x_g, own), np.outer(own, own)
            theta_g, theta_l = self._alternate(*blocks, x_g * y, own * y)
            self.shared.observe(x_g, y - float(own @ theta_l))
            self.own.observe(x_l, y - float(x_g @ theta_g))
            return
        p_g, p_l = float(x_g @ self.shared.theta), float(x_l @ self.own.theta)
        q_g, q_l = float(x_g @ self.shared.inverse @ x_g), float(x_l @ self.own.inverse @ x_l)
        r = (y - p_g - p_l) / (1.0 + q_g + q_l)
        self.shared.observe(x_g, p_g + (1.0 + q_g) * r)
        self.own.observe(x_l, p_l + (1.0 + q_l) * r)

    def pending(self) -> Sums:
        """Of the shared part."""
        return self.shared.pending()

    def in_common(self) -> Sums:
        """What coordinator and shared part have in common."""
        return self.shared.in_common()

    def mark_sent(self) -> None:
        """What was pending of the shared part is now in common with the coordinator."""
        self.shared.mark_sent()

    def adopt(self, sums: Sums, slack: Slack = EXACT, version: int = 0) -> None:
        """Replace what the shared part has in common with the coordinator."""
        self.shared.adopt(sums, slack, version)

    def _start(self, x: Array, y: float) -> None:
        self.first.observe(self._masked(x[None])[0], y)
        if self.shared.version == self._looked and self.first.n_own < self.cut.shared:
            return
        if self._may_begin():
            self._begin()
            self.starting = False
        else:
            self._looked = self.shared.version

    def go_on(self, *, starting: bool) -> None:
        """Take over from another model whose data this one was given: in the start-up still, or after it."""
        if starting and not self.starting:
            self._begin()
        self.starting = self.starting and starting

    def _may_begin(self) -> bool:
        """Alg. 5 line 11: a client's own data, or what it was sent, have full rank."""
        if self.shared.version > 0 and full_rank(self.shared.V):
            return True
        used = np.unique(np.r_[0 : self.cut.shared, self.cut.first : self.cut.first + self.size])
        return self.first.n_own >= used.size and full_rank(self.first.V[np.ix_(used, used)])

    def _begin(self) -> None:
        """Alg. 5 lines 12–14: split the data of the start-up into both parts; the shared one has them pending.

        The limit of the alternation solves, with V, b what the client was sent and S = Σ x xᵀ, s = Σ x y its own data,

            (V + S_gg + λI) θ_g + S_gl θ_l = b + s_g,        S_lg θ_g + (S_ll + λI) θ_l = s_l,

        and then Σ x^(g) ŷ^(g) = s_g − S_gl θ_l, Σ x^(l) ŷ^(l) = s_l − S_lg θ_g.
        """
        d_g, size = self.cut.shared, self.size
        S, s, n = self.first.pending()
        G, L = slice(0, d_g), slice(self.cut.first, self.cut.first + size)
        if self.projected:
            theta_g, theta_l = self._alternate(S[G, G], S[G, L], S[L, L], s[G], s[L])
        else:
            joint = self.ridge * np.eye(d_g + size)
            joint[:d_g, :d_g] += self.shared.V + S[G, G]
            joint[:d_g, d_g:], joint[d_g:, :d_g] = S[G, L], S[L, G]
            joint[d_g:, d_g:] += S[L, L]
            theta_g, theta_l = np.split(np.linalg.solve(joint, np.r_[self.shared.b + s[G], s[L]]), [d_g])
        self.shared.observe_sums(Sums(S[G, G], s[G] - S[G, L] @ theta_l, n))
        V, b = np.zeros((self.cut.own, self.cut.own)), np.zeros(self.cut.own)
        V[:size, :size], b[:size] = S[L, L], s[L] - S[L, G] @ theta_g
        self.own.observe_sums(Sums(V, b, n))

    def _alternate(self, gg: Array, gl: Array, ll: Array, g: Array, own: Array) -> tuple[Array, Array]:
        """θ̂^(g), θ̂^(l) by Eq. (7), with new data of Σ x^(g)x^(g)ᵀ, Σ x^(g)x^(l)ᵀ, Σ x^(l)x^(l)ᵀ, Σ x^(g)y, Σ x^(l)y."""
        size = self.size
        old_V, old_b = self.own.V[:size, :size], self.own.b[:size]
        of_g, of_l = generalised_inverse(self.shared.V + gg), generalised_inverse(old_V + ll)
        theta_g = projected(generalised_inverse(self.shared.V) @ self.shared.b)
        theta_l = np.zeros(size)
        for _ in range(ALTERNATIONS):
            before = np.r_[theta_g, theta_l]
            theta_l = projected(of_l @ (old_b + own - gl.T @ theta_g))
            theta_g = projected(of_g @ (self.shared.b + g - gl @ theta_l))
            if np.abs(np.r_[theta_g, theta_l] - before).max() < SETTLED:
                break
        return theta_g, theta_l

    # How it is kept

    def dump(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """All three ridge models."""
        numbers: dict[str, Any] = {"starting": self.starting, "looked": self._looked}
        arrays: dict[str, Array] = {}
        for name in ("shared", "own", "first"):
            numbers[name], kept = getattr(self, name).dump()
            arrays |= {f"{name}.{key}": array for key, array in kept.items()}
        return numbers, arrays

    def load(self, numbers: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Go on from what `dump` gave."""
        for name in ("shared", "own", "first"):
            mine = f"{name}."
            kept = {key.removeprefix(mine): array for key, array in arrays.items() if key.startswith(mine)}
            getattr(self, name).load(numbers[name], kept)
        self.starting, self._looked = bool(numbers["starting"]), int(numbers["looked"])


def full_rank(V: Array) -> bool:
    """Whether V has full rank (D2)."""
    values = np.linalg.eigvalsh(V)
    return bool(values[0] > FULL_RANK * values[-1])


def generalised_inverse(V: Array) -> Array:
    """Of a positive semi-definite V; eigenvalues below 10⁻¹⁰ of the largest count as zero."""
    return np.asarray(np.linalg.pinv(V, rcond=1e-10, hermitian=True), dtype=np.float64)


def projected(theta: Array) -> Array:
    """The nearest vector of the unit ball."""
    return theta / max(1.0, float(np.linalg.norm(theta)))
