"""The tables of docs/privacy.md, computed. `python -m fedbandit.privacy.table` prints them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedbandit.privacy.bounds import noise_bounds, psd_shift, published_bounds
from fedbandit.privacy.mechanism import epsilon_of, gram_mechanism, noise_std
from fedbandit.privacy.published import feducb_privatiser

BUDGETS = ((1.0, 1e-5), (1.0, 0.1), (0.1, 1e-5), (10.0, 0.1))
RELEASES = (16, 128, 1024)


class NoiseRow(NamedTuple):
    """Standard deviation of the noisiest entry (off the diagonal) in the noisiest of n releases, for L = B = κ = 1."""

    epsilon: float
    delta: float
    releases: int
    published: float  # FedUCB's tree with FedUCB's scale
    published_epsilon: float  # what that really gives at δ
    tree: float
    blt: float


class ShiftRow(NamedTuple):
    """Shifts of V for 128 releases, d = 10, α = 0.01: FedUCB's 2Λ, and what keeps V positive definite."""

    epsilon: float
    delta: float
    published: float
    published_needed: float  # by FedUCB's own noise
    tree: float
    blt: float
    bounds_shift: float  # `noise_bounds` of the BLT with κ = ½: the shift that makes the width smallest


def noise_table() -> list[NoiseRow]:
    """One row for each budget and number of releases."""
    rows = []
    for epsilon, delta in BUDGETS:
        for n in RELEASES:
            published = feducb_privatiser(epsilon, delta, n, dim=2)
            tree, blt = (
                gram_mechanism(epsilon, delta, n, dim=2, reward_weight=1.0, kind=kind) for kind in ("tree", "blt")
            )
            largest = [float(noise_std(mechanism).max()) for mechanism in (published, tree, blt)]
            rows.append(NoiseRow(epsilon, delta, n, largest[0], epsilon_of(published), largest[1], largest[2]))
    return rows


def shift_table() -> list[ShiftRow]:
    """One row for each budget."""
    rows = []
    for epsilon, delta in BUDGETS:
        n, dim = 128, 10
        published = feducb_privatiser(epsilon, delta, n, dim)
        tree = gram_mechanism(epsilon, delta, n, dim, reward_weight=1.0, kind="tree")
        blt = gram_mechanism(epsilon, delta, n, dim, reward_weight=1.0, kind="blt")
        rows.append(
            ShiftRow(
                epsilon,
                delta,
                published_bounds(epsilon, delta, n, dim).shift,
                psd_shift(published),
                psd_shift(tree),
                psd_shift(blt),
                noise_bounds(gram_mechanism(epsilon, delta, n, dim, kind="blt")).shift,
            )
        )
    return rows


def noise_markdown() -> str:
    """`noise_table` as it stands in the docs."""
    head = (
        "ε",
        "δ",
        "releases",
        "FedUCB published",
        "its true ε",
        "tree",
        "BLT",
        "published / tree",
        "published / BLT",
    )
    body = [
        (
            f"{row.epsilon:g}",
            f"{row.delta:g}",
            f"{row.releases}",
            f"{row.published:.1f}",
            f"{row.published_epsilon:.3g}",
            f"{row.tree:.2f}",
            f"{row.blt:.2f}",
            f"{row.published / row.tree:.1f}",
            f"{row.published / row.blt:.1f}",
        )
        for row in noise_table()
    ]
    return _markdown(head, body)


def shift_markdown() -> str:
    """`shift_table` as it stands in the docs."""
    head = ("ε", "δ", "FedUCB's 2Λ", "needed by its noise", "by the tree", "by the BLT", "`noise_bounds`, κ = ½")
    body = [(f"{row.epsilon:g}", f"{row.delta:g}", *(f"{shift:.0f}" for shift in row[2:])) for row in shift_table()]
    return _markdown(head, body)


def _markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


if __name__ == "__main__":
    print(noise_markdown(), shift_markdown(), sep="\n\n")
