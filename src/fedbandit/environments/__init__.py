"""Contexts and rewards: synthetic worlds, and anyone's own recorded arrays.

An environment is a frozen dataclass of parameters; `open(seed)` draws its hidden parameters and gives a stream of
interactions in blocks. What a stream contains depends on the seed alone: not on the system that is run on it, and not
on how it is cut into blocks.
"""

from collections.abc import Callable

from fedbandit.environments.block import Block, Environment, Stream
from fedbandit.environments.clustered import Clustered
from fedbandit.environments.homogeneous import Homogeneous
from fedbandit.environments.recorded import Recorded, recorded

clustered = Clustered
homogeneous = Homogeneous

ENVIRONMENTS: dict[str, Callable[..., Environment]] = {
    "clustered": clustered,
    "homogeneous": homogeneous,
    "recorded": recorded,
}

__all__ = [
    "ENVIRONMENTS",
    "Block",
    "Clustered",
    "Environment",
    "Homogeneous",
    "Recorded",
    "Stream",
    "clustered",
    "homogeneous",
    "recorded",
]
