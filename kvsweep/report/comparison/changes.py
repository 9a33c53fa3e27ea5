"""Two sweeps as the viewer reads them: planes of verdict changes on the common grid, with states and times of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kvsweep.errors import InputError
from kvsweep.report.comparison.headline import CHANGES, sentences
from kvsweep.report.labels import label, number, shorten, unit
from kvsweep.report.payload import (
    AXIS_PREFERENCE,
    DEFAULT_BUDGET,
    FORMAT,
    Payload,
    Planes,
    default_axes,
    describe_dim,
    describe_policies,
    independent,
    start_amid,
)
from kvsweep.results.analysis import sweeps
from kvsweep.results.analysis.compare import Comparison, PolicyComparison, common_grid

_LOOK = (
    {"text": "Fails in both", "letter": "F", "note": "", "pattern": "dots", "light": "#aab1bb", "dark": "#596270"},
    {"text": "Passes in both", "letter": "P", "note": "", "pattern": "plain", "light": "#dfe9f3", "dark": "#2a3950"},
    {"text": "Pass → fail", "letter": "−", "note": "worse", "pattern": "cross", "light": "#b4490f", "dark": "#e58a3c"},
    {
        "text": "Fail → pass",
        "letter": "+",
        "note": "better",
        "pattern": "diagonal",
        "light": "#1f5fa8",
        "dark": "#62aaf2",
    },
)
_VIEWS = {
    "verdict": {"label": "Verdict changes from A to B", "plane": "verdict"},
    "verdict_a": {"label": "SLO state in A", "plane": "verdict_a"},
    "verdict_b": {"label": "SLO state in B", "plane": "verdict_b"},
    "time_ratio": {"label": "Total time of B over that of A (1: equal)", "unit": ""},
    "total_time_a": {"label": "Total time in A [s]", "unit": "s"},
    "total_time_b": {"label": "Total time in B [s]", "unit": "s"},
}
_TIMES = ("total_time", "storage_time", "recompute_time")
_COLUMNS = (
    ("verdict_change", "verdict"), ("verdict_a", "verdict_a"), ("verdict_b", "verdict_b"), ("time_ratio", "time_ratio"),
    *((f"{name}_{side}", f"{name}_{side}") for name in _TIMES for side in "ab"),
)  # fmt: skip


def pack_changes(a: xr.Dataset, b: xr.Dataset, found: Comparison, cells_budget: int = DEFAULT_BUDGET) -> Payload:
    """Return the payload of a comparison; `found` is what `compare(a, b)` returned.

    Raises
    ------
    InputError
        For a common grid of more than `cells_budget` points.
    """
    if found.points > cells_budget:
        raise InputError(
            f"report: {found.points:,} grid points in both are more than the budget of {cells_budget:,}; compare "
            "coarser sweeps or slices of them (ds.sel), or raise --max-points (cells_budget)"
        )
    names = [row.policy for row in found.policies]
    at_a, at_b, _ = common_grid(a, b)
    at_a, at_b = at_a.sel(policy=names), at_b.sel(policy=names)
    dims = [axis.dim for axis in found.axes]
    described = [describe_dim(at_a, dim) for dim in dims]
    described += _held_axes(a, b, [dim for dim in AXIS_PREFERENCE if dim not in dims][: max(0, 2 - len(dims))])
    planes = Planes()
    changes = []
    for index in range(len(names)):
        for name, array in _arrays(at_a.isel(policy=[index]), at_b.isel(policy=[index]), dims):
            if name == "verdict":
                changes.append(array)
            planes.add(f"{name}.{index}", *independent(array, dims))
    header = _header(at_a, described, np.stack(changes)) | {
        "headline": sentences(found, at_a, np.stack(changes), dims),
        "scalars": _shared_scalars(a, b),
        "planes": planes.specs,
        "ranges": _joint(planes.ranges) | {"time_ratio": _greatest_factor(found.policies)},
    }
    return Payload(header, planes.stored)


def _arrays(a: xr.Dataset, b: xr.Dataset, dims: list[str]) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield every plane of one policy by name, on all dims."""
    passes = [ds["meets_slo"].values[0] == 1 for ds in (a, b)]
    codes = [~passes[0] & ~passes[1], passes[0] & passes[1], passes[0] & ~passes[1], ~passes[0] & passes[1]]
    yield "verdict", np.asarray(sum(code * place for place, code in enumerate(codes)), dtype=np.uint8)
    for side, ds in (("a", a), ("b", b)):
        arrays = {
            "verdict": sweeps.verdict(ds).astype("u1"),
            "total_time": ds["total_time"],
            "storage_time": sweeps.storage_time(ds),
            "recompute_time": sweeps.recompute_time(ds),
        }
        for name, array in arrays.items():
            yield f"{name}_{side}", array.isel(policy=0).transpose(*dims).values


