"""What may leave a client, and at what cost? So far: anything, with no guarantee."""

from fedbandit.privacy.guarantee import Guarantee
from fedbandit.privacy.none import NoPrivacy
from fedbandit.privacy.privacy import Privacy

__all__ = ["Guarantee", "NoPrivacy", "Privacy"]
