"""Who shares with whom? A structure lays users out on model rows, nodes and groups.

Three roles that are easily mixed up: a *user* arrives and is served; a *node* speaks on the network; a *model row* is
what arms are scored with. `Layout` keeps them apart. Structures that change while running (clusters), that score with
more than one row (graphs) or that split a model (global and local parts) plug in here.
"""

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
