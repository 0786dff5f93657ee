"""A switch for each optimisation, so that what it is worth can be measured again (`python -m benchmarks ablation`).

`FEDBANDIT_WITHOUT=prefetching,huge-pages` does without these two. It is read once; kernels are compiled with what it
says, and kept apart from others. Arms and messages are the same with and without: an optimisation defines nothing.
A ninth, drawing contexts in a second thread, is off with `FEDBANDIT_THREADS=1` (`engine/draws.py`).
"""

from __future__ import annotations

import os

from fedbandit.errors import FedbanditError, unknown

OPTIMISATIONS = {
    "single-precision": "means are computed in single precision first, where contexts are reused (coarse.py)",
    "recycled-mappings": "memory of finished simulations is kept for the next (memory.py)",
    "huge-pages": "rows are in pages of two megabytes (memory.py)",
    "prefetching": "what the next interactions need is fetched while this one is worked on (prefetching.py)",
    "compact-rows": "models of very few observations have no matrices of their own (compact.py)",
    "pending-lists": "pending contexts are listed before they are added up in a matrix (row.py)",
    "spectral-bound": "arms that cannot win by a bound on eigenvalues are not looked at (choose_ucb.py)",
    "blind-choices": "models that know nothing are chosen with by the length of contexts alone (choose_ucb.py)",
}


def switched_off(told: str) -> frozenset[str]:
    """The optimisations that a list such as "prefetching,huge-pages" names.

    >>> sorted(switched_off("prefetching, huge-pages"))
    ['huge-pages', 'prefetching']
    """
    names = frozenset(name.strip() for name in told.split(",") if name.strip())
    for name in sorted(names - OPTIMISATIONS.keys()):
        raise unknown("optimisation (FEDBANDIT_WITHOUT)", name, OPTIMISATIONS)
    return names


WITHOUT = switched_off(os.environ.get("FEDBANDIT_WITHOUT", ""))


def has(optimisation: str) -> bool:
    """Whether an optimisation is on in this process."""
    if optimisation not in OPTIMISATIONS:
        raise FedbanditError(f"There is no switch {optimisation!r}.")
    return optimisation not in WITHOUT
