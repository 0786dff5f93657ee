"""What is claimed for the clients of a private federation, and what each has spent."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from functools import lru_cache

import numpy as np

from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.register import MemberRecord
from fedbandit.privacy import PrivateStatistics
from fedbandit.privacy.calibration import gaussian_epsilon
from fedbandit.privacy.guarantee import Guarantee
from fedbandit.privacy.mechanism import Mechanism, distance


def claim_in_use(federation: Federation) -> Guarantee:
    """What holds for its clients: on a network noise is drawn securely, by them or by the coordinator."""
    claim = federation.system.guarantee
    if not claim.private:
        return claim
    stream = federation.system.privacy.stream(0, np.random.default_rng)  # nothing is drawn: it tells the kind of noise
    gamma = stream is not None and stream.mechanism.noise == "gamma"
    return replace(claim, noise="floating-point" if gamma else "secure")


def privacy_spent(federation: Federation, record: MemberRecord) -> dict[str, float]:
    """The budget of a client, its releases, and the ε that they amount to if it stopped now, over all its lives.

    A client that has lost its file begins a new stream, and may release the same records again (`Client.learn`): lives
    compose, √lives for Gaussian noise (`privacy.account`), and so does a copy of its file whose uploads were seen. At a
    trusted coordinator all lives are in one total, with one noise: there it is as many times the distance.
    Where each reward is noised by itself, each has the whole ε from the beginning. Of a relay: what a client below it
    can have spent at most, if none of them has lost its file; which have, and what each has spent, the relay knows.
    """
    claim, privacy = federation.system.guarantee, federation.system.privacy
    lives = max(len(record.given_up) + record.joined, 1)
    spent = lives * claim.epsilon if record.releases else 0.0
    relayed = record.member in federation.machine.members.told
    if isinstance(privacy, PrivateStatistics) and not relayed:
        releases = _releases(federation, privacy, record)
        together = lives if privacy.trust == "coordinator" else math.sqrt(lives)
        spent = _epsilon(privacy.mechanism_of(record.member), releases, together, claim.delta)
    budget = {"epsilon": claim.epsilon, "delta": claim.delta}
    return {**budget, "releases": record.releases, "lives": lives, "spent": spent}


def _releases(federation: Federation, privacy: PrivateStatistics, record: MemberRecord) -> int:
    """How many releases of its mechanism a client's records can be in by now.

    Its own uploads, where it noises them. What a trusted coordinator was told is in all that it publishes later. In
    secure sums a record may have its whole planned weight in one sum, and where a contribution is the unit a release
    may take the place of a later one: then all that were planned.
    """
    if record.releases == 0:
        return 0
    pool = federation.machine.pool
    if privacy.trust == "coordinator" and pool is not None:
        return pool.total.epoch
    return record.releases if privacy.trust == "nobody" and privacy.contribution is None else sys.maxsize


@lru_cache(maxsize=4096)
def _epsilon(mechanism: Mechanism, releases: int, together: float, delta: float) -> float:
    """Of so many releases of a mechanism, `together` times as far apart as one stream of them."""
    far = distance(mechanism, releases=min(releases, mechanism.n_max)) if releases else 0.0
    return gaussian_epsilon(together * far, delta) if far else 0.0
