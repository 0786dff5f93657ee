"""What a model begins with."""

from __future__ import annotations

from fedbandit.machines.exchange import Exchange
from fedbandit.sharing import Sharing, prior_share


def start_with(exchange: Exchange, sharing: Sharing) -> None:
    """If the structure says so: exploration, and what is public before anything is heard."""
    exchange.exploring = sharing.exploring
    prior = prior_share(sharing, exchange.member)
    if prior is not None:
        exchange.model.adopt(prior.sums, prior.slack)
