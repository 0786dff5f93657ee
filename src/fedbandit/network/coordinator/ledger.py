"""What is claimed for the clients of a private federation, and what each has spent."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fedbandit.network.coordinator.federation import Federation
from fedbandit.network.coordinator.register import MemberRecord
from fedbandit.privacy import PrivateStatistics
from fedbandit.privacy.calibration import gaussian_epsilon
from fedbandit.privacy.guarantee import Guarantee
from fedbandit.privacy.mechanism import distance


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
    compose, √lives for Gaussian noise (`privacy.account`), and so does a copy of its file whose uploads were seen.
    Where each reward is noised by itself, each has the whole ε from the beginning. Of a relay: what a client below it
    can have spent at most, if none of them has lost its file; which have, and what each has spent, the relay knows.
    """
    claim, privacy = federation.system.guarantee, federation.system.privacy
    lives = max(len(record.given_up) + record.joined, 1)
    spent = lives * claim.epsilon if record.releases else 0.0
    relayed = record.member in federation.machine.members.told
    if isinstance(privacy, PrivateStatistics) and not relayed:
        key = (id(privacy), record.member if len(privacy.mechanisms) > 1 else 0, record.releases, lives)
        if key not in _SPENT:
            mechanism = privacy.mechanism_of(record.member)
            far = distance(mechanism, releases=min(record.releases, mechanism.n_max)) if record.releases else 0.0
            _SPENT[key] = gaussian_epsilon(math.sqrt(lives) * far, claim.delta) if far else 0.0
        spent = _SPENT[key]
    budget = {"epsilon": claim.epsilon, "delta": claim.delta}
    return {**budget, "releases": record.releases, "lives": lives, "spent": spent}


_SPENT: dict[tuple[int, int, int, int], float] = {}
