"""The client for asyncio programs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from numpy.typing import ArrayLike

from fedbandit.errors import FedbanditError
from fedbandit.network.client.choices import Arm
from fedbandit.network.client.client import Client
from fedbandit.privacy.guarantee import Guarantee


class AsyncClient:
    """The same client in an asyncio program: `select` is immediate, whatever may touch a disk is awaited.

    ```python
    async with fb.AsyncClient(url, federation="shops", token=token, state="client.db") as client:
        arm = client.select(arms)
        await client.observe(reward, arm)
    ```
    """

    def __init__(self, url: str | Sequence[str], **options: Any) -> None:
        self._arguments = url, options
        self.client: Client | None = None

    async def __aenter__(self) -> Self:
        """Open the state, and at the very first start ask for the agreement."""
        url, options = self._arguments
        self.client = await asyncio.to_thread(Client, url, **options)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await asyncio.to_thread(self._open.close)

    @property
    def _open(self) -> Client:
        if self.client is None:
            raise FedbanditError("The client is not open: use async with.")
        return self.client

    def select(self, arms: ArrayLike, *, explore: float = 0.0) -> Arm:
        """Choose one of the arms, now and then any of them."""
        return self._open.select(arms, explore=explore)

    async def observe(self, reward: float, choice: Arm | str) -> None:
        """Learn the reward of a choice."""
        await asyncio.to_thread(self._open.observe, reward, choice)

    def export(self, choice: Arm | str) -> str:
        """Hand a choice over as a token."""
        return self._open.export(choice)

    def forget(self, choice: Arm | str) -> None:
        """The reward of this choice will never come."""
        self._open.forget(choice)

    async def learn(self, contexts: ArrayLike, rewards: ArrayLike) -> None:
        """A warm start from past logs."""
        await asyncio.to_thread(self._open.learn, contexts, rewards)

    async def flush(self, timeout: float = 10.0) -> bool:
        """Wait until everything has been acknowledged."""
        return await asyncio.to_thread(self._open.flush, timeout)

    def status(self) -> dict[str, Any]:
        """Plain numbers."""
        return self._open.status()

    @property
    def problem(self) -> str | None:
        """A sentence if a person has to do something."""
        return self._open.problem

    @property
    def guarantee(self) -> Guarantee:
        """What privacy holds for what leaves this client."""
        return self._open.guarantee
