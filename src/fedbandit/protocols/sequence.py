"""Exactly once: a client numbers its uploads 1, 2, …, and a coordinator applies each number once."""

from __future__ import annotations

import math

import numpy as np

from fedbandit.errors import FedbanditError
from fedbandit.messages import Upload


def is_retry(upload: Upload, applied: int) -> bool:
    """Whether an upload has been applied before, if `applied` was the last one; one that skips a number is refused."""
    if upload.sequence > applied + 1:
        raise FedbanditError(
            f"Client {upload.member} sent upload {upload.sequence}, but {applied + 1} is the next one expected."
        )
    return upload.sequence <= applied


def check_upload(upload: Upload, dim: int, *, noisy: bool) -> None:
    """Refuse statistics that cannot be sums of observations; noise may make V indefinite."""
    sums = upload.sums
    if sums.b.size != dim:
        raise FedbanditError(f"Client {upload.member} sent statistics of dimension {sums.b.size}, expected {dim}.")
    if not math.isfinite(upload.known):
        raise FedbanditError(f"Client {upload.member} says that it knows {upload.known}, which is not finite.")
    if not noisy and np.linalg.eigvalsh(sums.V)[0] < -1e-9 * max(1.0, float(np.trace(sums.V))):
        raise FedbanditError(f"Client {upload.member} sent a matrix that is not positive semi-definite.")
