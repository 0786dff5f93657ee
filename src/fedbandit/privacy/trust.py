"""Who is trusted, what a client chooses by, and how claims say it."""

from __future__ import annotations

from typing import Literal

Trust = Literal["nobody", "sums", "coordinator"]
TRUSTS = ("nobody", "sums", "coordinator")
Own = Literal["exact", "released"]
OWN = ("exact", "released")

MANY = 100
"""Clients from which on choosing by releases alone costs little, if they share one client's noise."""

PROOFS = {"nobody": "Noise on statistics", "sums": "Secure sums", "coordinator": "A trusted coordinator"}
"""Headings of docs/privacy-proofs.md."""

PUBLIC = ("that and when it took part", "how many rewards it observed")
"""What no claim hides; the last one where counts are not padded."""


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
