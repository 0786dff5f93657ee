"""Who shares with whom? A structure lays users out on model rows, nodes and groups.

Three roles that are easily mixed up: a *user* arrives and is served; a *node* speaks on the network; a *model row* is
what arms are scored with. `Layout` keeps them apart. Structures that change while running (clusters), that score with
more than one row (graphs) or that split a model (global and local parts) plug in here.
"""

from fedbandit.structures.alone import Alone
from fedbandit.structures.central import Central
from fedbandit.structures.everyone import Everyone
from fedbandit.structures.fixed_groups import FixedGroups
from fedbandit.structures.global_local import GlobalLocal
from fedbandit.structures.laplacian import Laplacian
from fedbandit.structures.layout import Layout, Structure
from fedbandit.structures.user_graph import OnGraph
from fedbandit.structures.weighted_graph import WeightedGraph

__all__ = [
    "Alone",
    "Central",
    "Everyone",
    "FixedGroups",
    "GlobalLocal",
    "Laplacian",
    "Layout",
    "OnGraph",
    "Structure",
    "WeightedGraph",
]
