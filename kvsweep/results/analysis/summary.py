"""What a sweep comes to, policy by policy: success rates, and where each policy is the simplest that passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kvsweep.results.analysis.ranking import simplest_first


@dataclass(frozen=True)
class Summary:
    """One policy over the whole grid; None where a reduction did not keep what it takes. Rates and shares in 0..1."""

    success_rate: float | None
    success_rate_by_hit_ratio: tuple[float, ...] | None
    """In the order of the axis; None also where the sweep is over missing blocks."""
    sufficient_share: float | None
    """Share of the points where this is the simplest policy that meets the SLO."""
    reductions: Mapping[str, float]
    """The other reductions, over the dims they kept."""


def summarize(ds: xr.Dataset) -> dict[str, Summary]:
    """Return the summary of each policy of a sweep or a reduction, in the order of `ds`."""
    names = [str(name) for name in ds["policy"].values]
    passed = _first_of(ds, "meets_slo", "success_rate")
    overall = [None] * len(names) if passed is None else _along(passed, "policy").tolist()
    by_hits = _by_hit_ratio(ds, passed)
    shares = _sufficient_shares(ds)
    other = [name for name in map(str, ds.data_vars) if name.startswith("total_time_") or name.endswith("_mean")]
    reductions = {name: _combined(ds[name]) for name in other}
    return {
        name: Summary(
            success_rate=overall[index],
            success_rate_by_hit_ratio=None if by_hits is None else tuple(by_hits[index].tolist()),
            sufficient_share=None if shares is None else float(shares[index]),
            reductions={reduction: float(values[index]) for reduction, values in reductions.items()},
        )
        for index, name in enumerate(names)
    }


def _first_of(ds: xr.Dataset, *names: str) -> xr.DataArray | None:
    return next((ds[name] for name in names if name in ds.data_vars), None)


def _along(array: xr.DataArray, *dims: str) -> NDArray[np.float64]:
    """Return the mean over all dims but `dims`, in their order."""
    mean = array.mean([dim for dim in array.dims if dim not in dims], dtype="f8")
    return np.asarray(mean.transpose(*dims).values)


def _by_hit_ratio(ds: xr.Dataset, passed: xr.DataArray | None) -> NDArray[np.float64] | None:
    if passed is None or "hit_ratio" not in ds.coords:
        return None
    if "hit_ratio" in passed.dims:
        return _along(passed, "policy", "hit_ratio")
    return _along(passed, "policy")[:, None]


def _sufficient_shares(ds: xr.Dataset) -> NDArray[np.float64] | None:
    if "sufficient_share" in ds.data_vars:
        return _along(ds["sufficient_share"], "policy")
    if "meets_slo" not in ds.data_vars:
        return None
    # Not by way of `sweeps.sufficient`: two masks of a byte a point are the least memory this takes.
    meets = ds["meets_slo"].transpose("policy", ...).values.view(bool)
    unmet = np.ones(meets.shape[1:], dtype=bool)
    shares = np.zeros(len(meets))
    for index in simplest_first(ds["policy_modes"].values, ds["policy_order"].values):
        shares[index] = np.mean(unmet & meets[index], dtype="f8")
        unmet &= ~meets[index]
    return shares


def _combined(array: xr.DataArray) -> NDArray[np.float64]:
    """Return a reduction over the dims it kept: the least of minima, the greatest of maxima, the mean of means."""
    dims = [dim for dim in array.dims if dim != "policy"]
    kind = str(array.name).rpartition("_")[2]
    combined = {"min": array.min, "max": array.max}.get(kind, array.mean)(dims)
    return np.asarray(combined.values)
