"""What may leave a client, and at what cost? Parts for systems; the mechanisms they are made of stand beside them."""

from fedbandit.parts import found_in
from fedbandit.privacy.guarantee import Guarantee, Require
from fedbandit.privacy.noisy_rewards import NoisyRewards
from fedbandit.privacy.none import NoPrivacy
from fedbandit.privacy.privacy import Privacy
from fedbandit.privacy.private_rewards import PrivateRewards
from fedbandit.privacy.private_statistics import PrivateStatistics
from fedbandit.privacy.published_clusters import PublishedClusters
from fedbandit.privacy.published_sums import PublishedSums
from fedbandit.privacy.reward_sums import RewardSums

__all__ = [
    "PRIVACIES",
    "Guarantee",
    "NoPrivacy",
    "NoisyRewards",
    "Privacy",
    "PrivateRewards",
    "PrivateStatistics",
    "PublishedClusters",
    "PublishedSums",
    "Require",
    "RewardSums",
]

PRIVACIES = found_in(globals(), Privacy)
"""Privacy parts by name."""
