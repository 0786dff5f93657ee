"""The papers' systems by name: each a short function that composes four parts, one file for each paper.

To add one, write a function that returns a `System` and decorate it with `@preset`; it is then found by the command
line, by `fedbandit list` and by the conformance tests. It may stand in any file: `fedbandit simulate my.py:my_system`.
"""

from fedbandit.presets.async_linucb import (
    async_linucb,
    async_linucb_am,
    count_linucb,
    dislinucb,
    linucb,
    linucb_central,
    sync_linucb,
    uniform,
)
from fedbandit.presets.collaborative import colin, dp_colin, dp_goblin, goblin, ldp_colin, ldp_goblin
from fedbandit.presets.compose import PRESETS, Common, compose, preset
from fedbandit.presets.composed import composed
from fedbandit.presets.fclub import cdp_fclub_dc, club, fclub, fclub_dc, homo, homo_dc, sclub
from fedbandit.presets.feducb import dp_linucb, feducb
from fedbandit.presets.hetofedbandit import (
    clustered_linucb,
    dyclu,
    hetofedbandit,
    hetofedbandit_async,
    hetofedbandit_dr,
    hetofedbandit_e,
    hetofedbandit_pq,
)

__all__ = [
    "PRESETS",
    "Common",
    "async_linucb",
    "async_linucb_am",
    "cdp_fclub_dc",
    "club",
    "clustered_linucb",
    "colin",
    "compose",
    "composed",
    "count_linucb",
    "dislinucb",
    "dp_colin",
    "dp_goblin",
    "dp_linucb",
    "dyclu",
    "fclub",
    "fclub_dc",
    "feducb",
    "goblin",
    "hetofedbandit",
    "hetofedbandit_async",
    "hetofedbandit_dr",
    "hetofedbandit_e",
    "hetofedbandit_pq",
    "homo",
    "homo_dc",
    "ldp_colin",
    "ldp_goblin",
    "linucb",
    "linucb_central",
    "preset",
    "sclub",
    "sync_linucb",
    "uniform",
]
