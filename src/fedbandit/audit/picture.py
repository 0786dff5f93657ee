"""The picture of an attack: how well the best score tells the two worlds apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedbandit.audit.report import AuditReport
from fedbandit.errors import FedbanditError, needs


def draw_scores(report: AuditReport) -> Any:
    """A matplotlib figure with the histogram of the likelihood-ratio scores in both worlds."""
    if report.attack is None:
        raise FedbanditError(f"{report.system} was not attacked by scores, so there is nothing to draw.")
    null, alternative = report.attack.null, report.attack.alternative
    figure = needs("matplotlib.figure", "plots", "A plot").Figure(figsize=(7, 4), dpi=150, layout="constrained")
    ax = figure.subplots()
    edges = np.histogram_bin_edges(np.concatenate((null, alternative)), bins=80)
    for scores, label in ((null, "the record"), (alternative, "its replacement")):
        ax.hist(scores, edges.tolist(), density=True, alpha=0.5, label=f"streams with {label}")
    claim = report.guarantee
    ax.set(
        xlabel="log-likelihood ratio of everything released",
        ylabel="density",
        title=f"{report.system}: claimed ε = {claim.epsilon:g}, δ = {claim.delta:g} ({claim.basis}); "
        f"measured ε ≥ {report.lower_bound:.2f}",
    )
    ax.legend(frameon=False)
    return figure
