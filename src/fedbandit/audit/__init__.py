"""Attacks on whole systems: is what they claim about privacy true of what their clients really send?

`audit_system` tells a system its world and attacks, knowing everything but which of two neighbouring histories a client
had: the mechanism it would use (likelihood ratios, and the exact ε of what it releases), its source of noise, a real
`ClientMachine` over its life (contents, times, counts, choices, retries, restarts, bounds, its ledger), other members,
peers, and coordinators that draw noise. `attack` is for mechanisms of others: anything that can be called.
"""

from fedbandit.audit.black_box import attack
from fedbandit.audit.report import AuditReport, Check
from fedbandit.audit.run import audit_system, private_systems

__all__ = ["AuditReport", "Check", "attack", "audit_system", "private_systems"]
