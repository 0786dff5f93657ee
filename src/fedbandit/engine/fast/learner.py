"""Which learner runs a composition."""

from __future__ import annotations

from collections.abc import Callable

from fedbandit.engine.fast.clusters import ClustersLearner
from fedbandit.engine.fast.graph import GraphLearner
from fedbandit.engine.fast.neighbourhoods import NeighbourhoodsLearner
from fedbandit.engine.fast.rows import RowsLearner
from fedbandit.engine.fast.split import SplitLearner
from fedbandit.engine.learner import Learner
from fedbandit.environments.block import Environment
from fedbandit.structures import Clustering, GlobalLocal, Neighbourhoods, OnGraph, Structure
from fedbandit.system import System
from fedbandit.world import World


def _kind(structure: Structure) -> Callable[..., Learner]:
    if isinstance(structure, Clustering):
        return ClustersLearner
    if isinstance(structure, Neighbourhoods):
        return NeighbourhoodsLearner
    if isinstance(structure, OnGraph) and not structure.separate:
        return GraphLearner
    return SplitLearner if isinstance(structure, GlobalLocal) else RowsLearner


def make_learner(system: System, env: Environment, world: World, seed: int) -> Learner:
    """The learner of a system that has been told its world."""
    return _kind(system.structure)(system, env, world, seed)
