"""Conformance checks of environments: what engines and systems rely on, whoever wrote the stream.

`fedbandit.checks.run(env)` runs them. Each takes an environment, and raises AssertionError with a sentence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from fedbandit.environments.block import Block, Environment, RewardKind, actions_per_round, world_of
from fedbandit.environments.synthetic import Synthetic
from fedbandit.errors import FedbanditError

SEED, MOST = 5, 40_000
VARIANTS: tuple[dict[str, Any], ...] = (
    {"rewards": "bernoulli"},
    {"delay": (0, 3)},
    {"rounds": "all"},
    {"arrivals": "skewed"},
    {"drift": (40,)},
)
"""Keywords of `Synthetic` that come with every synthetic environment; one that refuses some says so."""


def variants_of(env: Environment) -> Iterator[Environment]:
    """The environment, and a synthetic one with other keywords, where it takes them."""
    yield env
    for keywords in VARIANTS if isinstance(env, Synthetic) else ():
        try:
            yield replace(env, **keywords)  # type: ignore[type-var]
        except FedbanditError:
            continue  # with a sentence


def length_of(env: Environment) -> int:
    """Interactions to look at: more than a chunk, if there are so many."""
    most = min(env.open(SEED).chunk + 99, MOST)
    return most if env.longest is None else min(most, env.longest * actions_per_round(env))


def contents(block: Block) -> dict[str, Any]:
    """What a block says, however it stores its contexts: arms that are not offered say nothing."""
    n, K = block.arms.shape
    here = np.arange(K) < block.counts[:, None]
    return {
        "clients": block.clients,
        "counts": block.counts,
        "contexts": np.where(here[:, :, None], block.X[np.where(here, block.arms, 0)], 0.0),
        "means": np.where(here, block.means, 0.0),
        "kind": np.full(n, block.reward_kind),
        "noise": block.noise,
        "rewards": np.where(here, block.rewards, 0.0) if block.rewards.size else block.rewards,
        "delays": block.delays,
        "actions": np.where(here, block.actions, 0) if block.actions.size else block.actions,
    }


def environment_tells_its_world(env: Environment) -> None:
    """Every fact that systems are told is there, and of the size that N, d and K say."""
    for one in variants_of(env):
        world = world_of(one, 10 if one.longest is None else min(10, one.longest), SEED)
        assert world.graph is None or np.shape(world.graph) == (one.n_clients,) * 2, "the graph is not N × N"
        assert len(world.server_of) in (0, one.n_clients), "server_of does not name a server for each user"


def stream_repeats_itself(env: Environment) -> None:
    """A stream depends on its seed alone."""
    for one in variants_of(env):
        n = min(length_of(one), 300)
        _require_same([contents(one.open(SEED).block(0, n)) for _ in range(2)], "two streams of one seed differ")


def blocks_are_cut_anywhere(env: Environment) -> None:
    """A stream does not depend on how it is cut into blocks, nor on the order in which they are asked for."""
    for one in variants_of(env):
        n, chunk = length_of(one), one.open(SEED).chunk
        cuts = sorted({cut for cut in (0, 1, 7, n // 3, chunk - 1, chunk, chunk + 1, n) if 0 <= cut <= n})
        whole, stream = contents(one.open(SEED).block(0, n)), one.open(SEED)
        parts = [contents(stream.block(start, stop)) for start, stop in reversed(list(pairwise(cuts)))][::-1]
        joined = {name: np.concatenate([part[name] for part in parts]) for name in whole}
        _require_same([whole, joined], "a stream that is cut into blocks differs from one that is not")


def interactions_are_as_declared(env: Environment) -> None:
    """Shapes, clients, arms, norms, means, rewards and delays are within what the environment says of itself."""
    for one in variants_of(env):
        _require_declared(one, one.open(SEED).block(0, length_of(one)), length_of(one))


def _require_declared(env: Environment, block: Block, n: int) -> None:
    K, said = env.n_arms, contents(block)
    assert block.X.ndim == 2, f"X has {block.X.ndim} axes"
    assert block.X.shape[1] == env.dim, f"contexts have {block.X.shape[1]} entries, and dim is {env.dim}"
    assert block.clients.shape == block.counts.shape == (n,), f"clients or counts of {n} interactions are not ({n},)"
    assert block.arms.shape == block.means.shape == (n, K), f"arms or means are not ({n}, {K}), K being n_arms"
    assert 1 <= block.counts.min() <= block.counts.max() <= K, f"counts are not in 1, …, n_arms = {K}"
    assert 0 <= block.clients.min() <= block.clients.max() < env.n_clients, "clients are not in 0, …, n_clients − 1"
    if env.rounds == "all":
        assert (block.clients == np.arange(n) % env.n_clients).all(), "rounds are of all, but clients do not take turns"
    longest = float(np.linalg.norm(said["contexts"], axis=2).max())
    assert longest <= env.bound * (1 + 1e-9), f"a context has the norm {longest:.4g}, and bound is {env.bound:g}"
    assert np.isfinite(said["means"]).all(), "an expected reward is not finite"
    match RewardKind(block.reward_kind):
        case RewardKind.RECORDED:
            assert block.rewards.shape == (n, K), f"recorded rewards are not ({n}, {K})"
            assert np.isfinite(said["rewards"]).all(), "a recorded reward is not finite"
        case RewardKind.BERNOULLI:
            low, high = said["means"].min(), said["means"].max()
            assert low >= -1e-9, f"rewards are 0 or 1, but an expected one is {low:.4g}"
            assert high <= 1 + 1e-9, f"rewards are 0 or 1, but an expected one is {high:.4g}"
            assert block.noise.shape == (n,), f"noise is not ({n},)"
            assert 0 <= block.noise.min() <= block.noise.max() < 1, "noise of rewards 0 or 1 is not uniform in [0, 1)"
        case RewardKind.GAUSSIAN:
            assert block.noise.shape == (n,), f"noise is not ({n},)"
            spread, declared = float(np.sqrt(np.mean(block.noise**2))), env.declared_noise
            allowed = declared * (1 + 5 / n**0.5)  # five standard errors, and some
            assert spread <= allowed, f"noise has the standard deviation {spread:.4g}, and {declared:g} is declared"
    assert block.delays.shape in ((0,), (n,)), f"delays are neither ({n},) nor none"
    if block.delays.size:
        low, high = int(block.delays.min()), int(block.delays.max())
        assert 0 <= low <= high <= env.longest_delay, f"delays reach {high}, and longest_delay is {env.longest_delay}"


def _require_same(said: list[dict[str, Any]], sentence: str) -> None:
    one, other = said
    for name in one:
        assert np.array_equal(one[name], other[name]), f"{sentence}, in {name}"


CHECKS = environment_tells_its_world, interactions_are_as_declared, stream_repeats_itself, blocks_are_cut_anywhere
