"""Rewards of a comparison over those of random arms on the same streams, for data sets of likes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedbandit.environments import Environment, LikedItems
from fedbandit.studies.compare import by_label, standard_error
from fedbandit.studies.runner import Run, Trial
from fedbandit.studies.specs import Spec

Normalised = dict[str, dict[str, float | None]]


def yardstick_trials(env: Environment, spec: Spec, horizon: int, seeds: Sequence[int]) -> list[Trial]:
    """The uniform policy with every seed; nothing for environments that are measured by regret."""
    if not isinstance(env, LikedItems):
        return []
    return [Trial("uniform", Spec("uniform"), spec, horizon, seed) for seed in seeds]


def normalised_rewards(runs: Sequence[Run], yardstick: Sequence[Run]) -> Normalised:
    """For each label the mean over seeds of reward / uniform reward, and its standard error; empty if there is none."""
    random = {run.report["seed"]: run.report["reward"] for run in yardstick}
    if not random or min(random.values()) <= 0:
        return {}
    table: Normalised = {}
    for label, group in by_label(runs).items():
        ratios = [run.report["reward"] / random[run.report["seed"]] for run in group]
        table[label] = {
            "normalised_reward": float(np.mean(ratios)),
            "normalised_reward_standard_error": standard_error(ratios),
        }
    return table


def format_normalised(table: Normalised) -> str:
    """The table as aligned text."""
    width = max(map(len, table))
    lines = ["reward over that of random arms on the same stream:"]
    for label, entry in table.items():
        error = entry["normalised_reward_standard_error"]
        lines.append(
            f"  {label:{width}}  {entry['normalised_reward']:7.3f}" + ("" if error is None else f" ± {error:.3f}")
        )
    return "\n".join(lines)
