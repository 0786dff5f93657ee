"""Arms of numbered actions: rows (action, features), as machines, journals and tokens have them.

Where each action has a θ of its own (`World.actions`) an arm is the number of its action and its features. A context is
then a row of length 1 + f whose first entry is that number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from fedbandit.errors import FedbanditError, require, shown, unknown
from fedbandit.types import Array


def as_rows(features: Array, actions: ArrayLike | None, n_actions: int, names: Sequence[str] = ()) -> Array:
    """Rows of `features`, (K, f), for actions (K,) of `n_actions`; a single row is for all of them.

    Without `actions` they are 0, …, n_actions − 1, all in order. Where actions have `names`, these are taken too.

    >>> as_rows(np.array([[0.5, 0.5]]), [2, 0], n_actions=3).tolist()
    [[2.0, 0.5, 0.5], [0.0, 0.5, 0.5]]
    """
    numbers = np.arange(n_actions) if actions is None else action_numbers(actions, n_actions, names)
    K = len(features)
    if K not in (1, numbers.size):
        if actions is None:
            raise FedbanditError(
                f"There are {K} rows of features, but {n_actions} actions; say which ones they are of with actions=…."
            )
        raise FedbanditError(f"There are {K} rows of features, but {numbers.size} actions; one row each is expected.")
    rows = np.empty((numbers.size, 1 + features.shape[1]))
    rows[:, 0], rows[:, 1:] = numbers, features
    return rows


def action_numbers(actions: ArrayLike, n_actions: int, names: Sequence[str] = ()) -> Array:
    """Numbers of actions, given by number or by name, if all of them are known.

    >>> action_numbers(["film", "book"], 3, ["book", "disc", "film"]).tolist()
    [2.0, 0.0]
    """
    if names and isinstance(actions, list | tuple | np.ndarray) and all(isinstance(name, str) for name in actions):
        place = {name: k for k, name in enumerate(names)}
        for name in actions:
            if name not in place:
                raise unknown("action", str(name), names[:50])
        actions = [place[str(name)] for name in actions]
    try:
        numbers = np.asarray(actions)
    except ValueError:
        numbers = np.asarray(None)
    good = numbers.ndim == 1 and numbers.size > 0 and numbers.dtype.kind in "iu"
    require(good, "actions", actions, "a list of whole numbers, one for each arm")
    strange = numbers[(numbers < 0) | (numbers >= n_actions)]
    if strange.size:
        raise FedbanditError(f"There is no action {int(strange[0])}: the terms have actions 0, …, {n_actions - 1}.")
    return numbers.astype(np.float64)


def check_rows(rows: Array, n_actions: int) -> None:
    """Refuse rows whose first entry is no action."""
    numbers = rows[:, 0]
    wrong = ~((numbers >= 0) & (numbers < n_actions) & (numbers == np.floor(numbers)))
    if wrong.any():
        first = float(numbers[wrong][0])
        raise FedbanditError(f"There is no action {shown(first)}: the terms have actions 0, …, {n_actions - 1}.")
