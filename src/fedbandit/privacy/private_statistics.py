"""Federated privacy: what a client releases of its statistics is noised before it leaves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Literal

import numpy as np

from fedbandit.errors import FedbanditError, number, require, unknown, whole_number
from fedbandit.privacy.bounds import NoiseBounds, published_bounds
from fedbandit.privacy.calibration import check_budget
from fedbandit.privacy.guarantee import Guarantee
from fedbandit.privacy.mechanism import (
    FACTORISATIONS,
    FactorisationKind,
    Mechanism,
    distance,
    epsilon_of,
    gram_mechanism,
    noise_std,
)
from fedbandit.privacy.noise import Source
from fedbandit.privacy.pool_noise import PoolNoise
from fedbandit.privacy.privacy import Perturbs, Privacy, Site
from fedbandit.privacy.published import feducb_privatiser
from fedbandit.privacy.published_total import PublishedTotal
from fedbandit.privacy.release_stream import ReleaseStream
from fedbandit.privacy.sum_stream import OpenedTotal, SumStream
from fedbandit.privacy.sum_terms import SumTerms, terms_of_sums
from fedbandit.privacy.trust import OWN, PROOFS, PUBLIC, TRUSTS, Own, Trust, against, neighbours, released_by_default
from fedbandit.rewards import AS_THEY_ARE, RewardRule
from fedbandit.sharing import Share
from fedbandit.world import World

Epsilon = float | Sequence[float]
"""A budget for all clients, or one for each."""

Calibration = Literal["proven", "published"]
CALIBRATIONS = ("proven", "published")

Width = Literal["corrected", "printed"]
WIDTHS = ("corrected", "printed")


@dataclass(frozen=True)
class PrivateStatistics(Privacy):
    """Running sums of [x; κy][x; κy]ᵀ are noised before they leave whoever is trusted with them; nothing else leaves.

    trust: who is trusted. "nobody": every client noises its own. "sums": only sums over many clients are ever opened,
        and have the noise of one (`sum_stream`). "coordinator": it is told everything, and noises what it publishes.
    own: what a client chooses by. "exact": its own data as they are, and what was released of the others'. "released":
        releases alone. By default "released" where that costs little: with `trust` other than "nobody", if the number
        of clients times ε is 30 or more.
    counts: "public", or "padded": at each call of a clock (`Scheduled`) a client releases as many interactions as the
        clock has, whatever it observed, so that whether there was an interaction is protected, too.
    honest, colluding: for sums. Each sum has at least `honest` clients (by default 0.8 N) that do not tell anybody
        their noise, if at most `colluding` (0.05 N) do: so it is opened if honest + colluding clients are in it, and
        more than half of all clients. Noise is that of one client, however many more are in a sum.

    epsilon, delta: the budget of each client, or one ε for each.
    calibration: "proven" (analytic Gaussian, tight), or "published" (FedUCB's tree and numbers).
    kind: "best" (dense for few releases, BLT for many), "dense", "blt", "endless", "tree" or "independent" noise.
    mixing: how a client weighs what others released: by "worth" (least regret), or by "bound" (proven widths).
    as_printed: under "published", V = Mρ_min I at first (Alg. 1 line 1; else λI), and line 12's determinant (`lift`).
    width: under "published", Prop. 2 "corrected" (log det V), or as "printed" (d log det V).
    releases: the cap on a client's releases, by default what the protocol can need at the given horizon.
    contribution: None for one interaction as the unit of privacy, or the number of interactions that a client may
        contribute, all of which are then the unit (noise grows by ‖C P‖ for the portions P that the protocol plans).
    reward_bound, reward_weight: B with |y| ≤ B, and κ; excess: "clip" or "refuse" rewards beyond.
    theta_bound, failure: S with ‖θ‖ ≤ S, and the probability with which widths may fail to account for the noise.

    *Guarantee.* (ε, δ)-DP for one interaction (or all of a client's) against whoever sees all that leaves it
    ("sums": all that is opened; "coordinator": everybody but that), replace-one neighbours. It holds if *when* a client
    releases does not depend on its data, which `System` checks; increments may depend on earlier releases. With "exact"
    neighbouring histories agree in all other records: what a client chose later because of the replaced one is taken as
    given (as in FedUCB, Def. 1). With "released" choices depend on data through releases only, so that nothing is taken
    as given but the arms and contexts of the replaced round: joint DP. Proofs: docs/privacy-proofs.md.

    Reference: FedUCB (Dubey & Pentland 2020), Alg. 2, for "published".
    """

    epsilon: Epsilon = 1.0
    delta: float = 1e-5
    calibration: Calibration = "proven"
    kind: FactorisationKind = "best"
    as_printed: bool = False
    width: Width = "corrected"
    releases: int | None = None
    contribution: int | None = None
    reward_bound: float = 1.0
    reward_weight: float = 0.7
    excess: Literal["clip", "refuse"] = "clip"
    theta_bound: float = 1.0
    failure: float = 0.05
    mixing: Literal["worth", "bound"] = "worth"
    trust: Trust = "nobody"
    own: Own | None = None
    counts: Literal["public", "padded"] = "public"
    honest: int | None = None
    colluding: int | None = None
    portions: tuple[int, ...] = field(default=(), repr=False)
    world: World | None = field(default=None, repr=False, compare=False)

    perturbs: ClassVar[Perturbs] = "statistics"

    def __post_init__(self) -> None:
        """Check every number."""
        several = isinstance(self.epsilon, (list, tuple, np.ndarray)) and np.ndim(self.epsilon) == 1
        budgets: Sequence[Any] = self.epsilon if several else [self.epsilon]  # type: ignore[assignment]
        require(len(budgets) > 0, "epsilon", self.epsilon, "a number > 0, or one for each client")
        for value in budgets:
            check_budget(value, self.delta)
        if several:
            object.__setattr__(self, "epsilon", tuple(map(float, budgets)))
        if self.calibration not in CALIBRATIONS:
            raise unknown("calibration", self.calibration, CALIBRATIONS)
        if self.kind not in tuple(FACTORISATIONS):
            raise unknown("kind of noise", self.kind, FACTORISATIONS)
        for name in (one for one in ("releases", "contribution") if getattr(self, one) is not None):
            object.__setattr__(self, name, whole_number(name, getattr(self, name)))
        for name in ("reward_bound", "reward_weight", "theta_bound"):
            require(number(getattr(self, name), name, "> 0") > 0, name, getattr(self, name), "a finite number > 0")
        between = "between 1e-9 and 1"
        require(1e-9 <= number(self.failure, "failure", between) < 1, "failure", self.failure, between)
        require(self.excess in ("clip", "refuse"), "excess", self.excess, "'clip' or 'refuse'")
        require(self.mixing in ("worth", "bound"), "mixing", self.mixing, "'worth' or 'bound'")
        published, unless = self.calibration == "published", ", unless calibration is 'published'"
        require(published or not self.as_printed, "as_printed", self.as_printed, f"False{unless}")
        if self.width not in WIDTHS:
            raise unknown("width", self.width, WIDTHS)
        require(published or self.width == "corrected", "width", self.width, f"'corrected'{unless}")
        self._check_trust()

    def _check_trust(self) -> None:
        if self.trust not in TRUSTS:
            raise unknown("trust", self.trust, TRUSTS)
        if self.own not in (None, *OWN):
            raise unknown("own", self.own, OWN)
        for name in ("honest", "colluding"):
            if getattr(self, name) is not None:
                require(self.trust == "sums", name, getattr(self, name), "None without trust='sums'")
                whole_number(name, getattr(self, name), 1 if name == "honest" else 0)
        if self.calibration == "published":
            require(self.trust == "nobody", "trust", self.trust, "'nobody' with the published calibration")
            require(self.own is None, "own", self.own, "None with the published calibration, which settles it")
        if self.trust != "nobody":
            require(len(self._budgets) == 1, "epsilon", self.epsilon, "one number where one total is noised for all")
        if self.trust == "sums":
            require(self.kind != "endless", "kind", self.kind, "one with a number of releases, for secure sums")
        require(self.counts in ("public", "padded"), "counts", self.counts, "'public' or 'padded'")
        if self.trust == "coordinator" or self.padded:
            keyword = "counts='padded'" if self.padded else "trust='coordinator'"
            require(self.contribution is None, "contribution", self.contribution, f"None with {keyword}")
        if self.padded:
            require(self.trust != "coordinator", "trust", self.trust, "'nobody' or 'sums' with padded counts")
            require(self.calibration == "proven", "calibration", self.calibration, "'proven' with padded counts")

    @property
    def site(self) -> Site:
        """Who draws the noise."""
        return "coordinator" if self.trust == "coordinator" and self.pooled else "client"

    @property
    def pooled(self) -> bool:
        """Whether one total has all the noise; without noise there is nothing to hide in it."""
        return self.trust != "nobody" and not math.isinf(min(self._budgets))

    @property
    def padded(self) -> bool:
        """Whether the counts that are sent are those of a clock; without noise there is nothing to hide."""
        return self.counts == "padded" and not math.isinf(min(self._budgets))

    @property
    def waits(self) -> bool:
        """Whether choices rest on releases alone."""
        return self.own == "released"

    @property
    def keeps_own(self) -> bool:
        """FedUCB has agents learn from noisy sums of their own data, too; that is not necessary."""
        return self.calibration == "proven" and not self.waits

    @property
    def by_client(self) -> bool:
        """Whether ε differs from client to client."""
        return len(self._budgets) > 1

    @property
    def _budgets(self) -> tuple[float, ...]:
        return self.epsilon if isinstance(self.epsilon, tuple) else (float(self.epsilon),)  # type: ignore[arg-type]

    @property
    def reward_rule(self) -> RewardRule:
        """|y| ≤ B; nothing where nothing is claimed."""
        if math.isinf(min(self._budgets)):
            return AS_THEY_ARE
        return RewardRule(-float(self.reward_bound), float(self.reward_bound), self.excess == "clip", 0.0)

    def told(self, world: World, releases: int) -> PrivateStatistics:
        """With the cap that the protocol needs, for this dimension and number of clients."""
        if self.by_client:
            require(
                len(self._budgets) == world.n_clients,
                "the length of epsilon",
                len(self._budgets),
                f"{world.n_clients}, one a client",
            )
        told = replace(self, world=world, releases=releases if self.releases is None else self.releases)
        if self.calibration == "proven" and self.own is None:
            cheap = self.pooled and released_by_default(world.n_clients, self._budgets[0])
            told = replace(told, own="released" if cheap else "exact")
        if self.trust == "sums":
            honest, colluding = self._settled(world.n_clients)
            told = replace(told, honest=honest, colluding=colluding)
        return told

    def planned(self, portions: Sequence[int]) -> PrivateStatistics:
        """With the largest portions in which a client's contribution leaves it, if that is what is protected."""
        if self.contribution is None or self.trust == "coordinator" or self.calibration != "proven" or not portions:
            return self
        left, kept = self.contribution, []
        for portion in portions[: self.releases]:
            kept.append(min(portion, left))
            left -= kept[-1]
        return replace(self, portions=tuple(portion for portion in kept if portion > 0))

    def _settled(self, N: int) -> tuple[int, int]:
        """The numbers of honest and of colluding clients, if that many are there."""
        require(N >= 3, "the number of clients", N, "3 or more for secure sums")
        colluding = N // 20 if self.colluding is None else self.colluding
        honest = math.ceil(0.8 * N) if self.honest is None else self.honest
        text = f"at most {N} together, the number of clients"
        require(honest + colluding <= N, "honest + colluding", honest + colluding, text)
        require(honest >= 2, "honest", honest, "2 or more: a sum over one client is no sum")
        return honest, colluding

    @cached_property
    def sum_terms(self) -> SumTerms:
        """What secure sums are made by."""
        assert self.world is not None
        assert self.honest is not None
        assert self.colluding is not None
        mechanism, cap = self.mechanisms[0], self.contribution
        load = 1.0 if cap is None else self._load(mechanism) if self.portions else float(cap)
        return terms_of_sums(mechanism, self.world, self.honest, self.colluding, cap, load)

    def total(self, source: Callable[[int], Source]) -> OpenedTotal | PublishedTotal | None:
        """What the coordinator makes the noisy total with."""
        if not self.pooled:
            return None
        return OpenedTotal(self.sum_terms) if self.trust == "sums" else PublishedTotal(self.mechanisms[0], source)

    @cached_property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """One for all clients, or one for each."""
        if self.world is None or self.releases is None:
            raise FedbanditError("A privacy part has no mechanism before it is told the world.")
        return tuple(self._mechanism(value, self.releases, self.world) for value in self._budgets)

    def _mechanism(self, epsilon: float, releases: int, world: World) -> Mechanism:
        records: float = 1 if self.contribution is None else self.contribution
        make: Callable[..., Mechanism] = feducb_privatiser
        if self.calibration == "proven":
            make = partial(gram_mechanism, reward_weight=self.reward_weight, kind=self.kind)
        bounds = {"context_bound": world.bound, "reward_bound": self.reward_bound}
        mechanism = make(epsilon, self.delta, releases, world.dim, **bounds)
        if self.portions:
            records = self._load(mechanism)
        return replace(mechanism, scale=records * mechanism.scale, sensitivity=records * mechanism.sensitivity)

    def _load(self, mechanism: Mechanism) -> float:
        """‖C P‖ for portions P of a client's contribution, in units of one record's; C ≥ 0: smaller ones are less.

        What a client contributes is D_e in release e with ‖D_e‖ ≤ P_e Δ; then ‖C D‖ ≤ ‖C P‖ Δ, attained if all its
        records are replaced alike.
        """
        portions = np.array(self.portions[: mechanism.n_max], dtype=np.float64)
        C = mechanism.factorisation.encoder(mechanism.n_max)
        return float(np.linalg.norm(C[:, : portions.size] @ portions)) / mechanism.factorisation.column_norm(2)

    def mechanism_of(self, member: int) -> Mechanism:
        """The mechanism of one client."""
        return self.mechanisms[member if len(self.mechanisms) > 1 else 0]

    def stream(self, member: int, source: Callable[[int], Source]) -> ReleaseStream | SumStream | None:
        """One client's stream."""
        if self.pooled and self.trust == "sums":
            return SumStream(self.sum_terms, source)
        if self.pooled:  # the coordinator noises; a client remembers what it has told
            return ReleaseStream(replace(self.mechanisms[0], scale=0.0), source)
        former = partial(replace(self, kind="blt", portions=()).mechanism_of, member)
        return ReleaseStream(
            self.mechanism_of(member), source, self.contribution, portions=self.portions, former=former
        )

    def pool_noise(self, *, together: bool) -> PoolNoise | None:
        """The scale of each client's noise, which is public; None if nobody asks for any."""
        if math.isinf(min(self._budgets)):
            return None
        assert self.world is not None
        assert self.releases is not None
        N = self.world.n_clients
        return PoolNoise(
            std=tuple(noise_std(mechanism) for mechanism in self.mechanisms),
            reward_weight=self.mechanisms[0].reward_weight,
            looks=self.world.estimators * (self.releases if together or self.pooled else N * self.releases),
            dim=self.world.dim,
            failure=self.failure,
            theta_bound=self.theta_bound,
            with_own=self.waits,
            mixing=self.mixing,
            published=None if self.calibration == "proven" else self._bounds(self.releases, self.world),
            printed=self.width == "printed",
            lifted=self.as_printed,
        )

    def _bounds(self, releases: int, world: World) -> NoiseBounds:
        """FedUCB's, of the client with the smallest ε; Remark 5 has a union over γ estimators too."""
        return published_bounds(
            min(self._budgets),
            self.delta,
            releases,
            world.dim,
            streams=world.n_clients * world.estimators,
            failure=self.failure,
            context_bound=world.bound,
        )

    def spectrum(self, world: World) -> tuple[float, float] | None:
        """Under "published" ρ_min and ρ_max for as many releases as there are rounds: none is fixed beforehand."""
        if self.calibration == "proven" or math.isinf(min(self._budgets)):
            return None
        return self._bounds(max(world.horizon // world.n_clients, 1), world)[:2]

    @property
    def lifts(self) -> bool:
        """Whether the determinant is that of Alg. 1 line 12; without noise there is nothing to add."""
        return self.as_printed and not math.isinf(min(self._budgets))

    def lift(self) -> float:
        """As printed M(ρ_max − ρ_min), which Alg. 1 line 12 adds to V."""
        if not self.lifts or self.world is None or self.releases is None:
            return 0.0
        low, high, _ = self._bounds(self.releases, self.world)
        return self.world.n_clients * (high - low)

    def prior(self, ridge: float) -> Share | None:
        """What everybody has before anything was released, if V is not λI then."""
        if not self.as_printed or self.world is None:
            return None
        noise = self.pool_noise(together=True)
        return None if noise is None else noise.prior(self.world.n_clients, ridge)

    def guarantee(self) -> Guarantee:
        """The claim, of the client with the largest ε among those that asked for any."""
        finite = [value for value in self._budgets if math.isfinite(value)]
        if not finite:
            return Guarantee()
        without = [str(i) for i, value in enumerate(self._budgets) if math.isinf(value)]
        remark = f"not for clients {', '.join(without)}, whose ε is inf" if without else ""
        return replace(self._claim(max(finite)), remark=remark)

    def guarantee_of(self, member: int) -> Guarantee:
        """The claim to one client."""
        return self._claim(self._budgets[member if self.by_client else 0])

    def _claim(self, epsilon: float) -> Guarantee:
        if math.isinf(epsilon):
            return Guarantee()
        published = self.calibration == "published"
        told = self.world is not None and self.releases is not None
        weakest = self.mechanisms[self._budgets.index(epsilon)] if told else None
        if told and self.trust == "sums":
            weakest = self.sum_terms.mechanism
        noise = "FedUCB's tree as published" if published else f"{self.kind} Gaussian noise on statistics"
        return Guarantee(
            basis="as published" if published else "proven",
            protects="contexts and rewards",
            against=against(self.trust, self.honest, self.colluding),
            neighbours=neighbours(padded=self.padded, contribution=self.contribution),
            epsilon=epsilon,
            delta=self.delta,
            unit="one interaction" if self.contribution is None else f"a client ({self.contribution} interactions)",
            mechanism=noise if weakest is None else weakest.description,
            true_epsilon=epsilon_of(weakest) if published and weakest is not None else None,
            definition="given later records" if self.keeps_own or published else "joint",
            trust=self.trust,
            own="exact" if self.keeps_own else "released",
            public=PUBLIC[:1] if self.padded else PUBLIC,
            mu=None if weakest is None else distance(weakest),
            context_bound=None if self.world is None else self.world.bound,
            reward_bound=self.reward_bound,
            reward_weight=1.0 if published else self.reward_weight,
            releases=self.releases,
            proof="" if published else PROOFS[self.trust],
        )
