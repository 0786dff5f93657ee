"""The fast engine: an accelerator for compositions that it knows. This is its only door.

It defines no behaviour: on every system that it takes, arms and messages equal those of the plain engine, and
`fedbandit.checks.engines_agree` finds these systems by `unknown_part`. Everything that knows a row, a slot, a cohort or
a packed matrix is in here, and nothing outside imports anything but these names.

    is_installed()                                whether there is a compiler: Numba comes with the extra `fast`
    unknown_part(system)                          the first part that has no kernel, in words; None if all have one
    make_learner(system, env, world, seed, …)     a `Learner` for a system that was told the world
    drawing_kernels()                             the inner loops of drawing (`environments.kernels`), compiled
    is_warm(system)                               whether its loop is compiled already, and cached
    compiling_seconds()                           what this process has spent compiling
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedbandit.engine.learner import Learner
    from fedbandit.environments.block import Environment
    from fedbandit.environments.kernels import Kernels
    from fedbandit.system import System
    from fedbandit.world import World

__all__ = ["compiling_seconds", "drawing_kernels", "is_installed", "is_warm", "make_learner", "unknown_part"]


def is_installed() -> bool:
    """Whether there is a compiler."""
    return find_spec("numba") is not None


def unknown_part(system: System) -> str | None:
    """The first part of a system that the engine has no kernel for; a subclass of a known part is not known."""
    from fedbandit.engine.fast.known import unknown_part as look

    return look(system)


def make_learner(system: System, env: Environment, world: World, seed: int, *, by_client: bool = False) -> Learner:
    """What runs a system that was told the world; with `by_client` it counts the messages of each client, if it can."""
    from fedbandit.engine.fast.clusters import ClustersLearner
    from fedbandit.engine.fast.rows import RowsLearner
    from fedbandit.structures import Clustering

    if isinstance(system.structure, Clustering):
        return ClustersLearner(system, env, world, seed)
    return RowsLearner(system, env, world, seed, by_machines=by_client)


def drawing_kernels() -> Kernels:
    """What blocks are drawn with while this engine runs."""
    from fedbandit.engine.fast.draws import COMPILED

    return COMPILED


def is_warm(system: System) -> bool:
    """Whether the loop of a system is compiled already, and cached."""
    from fedbandit.engine.fast.warmth import is_warm as look
    from fedbandit.structures import Clustering

    return look("cluster_loop.run_clusters" if isinstance(system.structure, Clustering) else "loop.run")


def compiling_seconds() -> float:
    """Seconds that this process has spent compiling."""
    from fedbandit.engine.fast.warmth import compiling

    return compiling.seconds
