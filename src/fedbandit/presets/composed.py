"""A system of parts by name, for the command line and for configurations."""

from __future__ import annotations

from fedbandit.parts import build_part
from fedbandit.policies import POLICIES
from fedbandit.presets.compose import preset
from fedbandit.privacy import PRIVACIES
from fedbandit.protocols import PROTOCOLS
from fedbandit.structures import STRUCTURES
from fedbandit.structures.held import HeldByCoordinator
from fedbandit.system import System


@preset
def composed(
    *,
    policy: str = "ucb",
    protocol: str = "never",
    structure: str = "everyone",
    privacy: str = "no-privacy",
    ridge: float = 0.1,
) -> System:
    """Any four parts by name: --protocol "count-triggered(batch=5)" --structure "evidence-clusters(recluster=2)".

    A part in a file of yours: --structure my.py:MyClusters. What there is: `fedbandit list structures`.

    >>> composed(policy="lints(alpha=0.1)", protocol="synchronous(threshold=2)").policy
    LinTS(alpha=0.1, noise=None, confidence=0.1)
    """
    return System(
        build_part("policy", policy, POLICIES),
        build_part("protocol", protocol, PROTOCOLS),
        build_part("structure", structure, {**STRUCTURES, "held-by-coordinator": HeldByCoordinator}),
        build_part("privacy", privacy, PRIVACIES),
        ridge,
    )
