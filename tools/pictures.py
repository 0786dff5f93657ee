"""The first picture of README and documentation: `python -m tools.pictures` (a minute)."""

from __future__ import annotations

from pathlib import Path

import fedbandit as fb
from fedbandit.studies.figures import save_figure

SYSTEMS = {
    "each alone (linucb)": fb.linucb(),
    "async_linucb, γ = 5": fb.async_linucb(gamma_upload=5.0, gamma_download=5.0),
    "the same, warm_join": fb.async_linucb(gamma_upload=5.0, gamma_download=5.0, warm_join=True),
    "sync_linucb": fb.sync_linucb(),
}

if __name__ == "__main__":
    env = fb.environments.homogeneous(n_clients=100, dim=25, n_arms=25)
    comparison = fb.compare(SYSTEMS, env, 30_000, seeds=3)
    print(comparison)
    save_figure(comparison.plot(), Path("docs/comparison.png"))
