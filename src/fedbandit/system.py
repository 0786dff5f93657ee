"""A system is four orthogonal parts: policy, protocol, structure and privacy."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from types import FunctionType

from fedbandit.errors import FedbanditError, number
from fedbandit.policies import UCB, Policy, Uniform, Widest
from fedbandit.privacy import Guarantee, NoPrivacy, Privacy
from fedbandit.protocols import Coordinator, MessageProtocol, Never
from fedbandit.sharing import Groups, Noise, Others, Sharing
from fedbandit.streams import Purpose, generator
from fedbandit.structures import Alone, Clustering, Everyone, GlobalLocal, OnGraph, Structure
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

    def __post_init__(self) -> None:
        """Check each part and the pairs."""
        for role, part, kind in (
            ("policy", self.policy, Policy),
            ("protocol", self.protocol, MessageProtocol),
            ("structure", self.structure, Structure),
            ("privacy", self.privacy, Privacy),
        ):
            if not isinstance(part, kind) or isinstance(part, type):
                raise FedbanditError(f"The {role} of a system is {part!r}, which is not a {kind.__name__} instance.")
        number(self.ridge, "ridge", "a finite number ≥ 1e-12", at_least=1e-12)
        self._check_pairs()

    def _check_pairs(self) -> None:
        parts = f"{type(self.structure).__name__} with {type(self.protocol).__name__}"
        speaks = self.protocol.says != "nothing"
        if isinstance(self.structure, Clustering):
            self._check_clustering(self.structure, parts)
        elif not self.structure.separate and speaks:
            raise FedbanditError(
                f"{parts} is refused: one model serves all clients, so there is nobody to exchange statistics "
                "with; use the protocol Never, or a structure with a row for each client."
            )

        if self.protocol.one_by_one and not self.structure.by_member:
            raise FedbanditError(
                f"{parts} is refused: this coordinator forms groups of members whom it knows one by one; use a "
                "structure that says how, such as HomogeneityCliques or EvidenceClusters."
            )
        if isinstance(self.structure, OnGraph) and self.structure.separate and self.protocol.says != "upload":
            raise FedbanditError(
                f"{parts} is refused: users on a graph that keep their own data need a protocol in which they upload, "
                "such as EventTriggered; or central=True, with Never."
            )
        if self.structure.by_member and self.protocol.says not in ("upload", "request"):
            raise FedbanditError(
                f"{parts} is refused: groups are found by a coordinator, and this protocol has none; use ServerQueue, "
                "Scheduled, Synchronous, EventTriggered or CountTriggered."
            )
        if self.privacy.perturbs == "statistics" and not isinstance(self.structure, Clustering):
            self._check_soundness()
        if self.privacy.perturbs == "reward sums":
            self._check_reward_sums()

    def _check_reward_sums(self) -> None:
        """Contexts of chosen arms are sent as they are, so choices must depend on rewards through releases only."""
        claim, parts = self.privacy.guarantee(), f"{type(self.privacy).__name__} with {type(self.structure).__name__}"
        if not self.structure.separate:
            if not isinstance(self.structure, OnGraph):
                raise FedbanditError(f"{parts} is refused: sums of rewards are released of users on a graph only.")
            return
        if claim.basis == "as published":
            raise FedbanditError(f"{parts} is refused: the paper's noise is on the model of all users in one place.")
        if self.structure.fresh:
            raise FedbanditError(
                f"{parts} is refused: a model that learns from its own rewards at once chooses arms, whose contexts it "
                "sends as they are, by rewards that were not noised; use a structure with fresh=False, or NoisyRewards."
            )
        if self.protocol.reads != "counts":
            raise FedbanditError(
                f"{parts} needs a protocol that reads counts, such as CountTriggered: a model that waits for releases "
                "has no determinant that grows by itself."
            )
        if self.privacy.site == "coordinator" and not self.structure.by_member:
            raise FedbanditError(f"{parts} is refused: a coordinator that draws noise has to know its members.")

    def _check_soundness(self) -> None:
        """A mechanism's claim is worth nothing if something else tells what it hides."""
        claim, parts = self.privacy.guarantee(), f"{type(self.privacy).__name__} with {type(self.protocol).__name__}"
        if self.privacy.site == "node":
            raise FedbanditError(
                f"{type(self.privacy).__name__} with {type(self.structure).__name__} is refused: its noise is that of "
                "local servers which cluster their users, as PhasedClusters does."
            )
        if isinstance(self.structure, OnGraph):
            raise FedbanditError(
                f"{parts} is refused on a graph of users: noise in V would make its kernel indefinite; protect rewards "
                "(PrivateRewards) instead."
            )
        if isinstance(self.structure, GlobalLocal):
            raise FedbanditError(
                f"{parts} is refused for a model in two parts: what is shared holds estimates made with the personal "
                "part, whose sensitivity is not known; protect rewards (NoisyRewards) instead."
            )
        if not self.structure.separate or self.protocol.says == "nothing":
            raise FedbanditError(
                f"{parts} is refused: nothing is ever released, so there is nothing to make private; to protect the "
                "model of a client that learns alone, use the structure Alone with CountTriggered (preset dp_linucb)."
            )
        if self.privacy.contribution is not None and self.protocol.period > 1:
            raise FedbanditError(
                f"{parts} is refused: a client has {self.protocol.period} estimators with a stream each, so that "
                "`contribution` would not bound what it contributes; use ttl=1, or one interaction as the unit."
            )
        if claim.basis == "proven" and self.protocol.reads == "raw":
            raise FedbanditError(
                f"{parts} is refused under calibration 'proven': its trigger reads raw data, so the times at which a "
                "client speaks depend on single records and no finite ε holds; use CountTriggered, or Synchronous with "
                "growth=…, whose triggers read public counts only."
            )

    def _check_clustering(self, structure: Clustering, parts: str) -> None:
        speaks = self.protocol.says != "nothing"
        if speaks and not structure.federated:
            raise FedbanditError(
                f"{parts} is refused: every local server clusters its own users and nobody coordinates them; use the "
                "protocol Never."
            )
        if structure.federated and self.protocol.says not in ("upload", "request"):
            raise FedbanditError(
                f"{parts} is refused: local clusters of different servers share through a coordinator; use a protocol "
                "that speaks to one, such as EventTriggered."
            )
        if self.privacy.perturbs != "statistics":
            return
        pair = f"{type(structure).__name__} with {type(self.privacy).__name__}"
        if self.privacy.guarantee().basis == "proven":
            raise FedbanditError(
                f"{pair} is refused under calibration 'proven': users are clustered by raw statistics, which their "
                "uploads then tell, and clusters that change would release old records again; use ReleasedPhases, "
                "which clusters users by what each of them has released."
            )
        if self.privacy.site != "node" or not structure.federated:
            raise FedbanditError(
                f"{pair} is refused: here sums of local clusters are uploaded, and nobody knows how to noise those but "
                "PublishedClusters, with PhasedClusters."
            )

    @property
    def guarantee(self) -> Guarantee:
        """What privacy holds."""
        claim = self._as_composed(self.privacy.guarantee())
        if claim.basis == "as published" and self.privacy.perturbs == "statistics" and self.protocol.reads == "raw":
            remark = claim.remark or "its trigger reads raw data, so timing leaks"
            return replace(claim, true_epsilon=math.inf, remark=remark)
        if claim.basis == "none" and self.protocol.says == "nothing":
            where = "nothing leaves the clients" if self.structure.separate else "all data is in one place"
            if isinstance(self.structure, Clustering):
                where = "local servers have all data of their users"
            return replace(claim, remark=f"{where}, and nothing is noised")
        return claim

    def _as_composed(self, claim: Guarantee) -> Guarantee:
        """Who sees what, and what choices tell, follow from protocol and structure."""
        if not claim.private or self.privacy.perturbs != "statistics":
            return claim
        if self.protocol.says == "gossip":
            claim = replace(claim, against="all other clients")
        if isinstance(self.structure, Alone):  # nothing is sent: what is seen of a client are its choices
            seen = "everybody who sees its model, or arms chosen in other rounds"
            claim = replace(claim, definition="joint", own="released", against=seen, proof="Choices by releases alone")
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
        seen = world
        protocol = self.protocol.told(world)
        if isinstance(self.structure, OnGraph):
            world = replace(world, mixing=self.structure.mixing(world))
        releases = protocol.releases(world) + self._calls(world)
        if not (self.structure.separate or isinstance(self.structure, Clustering)):
            releases = world.horizon
        return replace(self, protocol=protocol, privacy=self.privacy.told(world, releases), world=seen)

    def _calls(self, world: World) -> int:
        """How often a sharing has everybody upload, beside what the protocol does."""
        calls = 0
        if self.structure.separate and self.privacy.perturbs == "statistics":
            sharing = self.sharing(world)
            done = sharing.next_wake(0)
            while done <= world.horizon // world.per_round:
                calls, done = calls + 1, sharing.next_wake(done)
        return calls

    def as_seen(self, world: World) -> World:
        """The world as a policy sees it: noise on rewards adds to their own (Laplace(s) has the variance 2s²)."""
        return replace(world, noise=math.hypot(world.noise, math.sqrt(2) * self.privacy.reward_rule.scale))

    def sharing(self, world: World) -> Sharing:
        """Who is sent what; under privacy a member that keeps its own data is sent the others'."""
        talks = self.protocol.says in ("upload", "request")
        if self.privacy.keeps_own and self.structure.fresh and talks and not self.structure.by_member:
            return Others(self.structure.groups(world), world.n_clients)
        return self.structure.sharing(self.as_seen(world), self.ridge)

    def knows_members(self, world: World) -> bool:
        """Whether the coordinator keeps what each member has released, not only the sums of groups."""
        return self.structure.separate and not isinstance(self.sharing(world), Groups)

    @property
    def explorer(self) -> Policy:
        """How clients choose while a structure has them explore: at random, or what they know least about."""
        return Widest() if self.structure.explore == "widest" else Uniform()

    def pool_noise(self) -> Noise | None:
        """What a coordinator knows about the noise in sums of uploads; of a system that was told the world."""
        return self.privacy.pool_noise(together=self.protocol.says == "request")

    def coordinator(self, world: World, seed: int = 0) -> Coordinator | None:
        """The coordinator's machine of a system that was told the world; None if it has none.

        It draws noise if it is the one that is trusted to.
        """
        dim = self.structure.shared_dim(world)
        machine = self.protocol.coordinator(self.sharing(world), world, dim, self.ridge, self.pool_noise())
        if machine is not None and self.privacy.site == "coordinator":
            machine.privatise = lambda i: self.privacy.stream(i, partial(generator, seed, Purpose.NOISE, i))
        return machine

    def parameters(self) -> dict[str, object]:
        """All parameters, flat, as plain values: for reports, files and fingerprints."""
        flat: dict[str, object] = {"ridge": float(self.ridge)}
        for role in ("policy", "protocol", "structure", "privacy"):
            part = getattr(self, role)
            flat[role] = type(part).__name__
            if is_dataclass(part):
                for parameter in fields(part):
                    value = getattr(part, parameter.name)
                    if not isinstance(value, World):
                        flat[f"{role}.{parameter.name}"] = plain_value(value)
        return flat


def plain_value(value: object) -> object:
    """A parameter as it is written down: arrays as lists, functions by their names."""
    if isinstance(value, FunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    if callable(value) and not is_dataclass(value):
        return type(value).__name__
    return value.tolist() if hasattr(value, "tolist") else value
