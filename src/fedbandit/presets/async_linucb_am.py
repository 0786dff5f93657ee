"""Async-LinUCB-AM (Li & Wang, 2022, §3.4): a shared and a personal part of every client's model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from fedbandit.presets.compose import Common, compose, preset
from fedbandit.privacy import Privacy
from fedbandit.protocols import EventTriggered, Factor
from fedbandit.structures import GlobalLocal
from fedbandit.system import System


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
