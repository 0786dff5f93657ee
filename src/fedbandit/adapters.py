"""Interfaces that other libraries have made common: an environment as in gymnasium, a learner as in scikit-learn.

Both are thin: what happens is what `simulate` and a client do. Neither library is needed.
"""

from __future__ import annotations

import inspect
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fedbandit.engine.learner import draw_reward
from fedbandit.environments.block import Block, Environment, world_of
from fedbandit.errors import FedbanditError, require, unknown, whole_number
from fedbandit.model import RidgeModel
from fedbandit.policies import POLICIES, Policy
from fedbandit.streams import Draw, policy_key
from fedbandit.types import Array, Ints
from fedbandit.world import World

Observation = dict[str, Any]


class BanditEnv:
    """An environment in the manner of gymnasium: `reset`, then `step(arm)` until `terminated`.

    An observation says who acts and which contexts are offered; `info` has the expected rewards of all arms and the
    regret so far. The interactions are those that `simulate` shows a system with the same seed.

    >>> import fedbandit as fb
    >>> env = BanditEnv(fb.environments.homogeneous(n_clients=3, dim=2, n_arms=4), horizon=2)
    >>> observation, info = env.reset(seed=0)
    >>> observation["arms"].shape, info["regret"]
    ((4, 2), 0.0)
    >>> observation, reward, terminated, truncated, info = env.step(0)
    >>> terminated, env.step(1)[2]
    (False, True)
    """

    def __init__(self, env: Environment, horizon: int, seed: int = 0) -> None:
        self.env, self.horizon, self.seed = env, horizon, seed
        self.interactions = world_of(env, horizon, seed).horizon
        self._t, self._regret = 0, 0.0
        self._block: Block | None = None
        self._begin = 0

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002 - gymnasium's signature
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin anew, with another seed if one is given."""
        self.seed = self.seed if seed is None else whole_number("seed", seed, 0)
        self._stream = self.env.open(self.seed)
        self._t, self._regret, self._block = 0, 0.0, None
        return self._observe(), self._info()

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Pull an arm: the next observation, the reward, whether the horizon is reached, False, and `info`."""
        if self._block is None:
            raise FedbanditError("The environment has not been reset, or has ended; call reset first.")
        block, s = self._block, self._t - self._begin
        K = int(block.counts[s])
        arm = whole_number("the arm", action, 0)
        require(arm < K, "the arm", arm, f"below {K}, the number of arms that are offered")
        reward, means = draw_reward(block, s, arm), block.means[s, :K]
        self._regret += float(means.max() - means[arm])
        self._t += 1
        ended = self._t >= self.interactions
        if ended:
            seen: Observation = {"client": int(block.clients[s]), "arms": block.X[block.arms[s, :K]]}
            info = self._info()
            self._block = None
            return seen, reward, True, False, info
        return self._observe(), reward, False, False, self._info()

    def _observe(self) -> Observation:
        if self._block is None or self._t - self._begin >= len(self._block.clients):
            self._begin = self._t
            stop = min(self._t - self._t % self._stream.chunk + self._stream.chunk, self.interactions)
            self._block = self._stream.block(self._t, stop)
        s = self._t - self._begin
        K = int(self._block.counts[s])
        return {"client": int(self._block.clients[s]), "arms": self._block.X[self._block.arms[s, :K]]}

    def _info(self) -> dict[str, Any]:
        assert self._block is not None
        s = min(self._t - self._begin, len(self._block.clients) - 1)
        return {"regret": self._regret, "means": self._block.means[s, : int(self._block.counts[s])]}


class LinearBandit:
    """One linear bandit in the manner of scikit-learn: `fit`, `partial_fit`, `predict`, `get_params`, `set_params`.

    X holds the contexts of arms that were pulled, y their rewards. `predict` chooses one of the arms offered, (K, d),
    or one for each of several decisions, (n, K, d), exploring as its policy does (policy="greedy" does not).

    >>> bandit = LinearBandit(alpha=0.5).fit([[1.0, 0.0], [0.0, 1.0]], [1.0, 0.0])
    >>> bandit.predict([[1.0, 0.0], [0.0, 1.0]]), bandit.partial_fit([[0.0, 1.0]], [1.0]).n_
    (0, 3)
    """

    def __init__(
        self,
        policy: str = "ucb",
        ridge: float = 0.1,
        noise: float = 0.1,
        alpha: float | None = None,
        confidence: float = 0.1,
        seed: int = 0,
    ) -> None:
        self.policy, self.ridge, self.noise = policy, ridge, noise
        self.alpha, self.confidence, self.seed = alpha, confidence, seed

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from these observations alone."""
        self._model, self._steps = None, 0
        return self.partial_fit(X, y)

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from these observations too."""
        contexts, rewards = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
        require(contexts.ndim == 2, "the shape of X", contexts.shape, "(n, d)")
        require(rewards.shape == (len(contexts),), "the shape of y", rewards.shape, f"({len(contexts)},)")
        require(bool(np.isfinite(contexts).all() and np.isfinite(rewards).all()), "X or y", "not finite", "finite")
        model = self._learner(contexts.shape[1])
        for x, reward in zip(contexts, rewards.tolist(), strict=True):
            model.observe(x, reward)
        return self

    def predict(self, arms: ArrayLike) -> int | Ints:
        """The arm to pull, or one for each decision."""
        offered = np.asarray(arms, dtype=np.float64)
        require(
            offered.ndim in (2, 3) and offered.shape[-2] > 0, "the shape of arms", offered.shape, "(K, d), or (n, K, d)"
        )
        if offered.ndim == 3:
            return np.array([self._choose(one) for one in offered], dtype=np.int64)
        return self._choose(offered)

    def predict_expectations(self, arms: ArrayLike) -> Array:
        """The estimated mean reward of each arm (K, d), whatever the leading axes are."""
        offered = np.asarray(arms, dtype=np.float64)
        return np.asarray(offered @ self._learner(offered.shape[-1]).theta)

    @property
    def n_(self) -> int:
        """Observations that it has learnt from."""
        return 0 if self._model is None else self._model.n

    @property
    def coef_(self) -> Array:
        """θ̂."""
        if self._model is None:
            raise FedbanditError("The bandit has not been fitted.")
        return self._model.theta

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - there is nothing below
        """The arguments that it was made with."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Change arguments; what has been learnt stays."""
        known = inspect.signature(type(self)).parameters
        for name, value in params.items():
            if name not in known:
                raise unknown("parameter of LinearBandit", name, known)
            setattr(self, name, value)
        return self

    _model: RidgeModel | None = None
    _steps = 0

    def _learner(self, dim: int) -> RidgeModel:
        if self._model is None:
            self._model = RidgeModel(dim, self.ridge)
        require(dim == self._model.dim, "the length of a context", dim, f"{self._model.dim}, as before")
        return self._model

    def _choose(self, arms: Array) -> int:
        model = self._learner(arms.shape[1])
        self._steps += 1
        return self._told(arms.shape[1]).choose(model, arms, Draw(policy_key(self.seed), 0, self._steps - 1))

    def _told(self, dim: int) -> Policy:
        if self.policy not in POLICIES:
            raise unknown("policy", self.policy, POLICIES)
        kind = POLICIES[self.policy]
        widths = {"alpha": self.alpha, "noise": self.noise, "confidence": self.confidence}
        taken = {name: value for name, value in widths.items() if name in inspect.signature(kind).parameters}
        policy: Policy = kind(**taken)
        return policy.told(World(1, dim, 1, noise=self.noise))
