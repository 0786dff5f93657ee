"""Async-LinUCB (Li & Wang, 2022) and what it is compared with: learning alone, centrally, synchronously; and its
form for clients that share a part of their model (Async-LinUCB-AM, §3.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import numpy as np

from fedbandit.errors import FedbanditError, shown
from fedbandit.policies import Uniform
from fedbandit.presets.compose import PRESETS, Common, compose, preset, trusting
from fedbandit.privacy import Privacy
from fedbandit.privacy.trust import Own, Trust
from fedbandit.protocols import CountTriggered, EventTriggered, Factor, MessageProtocol, Never, Scheduled, Synchronous
from fedbandit.structures import Central, Everyone, GlobalLocal
from fedbandit.system import System

BATCH = 16
"""The least number of observations between private releases."""


def by_the_clock(growth: Factor, batch: int) -> Scheduled:
    """Everybody at once, as totals of everybody need it, when counts have grown by one and the same number."""
    if isinstance(growth, str) or np.ndim(growth) > 0:
        raise FedbanditError(f"The upload factor is {shown(growth)}, but must be one number where all speak at once.")
    return Scheduled(float(growth), batch)  # type: ignore[arg-type]


@preset
def uniform() -> System:
    """Uniformly random arms: the yardstick."""
    return System(Uniform(), Never(), Everyone())


@preset
def linucb(**common: Unpack[Common]) -> System:
    """Independent LinUCB, one per client: no communication."""
    return compose(Never(), Everyone(), **common)


@preset
def linucb_central(**common: Unpack[Common]) -> System:
    """Centralised LinUCB: one model that sees all raw data; it exchanges no statistics, so none are counted."""
    return compose(Never(), Central(), **common)


@preset
def sync_linucb(*, threshold: float | str | None = None, warm_join: bool = False, **common: Unpack[Common]) -> System:
    """Synchronous federated LinUCB, also called DisLinUCB (Async-LinUCB paper, Alg. 4)."""
    return compose(Synchronous(threshold, warm_join=warm_join), Everyone(), **common)


dislinucb = PRESETS["dislinucb"] = sync_linucb


@preset
def async_linucb(
    *,
    gamma_upload: Factor = 5.0,
    gamma_download: Factor = 5.0,
    warm_join: bool = False,
    at_least: int = 1,
    privacy: Privacy | None = None,
    trust: Trust | None = None,
    own: Own | None = None,
    **common: Unpack[Common],
) -> System:
    """Asynchronous event-triggered federated LinUCB (Async-LinUCB, Alg. 1 and 2).

    `at_least` so many observations are in every upload: of a single one x and y can be read off.

    With a `privacy` part that noises statistics, thresholds apply to numbers of observations instead of determinants:
    a client speaks when it has γ_U times as many, and 16 more at least, so that timing reveals nothing. `trust` and
    `own` are those of that part; where sums or a coordinator are trusted everybody speaks at once, by the clock.
    """
    privacy = trusting(privacy, trust, own)
    if privacy is not None and privacy.pooled:
        return compose(by_the_clock(gamma_upload, max(BATCH, at_least)), Everyone(), privacy, **common)
    if privacy is not None and privacy.perturbs == "statistics" and privacy.guarantee().basis != "as published":
        batch = max(BATCH, at_least)
        protocol: MessageProtocol = CountTriggered(gamma_upload, gamma_download, warm_join, batch=batch)
    else:
        protocol = EventTriggered(gamma_upload, gamma_download, warm_join, at_least)
    return compose(protocol, Everyone(), privacy, **common)


@preset
def count_linucb(
    *,
    factor_upload: Factor = 2.0,
    factor_download: Factor = 2.0,
    warm_join: bool = False,
    batch: int = 1,
    privacy: Privacy | None = None,
    trust: Trust | None = None,
    own: Own | None = None,
    **common: Unpack[Common],
) -> System:
    """Federated LinUCB that communicates by counts alone: the timing of messages reveals no data.

    `trust` and `own` are those of the privacy part; where sums or a coordinator are trusted everybody speaks at once,
    by the clock: when the average count has grown by `factor_upload`, and by `batch` at least.
    """
    privacy = trusting(privacy, trust, own)
    if privacy is not None and privacy.pooled:
        return compose(by_the_clock(factor_upload, batch), Everyone(), privacy, **common)
    return compose(CountTriggered(factor_upload, factor_download, warm_join, batch), Everyone(), privacy, **common)


@preset
def async_linucb_am(
    *,
    gamma_upload: Factor = 5.0,
    gamma_download: Factor = 5.0,
    d_global: int | None = None,
    d_local: int | Sequence[int] | None = None,
    overlap: bool = False,
    startup: bool = True,
    projected: bool = False,
    partial_noise: float = 0.0,
    warm_join: bool = False,
    privacy: Privacy | None = None,
    **common: Unpack[Common],
) -> System:
    """Asynchronous federated LinUCB whose clients share a part of their model (Async-LinUCB-AM, Alg. 3 and 5).

    `projected=True` splits rewards as Eq. (7) is printed, by generalised inverses and projections to the unit ball;
    `partial_noise=2` is the width of Lemma 3.3. See `structures.GlobalLocal`.
    """
    structure = GlobalLocal(d_global, d_local, overlap, startup, partial_noise, projected)
    return compose(EventTriggered(gamma_upload, gamma_download, warm_join), structure, privacy, **common)
