"""What differs between two sweeps: their configuration, and their verdicts and times on the points both have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from kvsweep.errors import InputError, shown
from kvsweep.results.analysis.slices import grid_dims, value_text
from kvsweep.results.analysis.sweeps import require_policies
from kvsweep.results.attrs import mapping_attr
from kvsweep.results.names import NAMES

FOLLOWING = frozenset({"vram_fraction", "dram_fraction", "disk_fraction", "miss_blocks", "storage_throughput"})
"""Coordinates that only restate another setting."""


@dataclass(frozen=True)
class Difference:
    """A setting, resolved figure or origin that is not the same; None where one side has none."""

    name: str
    a: str | None
    b: str | None


@dataclass(frozen=True)
class AxisOverlap:
    """Points of a dim in either sweep and in both; compared are only the latter."""

    dim: str
    n_a: int
    n_b: int
    n_common: int


@dataclass(frozen=True)
class TimeChange:
    """Total times [s] at one point and ``ratio = seconds_b / seconds_a`` [1]; `where` holds the point's coordinates."""

    seconds_a: float
    seconds_b: float
    ratio: float
    where: Mapping[str, float | str]


@dataclass(frozen=True)
class PolicyComparison:
    """Verdicts of one policy over the common points [point], and where its time grew and shrank the most."""

    policy: str
    pass_to_fail: int
    fail_to_pass: int
    pass_both: int
    fail_both: int
    worst: TimeChange
    best: TimeChange


@dataclass(frozen=True)
class Comparison:
    """Two sweeps side by side; `points` [point] is the size of the common grid, policies not counted.

    `labels` are the names people read of all policies, by id.
    """

    differences: tuple[Difference, ...]
    axes: tuple[AxisOverlap, ...]
    points: int
    policies: tuple[PolicyComparison, ...]
    policies_only_a: tuple[str, ...]
    policies_only_b: tuple[str, ...]
    labels: dict[str, str]


def compare(a: xr.Dataset, b: xr.Dataset) -> Comparison:
    """Return how sweep `b` differs from sweep `a`.

    Points are the same where every coordinate is exactly equal. A dim that one sweep has and the other squeezed
    out is compared at that one value; one that neither has is configuration (two stacks, say) and may differ.
    Raises InputError when no point or policy is in both.
    """
    for ds in (a, b):
        require_policies(ds)
    ours, theirs = [str(name) for name in a["policy"].values], [str(name) for name in b["policy"].values]
    common = [name for name in ours if name in theirs]
    if not common:
        raise InputError(f"no policy is in both: {shown(', '.join(ours))} and {shown(', '.join(theirs))}")
    compared = ["total_time", "meets_slo"]
    at_a, at_b, axes = common_grid(a[compared], b[compared])
    dims = [axis.dim for axis in axes]
    return Comparison(
        differences=tuple(_differences(at_a, at_b, dims)),
        axes=tuple(axes),
        points=int(np.prod([axis.n_common for axis in axes], dtype=np.int64)),
        policies=tuple(_policy(at_a.sel(policy=name), at_b.sel(policy=name), name, dims) for name in common),
        policies_only_a=tuple(name for name in ours if name not in theirs),
        policies_only_b=tuple(name for name in theirs if name not in ours),
        labels={**_labels(b), **_labels(a)},
    )


def _labels(ds: xr.Dataset) -> dict[str, str]:
    return {str(name): str(label) for name, label in zip(ds["policy"].values, ds["policy_label"].values, strict=True)}


def common_grid(a: xr.Dataset, b: xr.Dataset) -> tuple[xr.Dataset, xr.Dataset, list[AxisOverlap]]:
    """Return both sweeps cut to the points they share, with the same dims, and the overlap along each dim.

    Points are in the order `a` has them. Raises InputError when no point is in both.
    """
    dims = list(dict.fromkeys([*grid_dims(a), *grid_dims(b)]))
    axes = []
    for dim in dims:
        a, b = _as_dim(a, dim), _as_dim(b, dim)
        _, of_a, of_b = np.intersect1d(_points(a, dim), _points(b, dim), return_indices=True)
        axes.append(AxisOverlap(dim, a.sizes[dim], b.sizes[dim], len(of_a)))
        if not of_a.size:
            raise InputError(f"no point is in both sweeps: {dim} is {_span(a[dim].values)} and {_span(b[dim].values)}")
        order = np.argsort(of_a)
        a, b = a.isel({dim: of_a[order]}), b.isel({dim: of_b[order]})
    return a.transpose("policy", *dims, ...), b.transpose("policy", *dims, ...), axes


def _as_dim(ds: xr.Dataset, dim: str) -> xr.Dataset:
    if dim in ds.dims:
        return ds
    if dim not in ds.coords or ds[dim].ndim:
        raise InputError(f"no point is in both sweeps: only one of them has {dim}")
    return ds.expand_dims(dim)


def _points(ds: xr.Dataset, dim: str) -> Any:
    points = ds[dim].values
    return points if points.dtype.kind in "fiu" else points.astype(str)


def _span(points: Any) -> str:
    if len(points) <= 3 or points.dtype.kind not in "fiu":
        return ", ".join(map(value_text, points[:3])) + (", …" if len(points) > 3 else "")
    return f"{value_text(points.min())} to {value_text(points.max())} ({len(points)} points)"


def _differences(a: xr.Dataset, b: xr.Dataset, dims: list[str]) -> list[Difference]:
    """Return settings that differ, then figures of the machine and model on the common grid, then origins."""
    sides: list[dict[str, str]] = []
    for ds in (a, b):
        texts = {str(name): _text(value) for name, value in mapping_attr(ds, "kvsweep_config").items()}
        for name, coord in ds.coords.items():
            known = name in NAMES and name not in dims and name not in FOLLOWING
            if known and set(coord.dims) <= set(dims):
                texts.setdefault(str(name), _span(np.unique(coord.values)))
        texts |= {name: str(ds.attrs[name]) for name in ("source", "kvsweep_catalog_sha256") if name in ds.attrs}
        sides.append(texts)
    names = dict.fromkeys([*sides[0], *sides[1]])
    pairs = [Difference(name, sides[0].get(name), sides[1].get(name)) for name in names]
    return [pair for pair in pairs if pair.a != pair.b]


def _text(value: Any) -> str:
    return ", ".join(map(value_text, value)) if isinstance(value, list) else value_text(value)


def _policy(a: xr.Dataset, b: xr.Dataset, name: str, dims: list[str]) -> PolicyComparison:
    passes_a, passes_b = a["meets_slo"].values == 1, b["meets_slo"].values == 1
    before, after = a["total_time"].values.astype("f8"), b["total_time"].values.astype("f8")
    with np.errstate(divide="ignore", invalid="ignore"):
        # A request of no blocks takes no time in either sweep: that is no change.
        ratio = np.where(before == after, 1.0, after / before)

    def change(position: Any) -> TimeChange:
        index = np.unravel_index(position, ratio.shape)
        where = {dim: a[dim].values[place].item() for dim, place in zip(dims, index, strict=True)}
        return TimeChange(float(before[index]), float(after[index]), float(ratio[index]), where)

    return PolicyComparison(
        policy=name,
        pass_to_fail=int(np.count_nonzero(passes_a & ~passes_b)),
        fail_to_pass=int(np.count_nonzero(~passes_a & passes_b)),
        pass_both=int(np.count_nonzero(passes_a & passes_b)),
        fail_both=int(np.count_nonzero(~passes_a & ~passes_b)),
        worst=change(np.argmax(ratio)),
        best=change(np.argmin(ratio)),
    )
