"""What a coordinator does for a federation unasked: see that its store can be written, and finish erasures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec

from fedbandit.errors import FedbanditError
from fedbandit.network.coordinator.erasure import compact, unfinished

if TYPE_CHECKING:
    from fedbandit.network.coordinator.host import HostedFederation

AGAIN_SECONDS = 15.0
"""How often a store that fails is tried where nobody else writes; less than a failure counts (`health.py`)."""
P = ParamSpec("P")
log = logging.getLogger("fedbandit.coordinator")


async def keep_up(hosted: HostedFederation) -> None:
    """For ever. What fails is in the log, on the page and in /healthz by then (`HostedFederation.do`)."""
    federation = hosted.federation
    await _try(hosted, federation.prove)
    if unfinished(federation):
        await _try(hosted, compact, federation)
    while True:
        await asyncio.sleep(AGAIN_SECONDS)
        if hosted.health.failing is not None or federation.journal.behind:  # what is shown is old until it is read
            await _try(hosted, federation.prove)


async def _try(hosted: HostedFederation, function: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    try:
        await hosted.do(function, *args, **kwargs)
    except FedbanditError:
        pass
    except Exception:
        log.exception("a fault in the coordinator", extra={"federation": hosted.federation.name})
