"""γ from what is wanted: a regret or a number of messages, in the order of Async-LinUCB's bounds (App. E).

With γ_U = γ_D = γ, Theorem 3.2 has R_T = Õ(r d√T log T) and C_T = O(d N log T/log γ), with

    r = min(√N, √(γ (1 + (N − 1)(γ − 1)))),        1 ≤ r ≤ √N: how much worse than one learner with all data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from fedbandit.errors import FedbanditError, number, require
from fedbandit.world import World


def gamma_for_regret(factor: float, n_clients: int) -> float:
    """The γ at which the regret bound is `factor` times that of one learner with all data; ∞ from √N on.

        (N − 1)γ² + (2 − N)γ = r²

    >>> round(gamma_for_regret(2.0, 100), 4), gamma_for_regret(1.0, 100), gamma_for_regret(10.0, 100)
    (1.0292, 1.0, inf)
    """
    r, N = number(factor, "factor", "a number ≥ 1", at_least=1.0), n_clients
    if r >= math.sqrt(N):
        return math.inf
    return ((N - 2) + math.sqrt((N - 2) ** 2 + 4 * (N - 1) * r * r)) / (2 * (N - 1))


def gamma_for_messages(messages: float, n_clients: int, dim: int, horizon: int) -> float:
    """The γ at which the bound d N log T/log γ is so many messages; 0 is never.

    >>> round(gamma_for_messages(20_000, 100, 25, 30_000), 3)
    3.628
    """
    wanted = number(messages, "messages", "a number ≥ 0", at_least=0.0)
    exponent = dim * n_clients * math.log(max(horizon, 2)) / wanted if wanted > 0 else math.inf
    return math.exp(exponent) if exponent < 700 else math.inf


WANTED: dict[str, Callable[[float, World], float]] = {
    "regret": lambda value, world: gamma_for_regret(value, world.n_clients),
    "messages": lambda value, world: gamma_for_messages(value, world.n_clients, world.dim, world.horizon),
}


class GammaRules(dict[str, Callable[[World], float]]):
    """Rules by name, and "regret:2" or "messages:20000" with whatever number.

    >>> "messages:20000" in GAMMA_RULES, "massages:20000" in GAMMA_RULES
    (True, False)
    """

    def __contains__(self, key: object) -> bool:
        return dict.__contains__(self, key) or (
            isinstance(key, str) and key.partition(":")[0] in WANTED and self._is(key)
        )

    def __iter__(self) -> Iterator[str]:
        """Names for whoever asks what there is; those with a number, with an example of one."""
        return iter([*self.keys(), "regret:2", "messages:20000"])

    def __missing__(self, key: str) -> Callable[[World], float]:
        name, _, value = key.partition(":")
        return lambda world: WANTED[name](float(value), world)

    @staticmethod
    def _is(key: str) -> bool:
        name, _, text = key.partition(":")
        try:
            value = float(text)
        except ValueError:
            raise FedbanditError(f"The rule {key!r} needs a number: write {name}:2000.") from None
        least = 1.0 if name == "regret" else 0.0
        require(math.isfinite(value) and value >= least, f"the number of {name!r}", value, f"finite and ≥ {least:g}")
        return True


GAMMA_RULES = GammaRules(
    {
        "exp(1/N)": lambda world: math.exp(1 / world.n_clients),
        "exp(1/sqrt(N))": lambda world: math.exp(world.n_clients**-0.5),
    }
)
"""Thresholds by name (App. E, Table 1): the centralised regret with O(N² d log T) messages, or N^¼ of it with
O(N^1.5 d log T); or solved for."""