def _header(ds: xr.Dataset, dims: list[dict[str, Any]], changes: NDArray[np.uint8]) -> dict[str, Any]:
    """Return what describes the data; `changes` are the codes (policy, \\*dims)."""
    names = [dim["name"] for dim in dims]
    shape = tuple(len(dim["values"]) for dim in dims)
    axes = default_axes(dict(zip(names, shape, strict=True)))
    changed = np.asarray((changes >= CHANGES.index("pass_to_fail")).any(axis=0)).reshape(shape)
    return {
        "format": FORMAT,
        "dims": dims,
        "policies": describe_policies(ds),
        "axes": axes,
        "start": start_amid(changed, names, axes),
        "counts": [np.bincount(plane.ravel(), minlength=len(CHANGES)).tolist() for plane in changes],
        "states": {"verdict": [{"name": name} | look for name, look in zip(CHANGES, _LOOK, strict=True)]},
        "unchanged": "no change",
        "views": _VIEWS,
        "columns": _COLUMNS,
    }


def _held_axes(a: xr.Dataset, b: xr.Dataset, names: list[str]) -> list[dict[str, Any]]:
    """Return axes of one value for a grid of fewer than two; where A and B differ, the value is told as text."""
    axes = []
    for name in names:
        if name in a.coords and name in b.coords and a[name].values == b[name].values:
            axes.append(describe_dim(a.expand_dims(name), name))
            continue
        texts = [_coordinate_text(ds, name) for ds in (a, b)]
        value = texts[0] if texts[0] == texts[1] else f"{texts[0]} in A, {texts[1]} in B"
        axes.append({"name": name, "label": label(name), "unit": "", "kind": "category", "values": [value]})
    return axes


def _coordinate_text(ds: xr.Dataset, name: str) -> str:
    if name not in ds.coords or ds[name].ndim:
        return "–"
    value = ds[name].item()
    return shorten(value) if isinstance(value, str) else f"{number(float(value))} {unit(name, ds[name])}".strip()


def _shared_scalars(a: xr.Dataset, b: xr.Dataset) -> dict[str, float]:
    """Return the request rate and latency target where both sweeps hold the same one."""
    names = [name for name in ("request_rate", "p95_seconds") if all(ds[name].ndim == 0 for ds in (a, b))]
    return {name: float(a[name]) for name in names if float(a[name]) == float(b[name])}


def _joint(ranges: Mapping[str, list[float]]) -> dict[str, list[float]]:
    """Return ranges in which A and B share one scale."""
    joint = dict(ranges)
    for name in _TIMES:
        both = [ranges[f"{name}_{side}"] for side in "ab"]
        low = min((each[0] for each in both if each[0] > 0.0), default=0.0)
        joint |= dict.fromkeys((f"{name}_a", f"{name}_b"), [low, max(each[1] for each in both)])
    return joint


def _greatest_factor(rows: tuple[PolicyComparison, ...]) -> float:
    """Return the greatest finite factor [1] between the times of A and B, either way."""
    ratios = [change.ratio for row in rows for change in (row.worst, row.best)]
    return max([max(ratio, 1.0 / ratio) for ratio in ratios if 0.0 < ratio < np.inf], default=1.0)
