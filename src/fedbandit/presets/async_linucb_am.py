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
    warm_join: bool = False,
    privacy: Privacy | None = None,
    **common: Unpack[Common],
) -> System:
    """Asynchronous federated LinUCB whose clients share a part of their model (Async-LinUCB-AM, Alg. 3 and 5)."""
    structure = GlobalLocal(d_global, d_local, overlap, startup)
    return compose(EventTriggered(gamma_upload, gamma_download, warm_join), structure, privacy, **common)
