"""A system is four orthogonal parts: policy, protocol, structure and privacy."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from types import FunctionType

from fedbandit.errors import FedbanditError, number, shown
from fedbandit.forgetting import ADAPTIVE, Fading, Forgetting, check_discount, check_window, settled_discount
from fedbandit.model import RidgeModel
from fedbandit.noisy_totals import NoisyTotals
from fedbandit.pairs import check_actions, check_forgetting, check_pairs, check_width
from fedbandit.parts import check_switches
from fedbandit.policies import UCB, Policy, Uniform, Widest
from fedbandit.policies.policy import WidthRule
from fedbandit.privacy import Guarantee, NoPrivacy, Privacy
from fedbandit.privacy.guarantee import interactions_of
from fedbandit.privacy.noise import Source
from fedbandit.protocols import Coordinator, MessageProtocol, Never
from fedbandit.protocols.pool import Pool
from fedbandit.schedule import Wakes
from fedbandit.sharing import Groups, GroupsWithPrior, LocalModel, Noise, Others, Sharing
from fedbandit.streams import Purpose, generator
from fedbandit.structures import Alone, Clustering, Everyone, OnGraph, Structure
from fedbandit.structures.structure import known_groups
from fedbandit.structures.time_blocks import AdaptiveWindow, SlidingWindow, TimeBlocks
from fedbandit.structures.window_model import WindowModel
from fedbandit.world import World


@dataclass(frozen=True)
class System:
    """Four parts and the ridge λ they share. Pairs that make no sense are refused with the reason.

    >>> from fedbandit.protocols import EventTriggered
    >>> print(System(UCB(), EventTriggered(gamma_upload=2.0, gamma_download=2.0)).guarantee)
    none: statistics leave the clients without noise
    """

    policy: Policy = field(default_factory=UCB)
    protocol: MessageProtocol = field(default_factory=Never)
    structure: Structure = field(default_factory=Everyone)
    privacy: Privacy = field(default_factory=NoPrivacy)
    ridge: float = 0.1
    name: str = "custom"
    world: World | None = field(default=None, repr=False, compare=False)
    """The world that it was told, if it was."""
    discount: float | str = 1.0
    """γ: what an observation counts a round later, or a rule for it such as "changes:3" (`forgetting`)."""
    window: int | str | None = None
    """The number of rounds whose observations count, or "adaptive": as many as a test finds no change in."""

    def __post_init__(self) -> None:
        """Check each part and the pairs."""
        for role, part, kind in (
            ("policy", self.policy, Policy),
            ("protocol", self.protocol, MessageProtocol),
            ("structure", self.structure, Structure),
            ("privacy", self.privacy, Privacy),
        ):
            if kind not in type(part).__mro__:  # isinstance would have Python 3.11 ask a Protocol for every fact
                hint = f"; call it: {part.__name__}()" if isinstance(part, type) else ""
                raise FedbanditError(
                    f"The {role} of a system is {shown(part)}, which is not a {kind.__name__} instance{hint}."
                )
            check_switches(part)
        ridge = number(self.ridge, "ridge", "a finite number ≥ 1e-12", at_least=1e-12)
        object.__setattr__(self, "ridge", ridge)
        check_pairs(self.protocol, self.structure, self.privacy)
        check_width(self.policy, self.privacy)
        discount, window = check_discount(self.discount), check_window(self.window)
        if discount != 1.0 and window is not None:
            raise FedbanditError("Both discount and window were given; each says what is forgotten, so give one.")
        if self.forgets:
            check_forgetting(self.protocol, self.structure, self.privacy)

    @property
    def forgets(self) -> bool:
        """Whether observations count less, or not at all, after some rounds."""
        return self.discount != 1.0 or self.window is not None

    def forgetting(self, world: World) -> Forgetting:
        """What becomes of statistics as rounds go by, in this world."""
        if not self.forgets:
            return Forgetting()
        rounds, models = max(world.horizon // world.per_round, 1), 1
        if self.structure.separate:
            apart = self.protocol.says == "nothing"
            models = world.n_clients if apart else int(self.structure.groups(world).max()) + 1
        if self.window == ADAPTIVE:  # a model has about as many observations in an epoch as it has parameters
            length = math.ceil(world.parameters * rounds * models / world.horizon)
            noise = self.policy.noise if isinstance(self.policy, WidthRule) else None
            return AdaptiveWindow(length, self.as_seen(world).noise if noise is None else noise)
        if self.window is not None:
            return SlidingWindow(int(self.window))
        return Fading(settled_discount(self.discount, world.parameters, world.horizon / models, rounds))

    @property
    def guarantee(self) -> Guarantee:
        """What privacy holds."""
        return self._completed(self.privacy.guarantee())

    def guarantee_of(self, member: int) -> Guarantee:
        """What holds for one client, where budgets differ."""
        return self._completed(self.privacy.guarantee_of(member))

    def _completed(self, claim: Guarantee) -> Guarantee:
        """Who sees what, and what choices tell, follow from protocol and structure; how many records from the world."""
        if claim.private and self.world is not None:
            claim = replace(claim, interactions=interactions_of(self.world))
        noised = claim.private and self.privacy.perturbs == "statistics"
        if noised and isinstance(self.structure, Alone):  # nothing is sent: what is seen of a client are its choices
            seen = "everybody who sees its model, or arms chosen in other rounds"
            claim = replace(claim, definition="joint", own="released", against=seen, proof="Choices by releases alone")
        if claim.basis == "as published" and self.privacy.perturbs == "statistics" and self.protocol.reads == "raw":
            remark = claim.remark or "its trigger reads raw data, so timing leaks"
            return replace(claim, true_epsilon=math.inf, remark=remark)
        if claim.basis == "none" and self.protocol.says == "nothing":
            where = "nothing leaves the clients" if self.structure.separate else "all data is in one place"
            if isinstance(self.structure, Clustering):
                where = "local servers have all data of their users"
            return replace(claim, remark=f"{where}, and nothing is noised")
        return claim

    @property
    def counts_only(self) -> bool:
        """Whether an upload measures what is known by counts: log det of raw data would tell what noise is to hide."""
        hidden = self.privacy.perturbs == "statistics" and self.protocol.reads != "raw"
        return self.protocol.counting or hidden

    def told(self, world: World) -> System:
        """The system with every parameter that was left open settled for this world."""
        if self.world is world:
            return self
        if world.actions:
            check_actions(self.protocol, self.structure, self.privacy)
            if self.window is not None:
                raise FedbanditError(
                    "window is refused where each action has a θ of its own: their blocks would be kept for each block "
                    "of time; use discount."
                )
        self._check_bound(world)
        self._check_sharing(world)
        seen = world
        spectrum = self.privacy.spectrum(world) or (self.ridge, self.ridge)
        world = replace(world, estimators=self.protocol.period, spectrum=spectrum)
        protocol = self.protocol.told(world)
        if isinstance(self.structure, OnGraph):
            world = replace(world, mixing=self.structure.mixing(world))
        releases = protocol.releases(world) + self._calls(world)
        if not (self.structure.separate or isinstance(self.structure, Clustering)):
            releases = world.horizon
        return replace(
            self,
            protocol=protocol,
            privacy=self.privacy.told(world, releases).planned(protocol.portions(world)),
            world=seen,
        )

    def _check_bound(self, world: World) -> None:
        """Noise in proportion to the longest context that there is would tell how long that is."""
        contexts = self.privacy.perturbs == "statistics"  # elsewhere contexts are public
        if world.measured_bound and contexts and self.privacy.guarantee().basis == "proven":
            raise FedbanditError(
                f"{type(self.privacy).__name__} is refused: the bound L = {world.bound:g} on contexts was read off "
                "the data, and noise in proportion to it would tell about them; declare one with bound=…."
            )

    def _check_sharing(self, world: World) -> None:
        """A coordinator that keeps the sums of groups alone has nothing for a sharing that looks at members."""
        structure, usual = self.structure, type(self.structure).sharing is Structure.sharing
        if structure.separate and structure.by_member and usual:
            raise FedbanditError(
                f"{type(structure).__name__} says by_member, but has no sharing that looks at members, so everybody "
                "would share; write sharing(self, world, ridge), or groups(self, world) without by_member."
            )
        if not structure.separate or structure.by_member:
            return
        known_groups(structure, world)
        if usual:
            return
        sharing = structure.sharing(self.as_seen(world), self.ridge)
        if not isinstance(sharing, Groups):
            raise FedbanditError(
                f"{type(structure).__name__}.sharing returns {type(sharing).__name__}, which looks at members one by "
                "one, but by_member is False, so nobody would ever share; write by_member: ClassVar[bool] = True."
            )

    def _calls(self, world: World) -> int:
        """How often a sharing has everybody upload, beside what the protocol does."""
        calls = 0
        if self.structure.separate and self.privacy.perturbs == "statistics":
            wakes = Wakes(self.sharing(world))
            done = wakes.after(0)
            while done <= world.horizon // world.per_round:
                calls, done = calls + 1, wakes.after(done)
        return calls

    def as_seen(self, world: World) -> World:
        """The world as a policy sees it: noise on rewards adds to their own (Laplace(s) has the variance 2s²)."""
        return replace(world, noise=math.hypot(world.noise, math.sqrt(2) * self.privacy.reward_rule.scale))

    def sharing(self, world: World) -> Sharing:
        """Who is sent what; under privacy a member that keeps its own data is sent the others'."""
        talks = self.protocol.says in ("upload", "request")
        waits = self.privacy.perturbs == "statistics" and self.structure.fresh and self.privacy.waits
        if talks and not self.structure.by_member and (self.privacy.pooled or waits):
            groups = self.structure.groups(world)
            if self.privacy.pooled and int(groups.max()) > 0:
                raise FedbanditError(
                    f"{type(self.structure).__name__} makes {int(groups.max()) + 1} groups, but a noisy total is one "
                    "of everybody; use trust='nobody', or a federation for each group."
                )
            return NoisyTotals(groups, world.n_clients)
        if self.privacy.keeps_own and self.structure.fresh and talks and not self.structure.by_member:
            return Others(self.structure.groups(world), world.n_clients)
        prior = self.privacy.prior(self.ridge)
        if prior is not None:
            return GroupsWithPrior(self.structure.groups(world), world.n_clients, prior)
        return self.structure.sharing(self.as_seen(world), self.ridge)

    def knows_members(self, world: World) -> bool:
        """Whether the coordinator keeps what each member has released, not only the sums of groups."""
        return self.structure.separate and not isinstance(self.sharing(world), Groups)

    def model(self, world: World, member: int) -> LocalModel:
        """What a client of a system that was told the world chooses with, before it has heard anything."""
        if self.structure.fresh and self.privacy.waits:
            return RidgeModel(world.dim, self.ridge, fresh=False)
        forgetting = self.forgetting(world)
        if isinstance(forgetting, TimeBlocks):
            return WindowModel(world.dim, self.ridge, forgetting)
        return self.structure.model(self.as_seen(world), member, self.ridge)

    @property
    def explorer(self) -> Policy:
        """How clients choose while a structure has them explore: at random, or what they know least about."""
        return Widest() if self.structure.explore == "widest" else Uniform()

    def pool_noise(self) -> Noise | None:
        """What a coordinator knows about the noise in sums of uploads; of a system that was told the world."""
        return self.privacy.pool_noise(together=self.protocol.says == "request")

    def coordinator(
        self, world: World, seed: int = 0, source: Callable[[int], Source] | None = None
    ) -> Coordinator | None:
        """The coordinator's machine of a system that was told the world; None if it has none.

        It draws noise if it is the one that is trusted to: from `source`, or as a simulation of this seed does.
        """
        dim = self.structure.shared_dim(world)
        machine = self.protocol.coordinator(self.sharing(world), world, dim, self.ridge, self.pool_noise())
        if machine is not None:
            machine.forget_by(self.forgetting(world))
        if machine is not None and self.privacy.pooled:
            total = self.privacy.total(source or partial(generator, seed, Purpose.NOISE, world.n_clients))
            machine.pool = None if total is None else Pool(total)
        elif machine is not None and self.privacy.site == "coordinator":
            machine.privatise = lambda i: self.privacy.stream(i, partial(generator, seed, Purpose.NOISE, i))
        return machine

    def parameters(self) -> dict[str, object]:
        """All parameters, flat, as plain values: for reports, files and fingerprints."""
        flat: dict[str, object] = {"ridge": float(self.ridge)}
        if self.discount != 1.0:
            flat["discount"] = self.discount
        if self.window is not None:
            flat["window"] = self.window
        for role in ("policy", "protocol", "structure", "privacy"):
            part = getattr(self, role)
            flat[role] = type(part).__name__
            if is_dataclass(part):
                for parameter in fields(part):
                    value = getattr(part, parameter.name)
                    if not isinstance(value, World):
                        flat[f"{role}.{parameter.name}"] = plain_value(value)
        return flat


def check_system(system: object) -> None:
    """Refuse what is not a system, such as a preset that was not called."""
    if isinstance(system, System):
        return
    name = system if isinstance(system, str) else getattr(system, "__name__", "")
    call = f", as fb.{name.replace('-', '_')}()" if name.replace("-", "_").isidentifier() else ""
    raise FedbanditError(
        f"The system is {shown(system)}, but must be a System; did you forget to call the preset{call}?"
    )


def check_systems(systems: object) -> None:
    """Refuse what is not a list of systems, nor systems by name."""
    if isinstance(systems, System | str) or not isinstance(systems, Collection):
        raise FedbanditError(f"systems is {shown(systems)}, but must be a list of systems such as [fb.linucb()].")
    for system in systems.values() if isinstance(systems, Mapping) else systems:
        check_system(system)
    if not systems:
        raise FedbanditError("There is no system to compare; name at least one.")


def plain_value(value: object) -> object:
    """A parameter as it is written down: arrays as lists, functions by their names."""
    if isinstance(value, FunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    if callable(value) and not is_dataclass(value):
        return type(value).__name__
    return value.tolist() if hasattr(value, "tolist") else value
