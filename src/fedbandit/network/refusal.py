"""Why a coordinator refuses a message: a sentence, a kind for counting, and an HTTP status."""

from __future__ import annotations

from fedbandit.errors import FedbanditError

STATUS = {
    "malformed": 400,
    "credentials": 401,
    "role": 403,
    "identity": 403,
    "quarantined": 403,
    "unknown": 404,
    "session": 409,
    "order": 409,
    "terms": 409,
    "horizon": 409,
    "sum": 409,
    "erasure": 409,
    "size": 413,
    "elsewhere": 421,
    "statistics": 422,
    "version": 426,
    "rate": 429,
    "weight": 429,
    "unavailable": 503,
}
"""The kinds of refusal. A client may try again after those in `TRANSIENT`; after `terms` it asks for the invitation
again, after `elsewhere` it goes to the `owner`; the others need a person."""

TRANSIENT = frozenset({"order", "rate", "weight", "unavailable", "elsewhere"})


class Refusal(FedbanditError):
    """A message that was refused; nothing has changed.

    >>> Refusal("statistics", "The trace is 7, but 3 contexts allow at most 3.").status
    422
    """

    def __init__(self, kind: str, sentence: str, owner: str = "") -> None:
        super().__init__(sentence)
        self.kind = kind
        self.status = STATUS[kind]
        self.owner = owner
        """Elsewhere: the address of the coordinator to ask instead, empty if it is not known."""


def as_json(refusal: Refusal) -> dict[str, str]:
    """A refusal as clients read it."""
    owner = {"owner": refusal.owner} if refusal.owner else {}
    return {"error": str(refusal), "kind": refusal.kind, **owner}
