"""Everything that leaves a client, as whoever it speaks with sees it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection
from typing import NamedTuple, Protocol

import numpy as np

from fedbandit.audit.neighbours import History
from fedbandit.errors import FedbanditError
from fedbandit.machines.client import ClientMachine
from fedbandit.messages import Collect, Contribution, Download, Message, Request, Upload, encode
from fedbandit.model import RidgeModel
from fedbandit.privacy.noise import Source
from fedbandit.sums import Sums
from fedbandit.types import Array


class MakeMachine(Protocol):
    """A fresh client from a seed, with noise from a source of its own or that of the seed; tests plant faults here."""

    def __call__(self, seed: int, source: Source | None = None) -> ClientMachine:
        """The client."""
        ...


HEAR_EVERY = 7
"""Rounds between two downloads, where there are any."""


class Seen(NamedTuple):
    """What an observer has of one run."""

    plain: tuple[tuple[object, ...], ...]
    """When each message came, what kind it was, and every number in it that is not a statistic."""
    V: Array  # (releases, d, d) running sums of what was uploaded
    b: Array  # (releases, d)
    n: tuple[int, ...]  # interactions in each release
    sent: tuple[bytes, ...]  # uploads, encoded when they were first sent


def observe_client(
    client: ClientMachine,
    history: History,
    *,
    ask: bool = False,
    calls: Collection[int] = (),
    hears: bool | None = None,
    crash: Callable[[ClientMachine], ClientMachine] | None = None,
) -> Seen:
    """Let a client live through a history, with a coordinator that answers requests at once.

    It asks for an upload after the rounds `calls`, which a coordinator's clock has it ask for; with `ask`, after every
    interaction. It sends nothing, or if `hears` is not None, now and then a download of public numbers (that are said
    to contain the client's own, or not). The reward nan never comes. After whatever it says the client may `crash`, and
    another one goes on.
    """
    messages: list[tuple[int, Message, bytes]] = []
    epoch = 0
    for t, (x, y) in enumerate(history):
        choice = client.select(x[None])
        sent = [] if math.isnan(y) else client.observe(choice.number, y)
        messages += [(t, message, encode(message)) for message in sent]
        if ask or t + 1 in calls or any(isinstance(message, Request) for message in sent):
            epoch += 1
            answers = client.receive(Collect(client.member, epoch))
            messages += [(t, message, encode(message)) for message in answers]
            sent = [*sent, *answers]
        if hears is not None and t % HEAR_EVERY == HEAR_EVERY - 1:
            client.receive(_download(client, t, own=hears))
        if crash is not None and sent:
            client = crash(client)
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


def uploads_of(
    client: ClientMachine, history: History, *, calls: Collection[int] = (), ask: bool = False
) -> list[Sums]:
    """What a client tells a coordinator that it trusts, upload by upload."""
    told: list[Sums] = []
    epoch = 0
    for t, (x, y) in enumerate(history):
        said = client.observe(client.select(x[None]).number, y)
        if ask or t + 1 in calls or any(isinstance(message, Request) for message in said):
            epoch += 1
            said = [*said, *client.receive(Collect(client.member, epoch))]
        told += [message.sums for message in said if isinstance(message, Upload) and message.sums.n > 0]
    return told


def _download(client: ClientMachine, t: int, *, own: bool) -> Download:
    """What an attacker may send at any time: other people's statistics, the same in both worlds."""
    d = client.dim
    sums = Sums((t + 1.0) * np.eye(d), np.full(d, 0.1 * (t + 1)), d * (t + 1))
    return Download(client.member, client.version + 1, client.sequence, sums, own=own)  # nothing is on top


def _plain(message: Message) -> tuple[object, ...]:
    if isinstance(message, Upload):
        return message.sequence, message.known, message.sums.n
    if isinstance(message, Contribution):
        return message.epoch, message.n, message.words.shape, message.excess.shape
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
