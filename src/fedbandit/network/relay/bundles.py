"""Steps of secure sums on their way up: those of many clients in one request, several times a second.

At N = 1,000 a client is told 0.4 megabytes in a sum, most of which all are told: the lists of keys, of who is left
and of signatures. In the answer to a bundle that is once. A step is sent once; of a bundle that is not answered, or
whose answer is lost, clients are told *unavailable*, as of any request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from fedbandit.errors import FedbanditError
from fedbandit.network.refusal import Refusal
from fedbandit.network.sums import MOST_IN_BUNDLE, MOST_STEPS, Outcome, SentStep, pack_steps, unpack_outcomes

BUNDLE_SECONDS = 0.1
log = logging.getLogger("fedbandit.relay")


class _Waiting(NamedTuple):
    step: SentStep
    outcome: asyncio.Future[Outcome]


class Bundles:
    """What waits to be sent. `send` posts a bundle, and gives the answer to it."""

    def __init__(self, send: Callable[[bytes], Awaitable[bytes]]) -> None:
        self._send = send
        self._waiting: deque[_Waiting] = deque()

    async def post(self, step: SentStep) -> Outcome:
        """What became of a client's step."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(step, future))
        return await future

    async def run(self) -> None:
        """Send what waits, for ever."""
        while True:
            await asyncio.sleep(BUNDLE_SECONDS)
            while self._waiting:
                await self._send_one(self._next())

    def _next(self) -> list[_Waiting]:
        bundle, size = list[_Waiting](), 0
        while self._waiting and size < MOST_IN_BUNDLE and len(bundle) < MOST_STEPS:
            bundle.append(self._waiting.popleft())
            size += len(pack_steps([bundle[-1].step]))
        return bundle

    async def _send_one(self, bundle: list[_Waiting]) -> None:
        try:
            outcomes = unpack_outcomes(await self._send(pack_steps([one.step for one in bundle])))
            if len(outcomes) != len(bundle):
                _do_not_fit(len(outcomes), len(bundle))
        except (Refusal, FedbanditError) as error:
            refusal = error if isinstance(error, Refusal) else Refusal("unavailable", str(error))
            for one in bundle:
                with contextlib.suppress(asyncio.InvalidStateError):  # a client that has gone does not wait
                    one.outcome.set_exception(refusal)
            return
        for one, outcome in zip(bundle, outcomes, strict=True):
            with contextlib.suppress(asyncio.InvalidStateError):
                one.outcome.set_result(outcome)


def _do_not_fit(answers: int, steps: int) -> None:
    raise FedbanditError(f"The coordinator above gave {answers} answers to {steps} steps.")
