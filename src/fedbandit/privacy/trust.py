"""Who is trusted, what a client chooses by, and how claims say it."""

from __future__ import annotations

from typing import Literal

Trust = Literal["nobody", "sums", "coordinator"]
TRUSTS = ("nobody", "sums", "coordinator")
Own = Literal["exact", "released"]
OWN = ("exact", "released")

ENOUGH = 30.0
"""N ε from which on choosing by releases alone costs little, if N clients share one client's noise.

A total of N clients' data has noise in proportion to 1/ε, so N ε is what it is worth. Measured in FedUCB's world with
secure sums (regret with own="released" over that with "exact", ε from 0.25 to 4, T = 250–1,000, one seed a run): from
N ε = 30 on 1.0–1.5 at d = 10 and 20; at d = 5 0.9–1.7 (geometric mean of nine runs: 1.30), at d = 3 once 1.55. Below,
1.3–4.7. The line was drawn on these very runs; of twelve held-out means just above it eleven are 1.22–1.47, one is 1.65
(docs/privacy.md). Exceptions: some runs at d ≤ 5 above 1.5; and N = 20, ε = 1 has 1.3–1.4
at d = 10 and 20, though "exact" is the default there (with the same N ε, N = 40, ε = 0.5 has 1.7, and N = 10, ε = 2 has
2.0, at d = 10)."""

PROOFS = {"nobody": "Noise on statistics", "sums": "Secure sums", "coordinator": "A trusted coordinator"}
"""Headings of docs/privacy-proofs.md."""

PUBLIC = ("that and when it took part", "how many rewards it observed")
"""What no claim hides; the last one where counts are not padded."""


def released_by_default(clients: int, epsilon: float) -> bool:
    """Whether "released" costs at most 1.5 times the regret of "exact", as far as is known.

    >>> released_by_default(30, 1.0), released_by_default(10, 1.0), released_by_default(50, 0.25)
    (True, False, False)
    """
    return clients * epsilon >= ENOUGH


def neighbours(*, padded: bool, contribution: int | None) -> str:
    """By how much two histories differ that must look alike."""
    if contribution is not None:
        return "replace a client's interactions"
    return "replace, add or remove one interaction" if padded else "replace one interaction"


def against(trust: Trust, honest: int | None = None, colluding: int | None = None) -> str:
    """Whom a claim protects from: the subject of its sentence.

    >>> print(against("sums", 160, 10))
    whoever sees all that is opened, also the coordinator with up to 10 other clients, while each sum has 160 honest \
clients or more
    """
    if trust == "coordinator":
        return "everybody but the coordinator, which sees exact statistics"
    if trust == "nobody":
        return "whoever sees everything that leaves the client"
    few = {0: "no other client", 1: "one other client"}
    others = "up to N/20 other clients" if colluding is None else few.get(colluding, f"up to {colluding} other clients")
    return (
        f"whoever sees all that is opened, also the coordinator with {others}, "
        f"while each sum has {'0.8 N' if honest is None else honest} honest clients or more"
    )
