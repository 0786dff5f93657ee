"""Everything that leaves a client, as whoever it speaks with sees it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np

from fedbandit.audit.neighbours import History
from fedbandit.errors import FedbanditError
from fedbandit.machines.client import ClientMachine
from fedbandit.messages import Collect, Message, Request, Upload, encode
from fedbandit.model import RidgeModel
from fedbandit.types import Array

MakeMachine = Callable[[int], ClientMachine]
"""A fresh client from a seed; tests plant faults here."""


class Seen(NamedTuple):
    """What an observer has of one run."""

    plain: tuple[tuple[object, ...], ...]
    """When each message came, what kind it was, and every number in it that is not a statistic."""
    V: Array  # (releases, d, d) running sums of what was uploaded
    b: Array  # (releases, d)
    n: tuple[int, ...]  # interactions in each release
    sent: tuple[bytes, ...]  # uploads, encoded when they were first sent


def observe_client(client: ClientMachine, history: History, *, ask: bool = False, calls: Collection[int] = ()) -> Seen:
    """Let a client live through a history, with a coordinator that answers requests at once.

    It never sends anything that would help the client, and asks for an upload after the rounds `calls`, which a
    coordinator's clock has it ask for; with `ask`, after every interaction.
    """
    messages: list[tuple[int, Message, bytes]] = []
    epoch = 0
    for t, (x, y) in enumerate(history):
        sent = client.observe(client.select(x[None]).number, y)
        messages += [(t, message, encode(message)) for message in sent]
        if ask or t + 1 in calls or any(isinstance(message, Request) for message in sent):
            epoch += 1
            answers = client.receive(Collect(client.member, epoch))
            messages += [(t, message, encode(message)) for message in answers]
    uploads = [message for _, message, _ in messages if isinstance(message, Upload)]
    released = [upload.sums for upload in uploads if upload.sums.n > 0]
    d = client.dim
    return Seen(
        tuple((t, type(message).__name__, *_plain(message)) for t, message, _ in messages),
        np.cumsum([sums.V for sums in released], axis=0).reshape(-1, d, d),
        np.cumsum([sums.b for sums in released], axis=0).reshape(-1, d),
        tuple(sums.n for sums in released),
        tuple(data for _, message, data in messages if isinstance(message, Upload)),
    )


def _plain(message: Message) -> tuple[object, ...]:
    if isinstance(message, Upload):
        return message.sequence, message.known, message.sums.n
    return dataclasses.astuple(message)


def learnt_b(client: ClientMachine) -> Array:
    """Σ x y of all that a client has learnt from."""
    model = client.model
    if not isinstance(model, RidgeModel):
        raise FedbanditError("A model in two parts has no single sum to read rewards off.")
    return model.b


def noised_rewards(client: ClientMachine, history: History) -> Array:
    """The rewards that a client learns from, which all else follows from: they are read off its sums."""
    b = np.zeros((len(history) + 1, client.dim))
    for t, (x, y) in enumerate(history):
        client.observe(client.select(x[None]).number, y)
        b[t + 1] = learnt_b(client)
    X = np.array([record.x for record in history])
    return np.asarray(np.einsum("ti,ti->t", np.diff(b, axis=0), X) / np.einsum("ti,ti->t", X, X))
