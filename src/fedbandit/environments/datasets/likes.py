"""Users and the items they liked, replayed as a bandit: one liked item among others, reward 1 or 0."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from fedbandit.environments.block import Block, RewardKind, Unstructured
from fedbandit.errors import whole_number
from fedbandit.streams import Purpose, generator
from fedbandit.types import Array, Ints


@dataclass(frozen=True)
class LikedItems(Unstructured):
    """A data set of likes; made by `lastfm`, `delicious` and `movielens`.

    Each interaction of the data is offered once: the item that the user liked, and K − 1 items drawn from all that the
    user did not like, without replacement. The reward is 1 for the liked one and 0 for the others, so regret counts the
    rounds in which it was not chosen. The seed decides the order of interactions, the other items, and where among them
    the liked one stands (Cesa-Bianchi et al. 2013; Async-LinUCB App. H; private collaborative bandits §6.1).

    *Deviations.* D1: public code for this preparation draws the pools once and writes the liked item first; as ties go
    to the first arm, that gives it away while a client knows nothing. Here its place is random, and every seed draws
    anew.

    graph: W of the clients, rows sum to one, w_ij ∝ friendships between clusters i and j; None without clusters.
    edges: the numbers of friendships behind W, or None.
    notes: what was left out or done otherwise, as sentences.
    facts: what was counted while the data were read and prepared.
    """

    X: Array = field(repr=False)  # (R, d) contexts of items
    users: Ints = field(repr=False)  # (T,) whose interaction it is
    items: Ints = field(repr=False)  # (T,) row of X that was liked
    client_of: Ints = field(repr=False)  # (U,) client of each user
    liked_from: Ints = field(repr=False)  # (U + 1,) where each user's likes begin in `liked`
    liked: Ints = field(repr=False)  # rows of X that users liked, ascending within a user
    user_ids: Ints = field(repr=False)  # (U,) as in the files
    item_ids: Ints = field(repr=False)  # (R,)
    edges: Array | None = field(repr=False)
    graph: Array | None = field(repr=False)
    n_clients: int
    n_arms: int
    notes: tuple[str, ...] = field(repr=False)
    facts: dict[str, int] = field(repr=False)

    name: ClassVar[str]
    rounds: ClassVar[Literal["one", "all"]] = "one"
    declared_noise: ClassVar[float] = 0.5  # rewards are 0 or 1
    bound: ClassVar[float] = 1.0
    longest_delay: ClassVar[int] = 0

    @property
    def dim(self) -> int:
        """The length of a context."""
        return int(self.X.shape[1])

    @property
    def longest(self) -> int | None:
        """The interactions there are."""
        return len(self.users)

    @property
    def activity(self) -> Ints:
        """Interactions of each client."""
        return np.bincount(self.client_of[self.users], minlength=self.n_clients)

    def graph_of(self, seed: int) -> Array | None:  # noqa: ARG002
        """W, whatever the seed."""
        return self.graph

    def open(self, seed: int) -> LikedItemsStream:
        """The stream of a seed."""
        return LikedItemsStream(self, whole_number("seed", seed, 0))


class LikedItemsStream:
    """The interactions of a seed: shuffled, with items drawn chunk by chunk."""

    chunk = 4096
    draws_ahead = False

    def __init__(self, env: LikedItems, seed: int) -> None:
        self.env = env
        self.seed = seed
        self.order = generator(seed, Purpose.ARRIVALS).permutation(len(env.users))
        # A user's likes as the number of other items below each, so that a rank among the others becomes an item.
        below = env.liked - (np.arange(env.liked.size) - np.repeat(env.liked_from[:-1], np.diff(env.liked_from)))
        self._stride = len(env.X) + 1
        self._ranks = np.repeat(np.arange(len(env.user_ids)), np.diff(env.liked_from)) * self._stride + below
        self._cached: tuple[int, Ints, Ints] | None = None

    def block(self, start: int, stop: int) -> Block:
        """Interactions start, …, stop − 1."""
        first, last = start // self.chunk, (stop - 1) // self.chunk
        drawn = [self._draw(c) for c in range(first, last + 1)]
        cut = slice(start - first * self.chunk, stop - first * self.chunk)
        arms = np.concatenate([arms for arms, _ in drawn])[cut]
        place = np.concatenate([place for _, place in drawn])[cut]
        rewards = np.zeros(arms.shape)
        rewards[np.arange(len(arms)), place] = 1.0
        return Block(
            clients=self.env.client_of[self.env.users[self.order[start:stop]]],
            X=self.env.X,
            arms=arms,
            counts=np.full(len(arms), self.env.n_arms),
            means=rewards,
            reward_kind=int(RewardKind.RECORDED),
            noise=np.empty(0),
            rewards=rewards,
            delays=np.empty(0, dtype=np.int64),
        )

    def _draw(self, c: int) -> tuple[Ints, Ints]:
        """Arms of a chunk, and the place of the liked one."""
        if self._cached is None or self._cached[0] != c:
            env = self.env
            events = self.order[c * self.chunk : (c + 1) * self.chunk]
            users, n = env.users[events], events.size
            rng = generator(self.seed, Purpose.CONTEXTS, c)
            others = len(env.X) - np.diff(env.liked_from)[users]
            ranks = draw_distinct_ranks(rng, others, env.n_arms - 1)
            keys = users[:, None] * self._stride + ranks
            arms = np.empty((n, env.n_arms), dtype=np.int64)
            arms[:, 1:] = ranks + np.searchsorted(self._ranks, keys, "right") - env.liked_from[users][:, None]
            place = rng.integers(0, env.n_arms, size=n)
            arms[:, 0] = arms[np.arange(n), place]  # whoever stood there moves to the front (place 0: nobody did)
            arms[np.arange(n), place] = env.items[events]
            self._cached = c, arms, place
        return self._cached[1], self._cached[2]


def draw_distinct_ranks(rng: np.random.Generator, sizes: Ints, k: int) -> Ints:
    """For each m of `sizes`, k distinct numbers of 0, …, m − 1, all sets and orders equally likely; m ≥ k.

    The j-th number is drawn below m − j and then counts past those that are taken, in ascending order.

    >>> sorted(draw_distinct_ranks(np.random.default_rng(0), np.array([4]), 4)[0].tolist())
    [0, 1, 2, 3]
    """
    ranks = np.empty((sizes.size, k), dtype=np.int64)
    taken = np.empty((sizes.size, 0), dtype=np.int64)
    for j in range(k):
        rank = rng.integers(0, sizes - j)
        for i in range(j):
            rank += rank >= taken[:, i]
        ranks[:, j] = rank
        taken = np.sort(ranks[:, : j + 1], axis=1)
    return ranks
