"""Async-LinUCB (Li & Wang, 2022) and what it is compared with: learning alone, centrally, synchronously."""

from __future__ import annotations

from typing import Unpack

from fedbandit.policies import Uniform
from fedbandit.presets.compose import PRESETS, Common, compose, preset
from fedbandit.privacy import Privacy
from fedbandit.protocols import CountTriggered, EventTriggered, Factor, MessageProtocol, Never, Synchronous
from fedbandit.structures import Central, Everyone
from fedbandit.system import System


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
def sync_linucb(*, threshold: float | str | None = None, **common: Unpack[Common]) -> System:
    """Synchronous federated LinUCB, also called DisLinUCB (Async-LinUCB paper, Alg. 4)."""
    return compose(Synchronous(threshold), Everyone(), **common)


dislinucb = PRESETS["dislinucb"] = sync_linucb


@preset
def async_linucb(
    *,
    gamma_upload: Factor = 5.0,
    gamma_download: Factor = 5.0,
    warm_join: bool = False,
    privacy: Privacy | None = None,
    **common: Unpack[Common],
) -> System:
    """Asynchronous event-triggered federated LinUCB (Async-LinUCB, Alg. 1 and 2).

    With a `privacy` part that noises statistics, thresholds apply to numbers of observations instead of determinants:
    a client speaks when it has γ_U times as many, and 16 more at least, so that timing reveals nothing.
    """
    if privacy is not None and privacy.perturbs == "statistics" and privacy.guarantee().basis != "as published":
        protocol: MessageProtocol = CountTriggered(gamma_upload, gamma_download, warm_join, batch=16)
    else:
        protocol = EventTriggered(gamma_upload, gamma_download, warm_join)
    return compose(protocol, Everyone(), privacy, **common)


@preset
def count_linucb(
    *,
    factor_upload: Factor = 2.0,
    factor_download: Factor = 2.0,
    warm_join: bool = False,
    batch: int = 1,
    privacy: Privacy | None = None,
    **common: Unpack[Common],
) -> System:
    """Federated LinUCB that communicates by counts alone: the timing of messages reveals no data."""
    return compose(CountTriggered(factor_upload, factor_download, warm_join, batch), Everyone(), privacy, **common)
