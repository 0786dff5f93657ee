"""The client for asyncio programs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from numpy.typing import ArrayLike

from fedbandit.errors import FedbanditError
from fedbandit.features import Features
from fedbandit.network.client.choices import Arm, Ranking
from fedbandit.network.client.client import Client
from fedbandit.network.invitation import Agreement
from fedbandit.privacy.guarantee import Guarantee
from fedbandit.types import Array


class AsyncClient:
    """The same client in an asyncio program: `select` and `rank` are immediate, whatever waits for a disk or a
    coordinator is awaited. Arguments and results are those of `Client`.

    ```python
    async with fb.AsyncClient(url, federation="shops", token=token, state="client.db") as client:
        arm = client.select(arms)
        await client.observe(reward, arm)
    ```
    """

    def __init__(self, url: str | Sequence[str] | None, **options: Any) -> None:
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
        await self.close()

    @property
    def _open(self) -> Client:
        if self.client is None:
            raise FedbanditError("The client is not open: use async with.")
        return self.client

    # Choosing and learning

    def select(self, arms: ArrayLike, *, actions: ArrayLike | None = None, explore: float = 0.0) -> Arm:
        """Choose one of the arms, now and then any of them."""
        return self._open.select(arms, actions=actions, explore=explore)

    def rank(self, arms: ArrayLike, *, actions: ArrayLike | None = None, explore: float = 0.0) -> Ranking:
        """Choose as `select` does, and say of every arm how probable it was and which reward is expected."""
        return self._open.rank(arms, actions=actions, explore=explore)

    async def observe(self, reward: float, choice: Arm | str) -> None:
        """Learn the reward of a choice."""
        await asyncio.to_thread(self._open.observe, reward, choice)

    async def redeem(self, reward: float, choice: Arm | str, features: ArrayLike, action: int | None = None) -> bool:
        """Learn the reward of the arm with these features in place of the one that was chosen."""
        return await asyncio.to_thread(self._open.redeem, reward, choice, features, action)

    def export(self, choice: Arm | str) -> str:
        """Hand a choice over as a token."""
        return self._open.export(choice)

    def forget(self, choice: Arm | str) -> None:
        """The reward of this choice will never come."""
        self._open.forget(choice)

    async def learn(self, contexts: ArrayLike, rewards: ArrayLike, *, actions: ArrayLike | None = None) -> None:
        """A warm start from past logs."""
        await asyncio.to_thread(self._open.learn, contexts, rewards, actions=actions)

    async def flush(self, timeout: float = 10.0) -> bool:
        """Wait until everything has been acknowledged."""
        return await asyncio.to_thread(self._open.flush, timeout)

    async def erase(self, timeout: float = 60.0) -> dict[str, Any]:
        """Have everything that this client has uploaded erased at the coordinator, and its own state; a receipt."""
        return await asyncio.to_thread(self._open.erase, timeout)

    async def close(self) -> None:
        """Stop talking and close the state."""
        await asyncio.to_thread(self._open.close)

    # What is going on

    def status(self) -> dict[str, Any]:
        """Plain numbers."""
        return self._open.status()

    @property
    def agreement(self) -> Agreement:
        """What all members of the federation have agreed on."""
        return self._open.agreement

    @property
    def features(self) -> Features | None:
        """How named values become features, if the federation has agreed on that."""
        return self._open.features

    @property
    def given(self) -> int:
        """How many features an arm has."""
        return self._open.given

    @property
    def alone(self) -> bool:
        """Whether it learns by itself, without a coordinator."""
        return self._open.alone

    @property
    def theta(self) -> Array:
        """The estimate θ̂ now."""
        return self._open.theta

    @property
    def connected(self) -> bool:
        """Whether the coordinator can be reached now."""
        return self._open.connected

    @property
    def problem(self) -> str | None:
        """A sentence if a person has to do something."""
        return self._open.problem

    @property
    def acquaintances(self) -> dict[int, str]:
        """Fingerprints of the keys by which this client knows the others in secure sums."""
        return self._open.acquaintances

    @property
    def guarantee(self) -> Guarantee:
        """What privacy holds for what leaves this client."""
        return self._open.guarantee
