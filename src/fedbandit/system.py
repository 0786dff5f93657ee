"""A system is four orthogonal parts: policy, protocol, structure and privacy."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, replace

from fedbandit.errors import FedbanditError, number
from fedbandit.policies import UCB, Policy
from fedbandit.privacy import Guarantee, NoPrivacy, Privacy
from fedbandit.protocols import MessageProtocol, Never
from fedbandit.structures import Clustering, Everyone, Structure
from fedbandit.world import World


@dataclass(frozen=True)
class System:
    """Four parts and the ridge λ they share. Pairs that make no sense are refused with the reason.

    >>> from fedbandit.protocols import EventTriggered
    >>> System(UCB(), EventTriggered(gamma_upload=2.0, gamma_download=2.0)).guarantee
    Guarantee(basis='none', protects='nothing', against='nobody', neighbours='', epsilon=inf, delta=0.0)
    """

    policy: Policy = field(default_factory=UCB)
    protocol: MessageProtocol = field(default_factory=Never)
    structure: Structure = field(default_factory=Everyone)
    privacy: Privacy = field(default_factory=NoPrivacy)
    ridge: float = 0.1
    name: str = "custom"

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
                f"{parts} is refused: one model row serves all clients, so there is nobody to exchange statistics "
                "with; use the protocol Never, or a structure with a row for each client."
            )

    def _check_clustering(self, structure: Clustering, parts: str) -> None:
        speaks = self.protocol.says != "nothing"
        if speaks and not structure.federated:
            raise FedbanditError(
                f"{parts} is refused: every local server clusters its own users and nobody coordinates them; use the "
                "protocol Never."
            )
        if structure.federated and not speaks:
            raise FedbanditError(
                f"{parts} is refused: local clusters of different servers share through a coordinator; use a protocol "
                "that speaks, such as EventTriggered."
            )
        if self.privacy.site != "nowhere":
            raise FedbanditError(
                f"{type(structure).__name__} with {type(self.privacy).__name__} is refused: clusters are found from "
                "raw statistics, whatever noise the uploads have."
            )

    @property
    def guarantee(self) -> Guarantee:
        """What privacy holds."""
        return self.privacy.guarantee()

    def told(self, world: World) -> System:
        """The system with every parameter that was left open settled for this world."""
        return replace(self, protocol=self.protocol.told(world))

    def parameters(self) -> dict[str, object]:
        """All parameters, flat, as plain values: for reports, files and fingerprints."""
        flat: dict[str, object] = {"ridge": float(self.ridge)}
        for role in ("policy", "protocol", "structure", "privacy"):
            part = getattr(self, role)
            flat[role] = type(part).__name__
            if is_dataclass(part):
                for parameter in fields(part):
                    value = getattr(part, parameter.name)
                    flat[f"{role}.{parameter.name}"] = value.tolist() if hasattr(value, "tolist") else value
        return flat
