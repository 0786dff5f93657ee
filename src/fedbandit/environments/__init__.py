"""Contexts and rewards: synthetic worlds, and anyone's own recorded arrays.

An environment is a frozen dataclass of parameters; `open(seed)` draws its hidden parameters and gives a stream of
interactions in blocks. What a stream contains depends on the seed alone: not on the system that is run on it, and not
on how it is cut into blocks.
"""

from collections.abc import Callable

from fedbandit.environments.block import Block, Environment, Stream
from fedbandit.environments.collaborative import Collaborative
from fedbandit.environments.global_local import GlobalLocal
from fedbandit.environments.homogeneous import Homogeneous
from fedbandit.environments.recorded import Recorded, recorded

homogeneous = Homogeneous
collaborative = Collaborative
global_local = GlobalLocal

ENVIRONMENTS: dict[str, Callable[..., Environment]] = {
    "homogeneous": homogeneous,
    "collaborative": collaborative,
    "global_local": global_local,
    "recorded": recorded,
}

__all__ = [
    "ENVIRONMENTS",
    "Block",
    "Collaborative",
    "Environment",
    "GlobalLocal",
    "Homogeneous",
    "Recorded",
    "Stream",
    "collaborative",
    "global_local",
    "homogeneous",
    "recorded",
]
