"""Clustering rules as the compiled loop sees them, and the compiled tests of `structures.clustering`."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple

from fedbandit.engine.fast.jit import compiled_lean
from fedbandit.model import TIE
from fedbandit.structures import PhasedClusters, PrunedGraph, Servers, SplitAndMerge, Structure
from fedbandit.types import Array


class Rule(IntEnum):
    """When clusters change."""

    FIXED = 0  # never
    PHASES = 1  # between phases: edges are deleted on each server, then clusters of different servers merge
    PRUNING = 2  # at every observation: edges of the user who acted
    SETS = 3  # at every observation: the user who acted leaves its cluster, or two clusters merge


class Law(NamedTuple):
    """A clustering rule in numbers."""

    rule: int
    split: float  # α of the test that parts users
    merge: float  # α of the test that joins clusters
    frequency: float  # α of the test on how often users act
    fresh: bool  # arms are scored with pending observations too
    within: bool  # clusters of one server may merge too


def law_of(structure: Structure) -> Law:
    """The rule of a structure that the compiled loop knows."""
    match structure:
        case Servers():
            return Law(int(Rule.FIXED), 0.0, 0.0, 0.0, True, False)
        case PhasedClusters(split, merge, fresh, within):
            return Law(int(Rule.PHASES), split, merge, 0.0, fresh, within)
        case PrunedGraph(split):
            return Law(int(Rule.PRUNING), split, 0.0, 0.0, True, False)
        case SplitAndMerge(split, merge, frequency):
            return Law(int(Rule.SETS), split, merge, frequency, True, False)
    raise TypeError(f"the compiled loop has no rule for {structure!r}")


@compiled_lean
def radius(n: float) -> float:
    """F(n)."""
    return math.sqrt((1.0 + math.log(1.0 + n)) / (1.0 + n))


@compiled_lean
def distance(x: Array, y: Array) -> float:
    """‖x − y‖."""
    total = 0.0
    for k in range(x.shape[0]):
        total += (x[k] - y[k]) * (x[k] - y[k])
    return math.sqrt(total)


@compiled_lean
def differ(x: Array, n: float, y: Array, m: float, alpha: float) -> bool:
    """‖x − y‖ > α (F(n) + F(m)): estimates from n and m observations belong to different parameters."""
    return distance(x, y) > alpha * (radius(n) + radius(m)) + TIE


@compiled_lean
def alike(x: Array, n: float, y: Array, m: float, alpha: float) -> bool:
    """‖x − y‖ < α (F(n) + F(m)): estimates from n and m observations may be of one parameter."""
    return distance(x, y) < alpha * (radius(n) + radius(m)) - TIE
