"""Contexts and rewards: synthetic worlds, real data sets, and anyone's own recorded arrays.

An environment is a frozen dataclass of parameters; `open(seed)` draws its hidden parameters and gives a stream of
interactions in blocks. What a stream contains depends on the seed alone: not on the system that is run on it, and not
on how it is cut into blocks. `from_frame` gives logged decisions, which are no environment: nothing can be simulated
on them, but `fedbandit.evaluation` says what they tell about a system.
"""

from collections.abc import Callable

from fedbandit.environments.block import Block, Environment, Stream, Unstructured
from fedbandit.environments.clustered import Clustered
from fedbandit.environments.collaborative import Collaborative
from fedbandit.environments.datasets.delicious import Delicious, delicious
from fedbandit.environments.datasets.lastfm import LastFM, lastfm
from fedbandit.environments.datasets.likes import LikedItems
from fedbandit.environments.datasets.movielens import MovieLens, movielens
from fedbandit.environments.datasets.movielens_users import MovieLensUsers, movielens_users
from fedbandit.environments.decision_log import DecisionLog, read_decision_log
from fedbandit.environments.fclub import Fclub
from fedbandit.environments.feducb import FedUCB
from fedbandit.environments.global_local import GlobalLocal
from fedbandit.environments.homogeneous import Homogeneous
from fedbandit.environments.logged import LoggedDecisions, from_frame
from fedbandit.environments.recorded import Recorded, recorded
from fedbandit.environments.simulator import Simulator
from fedbandit.environments.synthetic import Synthetic
from fedbandit.parts import found_in

clustered = Clustered
fclub = Fclub
homogeneous = Homogeneous
feducb = FedUCB
collaborative = Collaborative
simulator = Simulator
global_local = GlobalLocal

ENVIRONMENTS: dict[str, Callable[..., Environment]] = {
    **{name.replace("-", "_"): kind for name, kind in found_in(globals(), Synthetic).items()},
    "recorded": recorded,
    "lastfm": lastfm,
    "delicious": delicious,
    "movielens": movielens,
    "movielens_users": movielens_users,
}
"""Environments by name: a synthetic one is found if it is imported here."""
globals().update(ENVIRONMENTS)  # also those that are not named above: fb.environments.two_camps

__all__ = [
    "ENVIRONMENTS",
    "Block",
    "Clustered",
    "Collaborative",
    "DecisionLog",
    "Delicious",
    "Environment",
    "Fclub",
    "FedUCB",
    "GlobalLocal",
    "Homogeneous",
    "LastFM",
    "LikedItems",
    "LoggedDecisions",
    "MovieLens",
    "MovieLensUsers",
    "Recorded",
    "Simulator",
    "Stream",
    "Synthetic",
    "Unstructured",
    "clustered",
    "collaborative",
    "delicious",
    "fclub",
    "feducb",
    "from_frame",
    "global_local",
    "homogeneous",
    "lastfm",
    "movielens",
    "movielens_users",
    "read_decision_log",
    "recorded",
    "simulator",
]
