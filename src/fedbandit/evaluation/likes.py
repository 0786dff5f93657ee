"""Measures for data sets of likes: reward against random arms, and rewards by how active users are."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fedbandit.engine import Result, simulate
from fedbandit.environments import Environment, LikedItems
from fedbandit.errors import FedbanditError
from fedbandit.presets import uniform
from fedbandit.types import Array, Ints


class Group(NamedTuple):
    """Clients with more than `above` and at most `up_to` interactions in the data."""

    above: int
    up_to: int
    users: int
    interactions: int
    uploads: int
    reward: float


def normalised_reward(result: Result, env: LikedItems) -> Array:
    """Cumulative reward over that of the uniform policy on the same stream (Async-LinUCB App. H.2, HetoFedBandit §4.3).

    One point per round; rounds before random arms have earned anything are NaN. Average it over runs.
    """
    _require_match(result, env)
    random = simulate(uniform(), env, result.horizon, result.seed).reward
    return np.divide(result.reward, random, out=np.full(random.shape, np.nan), where=random > 0)


def by_activity(result: Result, env: LikedItems, *, width: int | None = None) -> list[Group]:
    """Clients grouped by their number of interactions in the data, in steps of `width` (Async-LinUCB, Table 2).

    By default steps are 1, 2 or 5 times a power of ten, so that there are at most ten. An upload counts for the client
    in whose round it was sent; of a synchronisation, which all clients join, that is the one that asked for it.
    """
    _require_match(result, env)
    activity = env.activity
    width = _nice(int(activity.max()) / 10) if width is None else width
    clients = _acting(result, env)
    group_of = (activity - 1) // width
    rewards = np.diff(result.reward, prepend=0.0)
    groups = []
    for g in range(int(group_of.max()) + 1):
        theirs = group_of[clients] == g
        groups.append(
            Group(
                above=g * width,
                up_to=(g + 1) * width,
                users=int((group_of == g).sum()),
                interactions=int(theirs.sum()),
                uploads=int(result.communication.per_round_uploads[theirs].sum()),
                reward=float(rewards[theirs].sum()),
            )
        )
    return groups


def user_map(env: LikedItems) -> Array:
    """Where users are, (U, 2): the mean context of what each liked, on its two principal axes (Async-LinUCB, Fig. 5).

    An axis points to where its largest entry is positive.
    """
    likes = np.diff(env.liked_from)
    mean = np.zeros((len(likes), env.dim))
    np.add.at(mean, np.repeat(np.arange(len(likes)), likes), env.X[env.liked])
    mean /= likes[:, None]
    centred = mean - mean.mean(axis=0)
    axes = np.linalg.svd(centred, full_matrices=False)[2][:2]
    signs = np.sign(np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1))
    return np.asarray(centred @ (signs * axes).T)


def likes_report(result: Result, env: Environment) -> dict[str, Any]:
    """What a report of one run says about likes; empty for other environments."""
    if not isinstance(env, LikedItems):
        return {}
    ratio = float(normalised_reward(result, env)[-1])
    groups = [group._asdict() for group in by_activity(result, env)]
    return {"normalised_reward": ratio if np.isfinite(ratio) else None, "groups": groups}


def format_likes(report: dict[str, Any]) -> str:
    """The same as text; empty for other environments."""
    if not report:
        return ""
    ratio = report["normalised_reward"]
    lines = [f"  over random arms on the same stream  {'–' if ratio is None else format(ratio, '.3f')}", ""]
    lines.append("  interactions     clients   in this run     uploads      reward")
    for group in report["groups"]:
        span = f"{group['above'] + 1:,}–{group['up_to']:,}"
        lines.append(
            f"  {span:13} {group['users']:>10,} {group['interactions']:>13,} {group['uploads']:>11,} "
            f"{group['reward']:>11,.0f}"
        )
    return "\n".join(lines) + "\n"


def _acting(result: Result, env: LikedItems) -> Ints:
    return env.client_of[env.users[env.open(result.seed).order[: result.horizon]]]


def _nice(least: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, … that is at least this."""
    steps = (factor * 10**power for power in range(19) for factor in (1, 2, 5))
    return next(step for step in steps if step >= least)


def _require_match(result: Result, env: LikedItems) -> None:
    if not isinstance(env, LikedItems) or result.environment != env.name:
        raise FedbanditError(
            f"The result is one on {result.environment}, which {env!r} is not; it needs its own likes."
        )
