"""Fits of one variable: monotone curves through measured points, and grids of them, with rows held out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kvsweep.errors import InputError

Floats = NDArray[np.float64]
HELD_OUT_ONE_IN = 10
"""Of how many rows one is held out, to measure the error of a fit."""
FEW = 100
"""With fewer rows each is held out by turns."""


def held_out(coordinates: Sequence[float]) -> bool:
    """Return whether a row is held out: one in ten, by a digest of its coordinates, whatever the order of the file."""
    text = ",".join(f"{value:.9g}" for value in coordinates)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") % HELD_OUT_ONE_IN == 0


def isotonic(values: Floats) -> Floats:
    """Return the closest series to `values`, least squares, that never falls."""
    try:
        from scipy.optimize import isotonic_regression
    except ImportError as error:
        raise InputError("scipy is missing, which fits monotone curves; pip install 'kvsweep[fit]'") from error
    return np.asarray(isotonic_regression(values).x, float)


def isotonic_median(values: Floats) -> Floats:
    """Return a series close to `values` by absolute error that never falls: medians of pools of neighbours.

    Neighbours that fall are pooled, as in `isotonic`; a median leaves the others where they are if one is far off.
    """
    pools: list[list[float]] = []
    for value in values.tolist():
        pools.append([value])
        while len(pools) > 1 and np.median(pools[-2]) > np.median(pools[-1]):
            last = pools.pop()
            pools[-1] = pools[-1] + last
    return np.concatenate([np.full(len(pool), np.median(pool)) for pool in pools])


def robust_curve(points: Mapping[float, float]) -> tuple[Floats, Floats]:
    """Return (x, y) of a curve that never falls through measured `points`, by `isotonic_median` of their logarithms."""
    x = np.array(sorted(points))
    return x, np.exp(isotonic_median(np.log(np.maximum([points[at] for at in x.tolist()], 1e-12))))


def monotone_curve(points: Mapping[float, float]) -> tuple[Floats, Floats]:
    """Return (x, y) of a curve that never falls through measured `points`; relative errors count alike."""
    x = np.array(sorted(points))
    y = np.exp(isotonic(np.log(np.maximum([points[at] for at in x.tolist()], 1e-12))))
    return x, y


def monotone_grid(values: Floats, axes: Sequence[int], rounds: int = 4) -> Floats:
    """Return `values` made not to fall along each of `axes`, by turns; relative errors count alike."""
    logs = np.log(np.maximum(values, 1e-12))
    for _ in range(rounds):
        before = logs.copy()
        for axis in axes:
            moved = np.moveaxis(logs, axis, -1)
            falls = (np.diff(moved, axis=-1) < 0.0).any(axis=-1)
            for index in np.argwhere(falls):
                moved[tuple(index)] = isotonic(moved[tuple(index)])
        if np.array_equal(before, logs):
            break
    return np.asarray(np.exp(logs))


def filled(values: Floats, axes: Sequence[Floats]) -> Floats:
    """Return `values` with gaps (NaN) filled: linear between neighbours, along the axis that has them, the last first.

    A gap at an end continues the last two points. Raises InputError for a grid that cannot be filled.
    """
    values = values.copy()
    for extend in (False, True):
        for axis in reversed(range(values.ndim)):
            moved = np.moveaxis(values, axis, -1)
            for index in np.argwhere(np.isnan(moved).any(axis=-1)):
                row = moved[tuple(index)]
                moved[tuple(index)] = _filled_row(row, axes[axis], extend)
    if np.isnan(values).any():
        raise InputError("the grid of measurements has gaps that no neighbours fill; allowed: whole lines of a grid")
    return values


def _filled_row(row: Floats, axis: Floats, extend: bool) -> Floats:
    known = ~np.isnan(row)
    if known.sum() < 2:
        return row
    inside = (axis >= axis[known].min()) & (axis <= axis[known].max())
    gaps = ~known & inside
    row = row.copy()
    row[gaps] = np.interp(axis[gaps], axis[known], row[known])
    if extend:
        known = ~np.isnan(row)
        x, y = axis[known], row[known]
        for at in np.flatnonzero(~known):
            a, b = (0, 1) if axis[at] < x[0] else (-2, -1)
            row[at] = max(y[a] + (y[b] - y[a]) / (x[b] - x[a]) * (axis[at] - x[a]), 0.0)
    return row


def thinned(x: Floats, y: Floats, tolerance: float) -> list[int]:
    """Return the indices of the points that keep a linear curve within `tolerance` (relative) of all points."""
    keep = [0, len(x) - 1]
    while True:
        fit = np.interp(x, x[keep], y[keep])
        error = np.abs(fit - y) / y
        worst = int(error.argmax())
        if error[worst] <= tolerance:
            return keep
        keep = sorted({*keep, worst})


def positive(columns: Floats, seconds: Floats) -> list[float]:
    """Return the coefficients of `columns` (row, coefficient), none negative, of least squared relative error."""
    try:
        from scipy.optimize import nnls
    except ImportError as error:
        raise InputError("scipy is missing, which fits the models; pip install 'kvsweep[fit]'") from error
    scale = np.abs(columns).max(axis=0)
    scale[scale == 0.0] = 1.0
    found, _ = nnls(columns / scale / seconds[:, None], np.ones(len(seconds)))
    return [float(value) for value in found / scale]
