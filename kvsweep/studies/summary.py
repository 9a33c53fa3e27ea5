"""The cells of a study in a few numbers each; replicate seeds become a mean and its interval."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr

from kvsweep.errors import InputError
from kvsweep.results.slices import value_text

MAIN: tuple[tuple[str, str, str | None], ...] = (
    ("ttft mean [s]", "ttft", "mean"), ("ttft p95 [s]", "ttft", "p95"), ("tpot mean [s]", "tpot", "mean"),
    ("e2e mean [s]", "e2e", "mean"), ("hit ratio", "token_hit_ratio", None), ("tokens/s", "tokens_per_second", None),
)  # fmt: skip
"""Columns of the table: header, variable, statistic."""

# Two-sided 95 % points of Student's t by degrees of freedom; beyond 30 the normal's will do.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def require_study(ds: xr.Dataset) -> None:
    """Raise InputError for a Dataset that is no cluster study."""
    if ds.attrs.get("kvsweep_result") != "cluster_study" or "cell_state" not in ds:
        raise InputError("not a study of clusters; allowed: a file that `kvsweep cluster sweep` wrote")


def axes_of(ds: xr.Dataset) -> list[str]:
    """Return the dims of a study that are axes."""
    return [str(dim) for dim in ds["cell_state"].dims]


def over_seeds(array: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Return the mean over ``seed`` and the half width of its 95 % interval (Student's t), NaN for a single seed."""
    if "seed" not in array.dims:
        return array, xr.full_like(array, math.nan, dtype="f8")
    n = array.notnull().sum("seed")
    degrees = np.clip(n.values - 1, 0, None)
    quantile = np.where(degrees > 30, 1.96, np.array([math.nan, *_T95])[np.minimum(degrees, 30)])
    # A single seed has no spread, which is no reason to warn.
    squares = ((array - array.mean("seed")) ** 2).sum("seed")
    deviation = np.sqrt(squares / xr.where(n > 1, n - 1, 1))
    return array.mean("seed"), deviation / np.sqrt(xr.where(n > 0, n, 1)) * xr.zeros_like(deviation).copy(data=quantile)


def table(ds: xr.Dataset) -> list[dict[str, Any]]:
    """Return a row for each cell, seeds together: its point, the main figures, ± intervals where there are seeds."""
    require_study(ds)
    axes = [name for name in axes_of(ds) if name != "seed"]
    columns: dict[str, xr.DataArray] = {}
    for header, name, statistic in MAIN:
        array = ds[name] if statistic is None else ds[name].sel(statistic=statistic, drop=True)
        mean, half = over_seeds(array)
        columns[header] = mean
        if "seed" in array.dims:
            columns[f"± {header.partition(' [')[0]}"] = half
    if "slo" in ds.dims:
        for label in ds["slo"].values:
            columns[f"meets {label}"] = over_seeds(ds["slo_attainment"].sel(slo=label, drop=True))[0]
    sizes = [ds.sizes[name] for name in axes]
    rows = []
    for place in np.ndindex(*sizes):
        at = dict(zip(axes, place, strict=True))
        row: dict[str, Any] = {name: _point(ds[name].values[index]) for name, index in at.items()}
        rows.append(row | {header: float(array.isel(at)) for header, array in columns.items()})
    return rows


def _point(value: Any) -> Any:
    return value_text(value)
