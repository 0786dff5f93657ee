"""Attacks on whole systems: is what they claim about privacy true of what their clients really send?

`audit_system` tells a system its world and attacks two things, knowing everything but which of two neighbouring
histories a client had: the mechanism it would use (likelihood ratios, and the exact distance of what it releases), and
a real `ClientMachine` (everything that leaves it: contents, times, counts, retries).
"""

from fedbandit.audit.report import AuditReport, Check
from fedbandit.audit.run import audit_system, private_systems

__all__ = ["AuditReport", "Check", "audit_system", "private_systems"]
