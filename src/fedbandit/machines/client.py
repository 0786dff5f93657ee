"""The client's machine: it chooses, learns, and says what to send. Messages in, messages out; no I/O, no clock."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedbandit.actions import check_rows
from fedbandit.errors import FedbanditError, number, require, shown, whole_number
from fedbandit.machines.exchange import Exchange
from fedbandit.machines.start import start_with
from fedbandit.messages import Message
from fedbandit.model import RidgeModel
from fedbandit.policies import Policy
from fedbandit.policies.policy import choice_of
from fedbandit.privacy.noise import Source, label_of, perturb
from fedbandit.rewards import learnt, refused, reward_plan
from fedbandit.sharing import Sharing
from fedbandit.state import State, Varying
from fedbandit.streams import Draw, policy_key
from fedbandit.system import System
from fedbandit.types import Array
from fedbandit.world import World


class Choice(NamedTuple):
    """An arm that was chosen; its reward may come late, out of order or never.

    propensity: the probability with which it was chosen; NaN where nobody asked.
    """

    number: int
    arm: int
    propensity: float = math.nan


EXPLORATION = 4000
"""Which of a decision's siblings draws whether to explore: policies count from zero (`Draw.sibling`)."""


class ClientMachine(Exchange):
    """One client of a federation, with a model of its own (one part or two, as its structure says).

    Of choices whose reward has not come the latest `waiting` are kept. Noise for privacy comes from the simulation's
    streams, which follow from the seed, unless `source` is given: on a network it must be
    `privacy.secure.SecureSource()`. `estimator` numbers the models of a peer that has several (`PeerMachine`).
    `sharing` is the system's, for whoever makes many clients and has it at hand.

    >>> import fedbandit as fb
    >>> client = ClientMachine(0, fb.async_linucb(), fb.World(n_clients=3, dim=2, horizon=100), seed=0)
    >>> choice = client.select([[1.0, 0.0], [0.0, 1.0]])
    >>> [type(message).__name__ for message in client.observe(choice.number, reward=1.0)]
    ['Upload']
    """

    def __init__(
        self,
        member: int,
        system: System,
        world: World,
        seed: int = 0,
        waiting: int = 10_000,
        *,
        estimator: int = 0,
        source: Source | None = None,
        sharing: Sharing | None = None,
    ) -> None:
        require(0 <= member < world.n_clients, "member", member, f"a client number below {world.n_clients}")
        if not system.structure.separate:
            raise FedbanditError(f"In {system.name} clients share models, so there are no separate client machines.")
        told = system.told(world)
        self._number = member * told.protocol.period + estimator
        model = told.model(world, member)
        drawn = None if source is None else (lambda _: source)
        super().__init__(member, model, told, world, seed, number=self._number, source=drawn)
        start_with(self, told.sharing(world) if sharing is None else sharing)
        self.context_dim = world.dim + (world.actions > 0)
        """The length of a context; with actions of their own, rows (action, features)."""
        self.actions = world.actions
        self.bound = world.bound
        self.steps = 0
        """Arms chosen so far: the counter of the policy's random stream."""
        self._key = policy_key(seed)
        self._explorer = told.explorer.told(world)
        self._explores_again = partial(told.structure.explores_again, world)
        rule = told.privacy.reward_rule
        self._source, self._reward_scale = source, rule.scale
        self._rewards = reward_plan(rule if source is None else rule._replace(scale=0.0), seed)
        claim = told.guarantee_of(member)
        kinds = () if self.stream is None else (self.stream.mechanism.noise,)
        self.guarantee = claim if source is None else replace(claim, noise=label_of(source, kinds))
        self._chosen: dict[int, Array] = {}
        self._choices = 0
        self._waiting = whole_number("waiting", waiting)

    # Choosing

    def select(self, arms: ArrayLike, *, explore: float = 0.0, propensity: bool = False) -> Choice:
        """Choose one of the arms, given as a (K, d) array of contexts; with actions of their own as `actions.as_rows`.

        With probability `explore` any arm is chosen instead, all equally likely. With `propensity` the choice says how
        probable it was: p = explore/K + (1 − explore) p_policy.
        """
        X = self.checked(arms)
        policy, draw = self.chooser, Draw(self._key, self._number, self.steps)
        a = choice_of(policy, self.model, X, draw) if len(X) > 1 else 0
        p = math.nan
        if explore > 0 or propensity:
            a, p = self._mixed(X, a, explore, draw)
        self.steps += 1
        self._choices += 1
        self.await_reward(self._choices, X[a].copy())
        return Choice(self._choices, a, p)

    def _mixed(self, X: Array, a: int, explore: float, draw: Draw) -> tuple[int, float]:
        """The arm after exploration, and its propensity."""
        require(0 <= explore <= 1, "explore", explore, "a probability")
        again, first = draw.sibling(EXPLORATION), a
        if again.uniform() < explore:
            a = again.index(len(X))
        if self.chooser.randomness == "none":
            own = float(a == first)
        else:
            own = float(self.chooser.propensities(self.model, X, draw)[a])
        return a, explore / len(X) + (1 - explore) * own

    @property
    def chooser(self) -> Policy:
        """The policy that makes the next choice."""
        explores = self.exploring or self._explores_again(self.steps)
        return self._explorer if explores else self._policy

    def propensities(self, arms: ArrayLike, policy: Policy | None = None) -> Array:
        """The probability with which each of the arms would be chosen now, by its own policy or another."""
        chooses = self.chooser if policy is None else policy
        return chooses.propensities(self.model, self.checked(arms), Draw(self._key, self._number, self.steps))

    def checked(self, arms: ArrayLike) -> Array:
        """Contexts of arms, if that is what they are."""
        d = self.context_dim
        try:
            X = np.ascontiguousarray(arms, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise FedbanditError(f"arms is {shown(arms)}, but must be a (K, {d}) array of numbers.") from None
        if X.ndim != 2 or len(X) == 0 or X.shape[1] != d:
            raise FedbanditError(f"The shape of arms is {X.shape}, but must be (K, {d}) with at least one arm.")
        if self.actions:
            check_rows(X, self.actions)
        x = X[:, 1:] if self.actions else X
        longest = math.sqrt(float((x * x).sum(axis=1).max()))
        if not longest <= self.bound * (1 + 1e-9):
            if not np.isfinite(X).all():
                raise FedbanditError("An arm's context is not finite.")
            require(False, "the norm of a context", longest, f"at most {self.bound:g}")
        return X

    def await_reward(self, choice: int, x: Array) -> None:
        """Expect the reward of a choice with context x, forgetting the oldest if there are too many."""
        self._choices = max(self._choices, choice)
        self._chosen[choice] = x
        while len(self._chosen) > self._waiting:
            self.forget(next(iter(self._chosen)))

    def number_choices_from(self, number: int) -> None:
        """The next choice gets the number after this one."""
        self._choices = number

    def waits_for(self, choice: int) -> Array | None:
        """The context of a choice whose reward has not come."""
        return self._chosen.get(choice)

    def forget(self, choice: int) -> None:
        """The reward of this choice will never come."""
        self._chosen.pop(choice, None)

    def rehearse(self) -> None:
        """Choose and learn once on a model that is thrown away, so that a user's first choice waits for nothing."""
        scratch = RidgeModel(self.context_dim, self.ridge)
        contexts = np.zeros((2, self.context_dim))
        for policy in (self._policy, self._explorer):
            policy.choose(scratch, self.checked(contexts), Draw(self._key, self._number, 0))
        scratch.observe(contexts[0], 0.0)
        self.trigger.fires(scratch, self.threshold)

    # Learning

    def observe(self, choice: int, reward: float) -> list[Message]:
        """Learn the reward of a choice, and say what to send."""
        if choice not in self._chosen:
            raise FedbanditError(f"Choice {choice} is not waiting for a reward.")
        return self.take(choice, self.perceive(number(reward, "reward", "a finite number")))

    def take(self, choice: int, y: float) -> list[Message]:
        """Learn a choice's reward as it was perceived, and say what to send."""
        self.learn(self._chosen.pop(choice), y)
        return self.speak()

    def perceive(self, reward: float) -> float:
        """The reward to learn from: in range, and noised where that is the mechanism. Ask once for each reward."""
        y = learnt(self._rewards, float(reward), self._number, self.observed)
        if math.isnan(y):
            raise refused(self._rewards, reward)
        if self._source is not None and self._reward_scale > 0:
            y = float(perturb(self._source, "laplace", np.array(y), self._reward_scale))
        return y

    def learn(self, x: Array, y: float) -> None:
        """Learn from one observation without saying anything: past logs, or what is on record from before a crash."""
        self.model.observe(x, y)

    @property
    def clipped(self) -> int:
        """Rewards so far that were outside the range for which privacy is claimed."""
        return int(self._rewards.clipped[0])

    @property
    def observed(self) -> int:
        """Rewards learnt from so far."""
        return self._model.n_own

    @property
    def pending(self) -> int:
        """Those of them that are in no upload yet."""
        return self._model.n_own if self._model.silent else self._model.n_pending

    # How it is kept

    def capture(self) -> Callable[[], State]:
        """Also what was chosen and has no reward yet."""
        finish_exchange, chosen = super().capture(), dict(self._chosen)
        more = {"choices": self._choices, "steps": self.steps, "clipped": self.clipped}

        def finish() -> State:
            header, arrays = finish_exchange()
            arrays["waiting"] = np.array(list(chosen), dtype=np.int64)
            arrays["contexts"] = np.array(list(chosen.values()), dtype=np.float64).reshape(-1, self.context_dim)
            return State(header | more, arrays)

        return finish

    def varying(self) -> Varying:
        """Also choices whose reward has not come, and their contexts."""
        contexts = (np.float64, ("k", self.context_dim))
        return {**super().varying(), "waiting": (np.int64, ("k",)), "contexts": contexts}

    def restore(self, state: State) -> None:
        """Go on from what `state` gave, before a crash or a move."""
        super().restore(state)
        header, arrays = state
        self._choices, self.steps = header["choices"], header["steps"]
        self._rewards.clipped[0] = header["clipped"]
        self._chosen = dict(zip(arrays["waiting"].tolist(), arrays["contexts"], strict=True))
