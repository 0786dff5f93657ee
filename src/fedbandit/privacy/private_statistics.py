"""Federated privacy: what a client releases of its statistics is noised before it leaves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from fedbandit.errors import FedbanditError, number, require, unknown, whole_number
from fedbandit.privacy.bounds import published_bounds
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
from fedbandit.privacy.release_stream import ReleaseStream
from fedbandit.rewards import AS_THEY_ARE, RewardRule
from fedbandit.world import World

Epsilon = float | Sequence[float]
"""A budget for all clients, or one for each."""

Calibration = Literal["proven", "published"]
CALIBRATIONS = ("proven", "published")


@dataclass(frozen=True)
class PrivateStatistics(Privacy):
    """Every client noises its running sums of [x; κy][x; κy]ᵀ; nothing else of its data leaves it.

    epsilon, delta: the budget of each client, or one ε for each.
    calibration: "proven" (analytic Gaussian, tight), or "published" (FedUCB's tree and numbers).
    kind: "blt", "tree" or "independent" noise.
    releases: the cap on a client's releases, by default what the protocol can need at the given horizon.
    contribution: None for one interaction as the unit of privacy, or the number of interactions that a client may
        contribute, all of which are then the unit (noise grows by that factor: Gaussian group privacy).
    reward_bound, reward_weight: B with |y| ≤ B, and κ; excess: "clip" or "refuse" rewards beyond.
    theta_bound, failure: S with ‖θ‖ ≤ S, and the probability with which widths may fail to account for the noise.

    *Guarantee.* (ε, δ)-DP for one interaction (or all of a client's) against the coordinator and all other clients
    together, replace-one neighbours. It holds if *when* a client releases does not depend on its data, which `System`
    checks; increments may depend on earlier releases. Neighbouring histories agree in all other records: what a client
    chose later because of the replaced one is taken as given (as in FedUCB, Def. 1), unless it learns from releases
    alone (`structures.Alone`).

    Reference: FedUCB (Dubey & Pentland 2020), Alg. 2, for "published".
    """

    epsilon: Epsilon = 1.0
    delta: float = 1e-5
    calibration: Calibration = "proven"
    kind: FactorisationKind = "blt"
    releases: int | None = None
    contribution: int | None = None
    reward_bound: float = 1.0
    reward_weight: float = 0.7
    excess: Literal["clip", "refuse"] = "clip"
    theta_bound: float = 1.0
    failure: float = 0.05
    world: World | None = field(default=None, repr=False, compare=False)

    site: ClassVar[Site] = "client"
    perturbs: ClassVar[Perturbs] = "statistics"

    def __post_init__(self) -> None:
        """Check every number."""
        if isinstance(self.epsilon, (list, tuple, np.ndarray)):
            object.__setattr__(self, "epsilon", tuple(float(value) for value in self.epsilon))
        for value in self._budgets:
            check_budget(value, self.delta)
        if self.calibration not in CALIBRATIONS:
            raise unknown("calibration", self.calibration, CALIBRATIONS)
        if self.kind not in FACTORISATIONS:
            raise unknown("kind of noise", self.kind, FACTORISATIONS)
        for name in ("releases", "contribution"):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name))
        for name in ("reward_bound", "reward_weight", "theta_bound"):
            require(number(getattr(self, name), name, "> 0") > 0, name, getattr(self, name), "a finite number > 0")
        require(1e-9 <= self.failure < 1, "failure", self.failure, "between 1e-9 and 1")
        require(self.excess in ("clip", "refuse"), "excess", self.excess, "'clip' or 'refuse'")

    @property
    def keeps_own(self) -> bool:
        """FedUCB has agents learn from noisy sums of their own data, too; that is not necessary."""
        return self.calibration == "proven"

    @property
    def _budgets(self) -> tuple[float, ...]:
        return self.epsilon if isinstance(self.epsilon, tuple) else (float(self.epsilon),)  # type: ignore[arg-type]

    @property
    def reward_rule(self) -> RewardRule:
        """|y| ≤ B; nothing where nothing is claimed."""
        if math.isinf(min(self._budgets)):
            return AS_THEY_ARE
        return RewardRule(-self.reward_bound, self.reward_bound, self.excess == "clip", 0.0)

    def told(self, world: World, releases: int) -> PrivateStatistics:
        """With the cap that the protocol needs, for this dimension and number of clients."""
        if len(self._budgets) > 1:
            require(
                len(self._budgets) == world.n_clients,
                "the length of epsilon",
                len(self._budgets),
                f"{world.n_clients}, one a client",
            )
        return replace(self, world=world, releases=releases if self.releases is None else self.releases)

    @cached_property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """One for all clients, or one for each."""
        if self.world is None or self.releases is None:
            raise FedbanditError("A privacy part has no mechanism before it is told the world.")
        return tuple(self._mechanism(value, self.releases, self.world) for value in self._budgets)

    def _mechanism(self, epsilon: float, releases: int, world: World) -> Mechanism:
        records = 1 if self.contribution is None else self.contribution
        if self.calibration == "published":
            mechanism = feducb_privatiser(
                epsilon,
                self.delta,
                releases,
                world.dim,
                context_bound=world.bound,
                reward_bound=self.reward_bound,
            )
        else:
            mechanism = gram_mechanism(
                epsilon,
                self.delta,
                releases,
                world.dim,
                context_bound=world.bound,
                reward_bound=self.reward_bound,
                reward_weight=self.reward_weight,
                kind=self.kind,
            )
        return replace(mechanism, scale=records * mechanism.scale, sensitivity=records * mechanism.sensitivity)

    def mechanism_of(self, member: int) -> Mechanism:
        """The mechanism of one client."""
        return self.mechanisms[member if len(self.mechanisms) > 1 else 0]

    def stream(self, member: int, source: Callable[[int], Source]) -> ReleaseStream | None:
        """One client's stream."""
        return ReleaseStream(self.mechanism_of(member), source, self.contribution)

    def pool_noise(self, *, together: bool) -> PoolNoise | None:
        """The scale of each client's noise, which is public; None if nobody asks for any."""
        if math.isinf(min(self._budgets)):
            return None
        assert self.world is not None
        assert self.releases is not None
        N = self.world.n_clients
        weakest = min(self._budgets)
        return PoolNoise(
            std=tuple(noise_std(mechanism) for mechanism in self.mechanisms),
            reward_weight=self.mechanisms[0].reward_weight,
            looks=self.releases if together else N * self.releases,
            dim=self.world.dim,
            failure=self.failure,
            theta_bound=self.theta_bound,
            published=None
            if self.calibration == "proven"
            else published_bounds(
                weakest,
                self.delta,
                self.releases,
                self.world.dim,
                streams=N,
                failure=self.failure,
                context_bound=self.world.bound,
            ),
        )

    def guarantee(self) -> Guarantee:
        """The claim, of the client with the largest ε."""
        epsilon = max(self._budgets)
        if math.isinf(epsilon):
            return Guarantee()
        published = self.calibration == "published"
        told = self.world is not None and self.releases is not None
        weakest = self.mechanisms[int(np.argmax(self._budgets))] if told else None
        noise = "FedUCB's tree as published" if published else f"{self.kind} Gaussian noise on statistics"
        return Guarantee(
            basis="as published" if published else "proven",
            protects="contexts and rewards",
            against="the coordinator and all other clients",
            neighbours="replace one interaction" if self.contribution is None else "replace a client's interactions",
            epsilon=epsilon,
            delta=self.delta,
            unit="one interaction" if self.contribution is None else f"a client ({self.contribution} interactions)",
            mechanism=noise if weakest is None else weakest.description,
            true_epsilon=epsilon_of(weakest) if published and weakest is not None else None,
            definition="given later records" if self.keeps_own else "joint",
            trust="nobody",
            own="exact" if self.keeps_own else "released",
            public=("that and when it took part", "how many rewards it observed"),
            mu=None if weakest is None else distance(weakest),
            context_bound=None if self.world is None else self.world.bound,
            reward_bound=self.reward_bound,
            reward_weight=1.0 if published else self.reward_weight,
            releases=self.releases,
            proof="" if published else "Noise on statistics",
        )
