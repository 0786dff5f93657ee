"""Noise for production: exact sampling by OpenDP with the operating system's randomness (extra `fedbandit[secure]`).

Floating-point noise leaks: which last bits x + noise can have depends on x (Mironov 2012), and NumPy's generators can
be predicted from their output. Here values are rounded to a grid of 2^k, k = ⌊log₂ scale⌋ − 40, discrete noise is added
in whole numbers, and only then does the result become a float.

| noise | of | float-safe |
|---|---|---|
| Gaussian, "symmetric" and "vector" | `PrivateStatistics`, Gaussian trees and BLTs | yes |
| Laplace | `NoisyRewards` | yes |
| gamma | pure trees on vectors | no: OpenDP has none; randomness is secure, the last bits are not |

What leaves a client is computed from u = C x + z (`mechanism.release`), which is drawn here, and from nothing else: so
all of it is float-safe. Rounding to the grid, and rounding errors in C x, lengthen the difference of neighbours by a
fraction that is far below 2⁻²⁰; the scale is enlarged by that. Not covered: how long anything takes.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit.errors import FedbanditError, needs
from fedbandit.privacy.noise import Kind, Size, draw_gamma
from fedbandit.types import Array

_FINER = 40  # binary digits of the grid below the scale
_ROUNDING = 1 + 2.0**-20


class SecureSource:
    """A `Source` for clients that face real adversaries: `ClientMachine(…, source=SecureSource())`."""

    label = "secure"

    def __init__(self) -> None:
        needs("opendp", "secure", "Secure noise")

    def perturb(self, kind: Kind, values: Array, scale: float) -> Array:
        """`values` with noise of this kind and scale, float-safe but for gamma noise."""
        match kind:
            case "symmetric":
                return self._perturb_symmetric(values, scale)
            case "vector" | "laplace":
                noisy = _measurement(kind, scale, values.size)(values.ravel().tolist())
                return np.array(noisy).reshape(values.shape)
            case "gamma":
                return np.asarray(values + scale * draw_gamma(self, values.shape))

    def _perturb_symmetric(self, values: Array, scale: float) -> Array:
        """Off the diagonal with this scale, on it with √2 times as much; the lower triangle repeats the upper."""
        d = values.shape[-1]
        rows, columns = np.triu_indices(d, 1)
        noisy = np.empty_like(values)
        above = self.perturb("vector", values[..., rows, columns], scale)
        noisy[..., rows, columns] = noisy[..., columns, rows] = above
        diagonal = np.arange(d)
        noisy[..., diagonal, diagonal] = self.perturb("vector", values[..., diagonal, diagonal], math.sqrt(2) * scale)
        return noisy

    def discrete_gaussian(self, std: float, size: int) -> NDArray[np.int64]:
        """Independent discrete Gaussians with this parameter, exact."""
        return np.array(_discrete(std)([0] * size), dtype=np.int64)

    def standard_normal(self, size: Size) -> Array:
        """Independent N(0, 1), on the grid."""
        return self.perturb("vector", np.zeros(size), 1.0)

    def standard_gamma(self, shape: float, size: Size) -> Array:
        """Independent Gamma(shape, 1) for whole shapes: sums of exponentials, which are Laplace without their sign."""
        if not shape.is_integer():
            raise FedbanditError(f"The shape of secure gamma noise is {shape!r}, but must be a whole number.")
        return np.asarray(np.abs(self.laplace(0.0, 1.0, (*size, int(shape)))).sum(axis=-1))

    def laplace(self, loc: float, scale: float, size: Size) -> Array:
        """Independent Laplace, on the grid."""
        return self.perturb("laplace", np.full(size, loc), scale)


@cache
def _discrete(std: float) -> Any:
    """OpenDP's discrete Gaussian."""
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    return make_gaussian(vector_domain(atom_domain(T="i64")), l2_distance(T="f64"), scale=std * _ROUNDING)


@cache
def _measurement(kind: Kind, scale: float, numbers: int) -> Any:
    """OpenDP's mechanism for vectors of this length."""
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian, make_laplace
    from opendp.metrics import l1_distance, l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    domain = vector_domain(atom_domain(T=float, nan=False), size=numbers)
    k = math.floor(math.log2(scale)) - _FINER
    if kind == "laplace":
        return make_laplace(domain, l1_distance(T=float), scale=scale * _ROUNDING, k=k)
    return make_gaussian(domain, l2_distance(T=float), scale=scale * _ROUNDING, k=k)
