"""Violins on a log axis, which matplotlib's own would distort: the density is that of the logarithms."""

from __future__ import annotations

import numpy as np
from matplotlib.mlab import GaussianKDE
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEVELS = 160


def log_violin(values: Array) -> tuple[Array, Array]:
    """Return levels from the least to the greatest of `values` and the density at each, the largest being 1."""
    logarithms = np.log10(values)
    low, high = float(logarithms.min()), float(logarithms.max())
    levels = np.linspace(low, high, LEVELS)
    density = np.asarray(GaussianKDE(logarithms).evaluate(levels)) if high > low else np.ones(LEVELS)
    return 10.0**levels, density / density.max()
