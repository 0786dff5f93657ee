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

CAUSES = {
    "malformed": "frames that are no messages: another program, or another version of the client",
    "credentials": "no token that is valid here: look at fedbandit keys list",
    "role": "a token for something else: look at fedbandit keys list; or a relay that is not named in relays",
    "identity": "no place is free, or the client's file is another member's: look at fedbandit members",
    "quarantined": "they are in quarantine",
    "unknown": "no such federation: look at their configuration",
    "session": "copies of a state or old ones, or two processes that use one",
    "order": "uploads came out of order; they come again",
    "terms": "they were invited under other terms: their files have to be migrated, or they are restarting",
    "horizon": "the horizon is reached: raise it",
    "sum": "they did not keep to the steps of a secure sum",
    "erasure": "what they ask to erase cannot be erased here",
    "size": "longer messages than a client of this federation can have",
    "elsewhere": "another coordinator has the federation; they go there",
    "statistics": "no observations can have led to what they say, no client releases so often, or clocks are ahead",
    "version": "a version of the client that is not spoken here: update it",
    "rate": "more observations, messages or connections than one client may have; they come again",
    "weight": "more of everything than weight allows one client; they come again",
    "unavailable": "the store cannot be written, or there is a fault: look at the log",
}
"""What an operator is told about each kind: no sentence that quotes a client's data."""

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
