"""Who shares with whom? A structure says which model a client has, and who is sent what.

Three roles that are easily mixed up: a *user* arrives and is served; a *node* speaks on the network; a *model* is what
arms are scored with. Groups may be known beforehand (`static`), found while running (a `Sharing`), or formed by local
servers of many users (`serving`); a model may have two parts (`two_part_model`) or be one of a graph of users.
"""

from fedbandit.parts import found_in
from fedbandit.structures.clustering import Clustering, FederatedClustering
from fedbandit.structures.evidence_clusters import EvidenceClusters
from fedbandit.structures.global_local import GlobalLocal
from fedbandit.structures.homogeneity_cliques import HomogeneityCliques
from fedbandit.structures.laplacian import Laplacian
from fedbandit.structures.neighbourhoods import Neighbourhoods
from fedbandit.structures.phased_clusters import PhasedClusters
from fedbandit.structures.pruned_graph import PrunedGraph
from fedbandit.structures.released_phases import ReleasedPhases
from fedbandit.structures.servers import Servers
from fedbandit.structures.split_and_merge import SplitAndMerge
from fedbandit.structures.static import Alone, Central, Everyone, FixedGroups
from fedbandit.structures.structure import Structure
from fedbandit.structures.user_graph import OnGraph
from fedbandit.structures.weighted_graph import WeightedGraph

__all__ = [
    "STRUCTURES",
    "Alone",
    "Central",
    "Clustering",
    "Everyone",
    "EvidenceClusters",
    "FederatedClustering",
    "FixedGroups",
    "GlobalLocal",
    "HomogeneityCliques",
    "Laplacian",
    "Neighbourhoods",
    "OnGraph",
    "PhasedClusters",
    "PrunedGraph",
    "ReleasedPhases",
    "Servers",
    "SplitAndMerge",
    "Structure",
    "WeightedGraph",
]

STRUCTURES = found_in(globals(), Structure)
"""Structures by name."""
