"""A sweep as the viewer reads it: a JSON header and one gzipped plane of numbers a policy and quantity.

A plane leaves out the dims its numbers do not depend on (times rarely depend on the request rate, say). What is
left is stored as it is up to `EXACT_VALUES`; larger planes are quantised on a logarithmic scale to 24 bits, the
upper 8 in a plane that is enough for a picture and the lower 16 in a second one for read-outs.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kvsweep.errors import InputError
from kvsweep.report.headline import headline
from kvsweep.report.labels import IN_TOKENS, block_tokens, label, unit
from kvsweep.results.analysis import sweeps
from kvsweep.results.analysis.ranking import simplest_first

FORMAT = 1
EXACT_VALUES = 1 << 17
"""Longest plane [value] stored without quantisation."""

LEVELS = (1 << 24) - 3
"""Steps between the least and the greatest value; codes 0 and 2**24 - 1 stand for 0 and infinity."""

DERIVED_ERROR = 1e-6
"""Relative error [1] up to which the viewer derives a large plane from others instead of reading it."""

DEFAULT_BUDGET = 4_000_000
"""Grid points a report may hold, policies not counted."""

AXIS_PREFERENCE = ("request_rate", "p95_seconds", "hit_ratio", "miss_blocks", "total_blocks", "stack")
_SHARED = ("total_blocks", "miss_blocks", "storage_throughput", "recompute_throughput", "tokens_per_block")


@dataclass(frozen=True)
class Payload:
    """`header` is JSON-ready; `planes` maps names to gzipped little-endian bytes."""

    header: dict[str, Any]
    planes: dict[str, bytes]

    @property
    def n_bytes(self) -> int:
        """Size [byte] of the gzipped planes."""
        return sum(map(len, self.planes.values()))


@dataclass
class Planes:
    """Planes under way: `specs` describes each, `stored` holds their bytes, `ranges` spans each quantity's values."""

    specs: dict[str, dict[str, Any]] = field(default_factory=dict)
    stored: dict[str, bytes] = field(default_factory=dict)
    ranges: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, values: NDArray[Any], dims: list[str], residue: float = math.inf) -> None:
        """Add the plane `name`, which depends on `dims`, unless the viewer can derive it to within DERIVED_ERROR."""
        quantity = name.partition(".")[0]
        self.ranges[quantity] = _widen(self.ranges.get(quantity), values)
        if residue < DERIVED_ERROR:
            self.specs[name] = {"type": "derived", "error": residue}
            return
        spec, parts = _store(values)
        self.specs[name] = spec | {"dims": dims}
        self.stored |= {name + suffix: gzip.compress(raw, 9, mtime=0) for suffix, raw in parts.items()}


def pack(ds: xr.Dataset, cells_budget: int = DEFAULT_BUDGET) -> Payload:
    """Return the payload of a full sweep.

    Raises
    ------
    InputError
        For a Dataset that is no full sweep, or one with more than `cells_budget` grid points.
    """
    require_full_sweep(ds)
    ds = _with_two_axes(ds)
    dims = [str(dim) for dim in ds["meets_slo"].dims if dim != "policy"]
    check_budget({dim: ds.sizes[dim] for dim in dims}, cells_budget)
    numbers = _bare(ds)
    verdict = numbers.kvsweep.verdict.transpose("policy", *dims).values.astype(np.uint8)
    planes = Planes()
    for name, array in _arrays(numbers, dims, verdict):
        values, kept = independent(array, dims)
        planes.add(name, values, kept, _residue(numbers, name, array) if _is_large(values) else math.inf)
    most = float(ds["tokens_per_block"].max())
    ranges = planes.ranges | {"reassigned_tokens": [each * most for each in planes.ranges["reassigned_hit_blocks"]]}
    return Payload(_header(ds, dims, verdict) | {"planes": planes.specs, "ranges": ranges}, planes.stored)


def _bare(ds: xr.Dataset) -> xr.Dataset:
    """Return `ds` with data in place of coordinates: aligning and merging these is most of xarray's time here."""
    free = [name for name in ds.indexes if name != "tier"]  # tiers are picked by name
    bare = ds.drop_indexes(free)
    return bare.reset_coords([name for name in bare.coords if name != "tier"])


def require_full_sweep(ds: xr.Dataset) -> None:
    """Raise InputError, naming what is needed, for reductions and other files."""
    if ds.attrs.get("kvsweep_kind") == "reduction":
        raise InputError("report: this file holds reductions of a sweep; allowed: a full sweep (run it without reduce)")
    sweeps.require_policies(ds)


def check_budget(sizes: Mapping[str, int], budget: int) -> None:
    """Raise InputError naming the ways out when the grid has more points than `budget`."""
    points = math.prod(sizes.values())
    if points > budget:
        grid = " x ".join(f"{dim} {length}" for dim, length in sizes.items())
        raise InputError(
            f"report: {points:,} grid points ({grid}) are more than the budget of {budget:,}; sweep coarser axes, "
            "select a slice (ds.sel), reduce in the sweep (--reduce), or raise --max-points (cells_budget)"
        )


def _with_two_axes(ds: xr.Dataset) -> xr.Dataset:
    """Return `ds` with squeezed-out axes put back until there are two to draw."""
    names = [str(name) for name in ds.data_vars if "policy" in ds[name].dims]
    for name in AXIS_PREFERENCE:
        if ds["meets_slo"].ndim >= 3:
            break
        if name in ds.coords and name not in ds.dims:
            axis = ds[name]
            grown = {each: ds[each].drop_vars(name).expand_dims({name: [axis.item()]}, axis=-1) for each in names}
            ds = ds.drop_vars([*names, name]).assign(grown)
    return ds


def _arrays(ds: xr.Dataset, dims: list[str], verdict: NDArray[np.uint8]) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield every plane of the payload by name, on all dims."""
    shape = verdict.shape[1:]
    for index in range(len(verdict)):
        one = ds.isel(policy=[index])
        stored = {
            "total_time": one["total_time"],
            "reassigned_hit_blocks": one["reassigned_hit_blocks"],
            "storage_time": one.kvsweep.storage_time,
            "recompute_time": one.kvsweep.recompute_time,
            "decision_mode": one["decision_mode"].astype("u1"),
        }
        yield f"verdict.{index}", verdict[index]
        for name, array in stored.items():
            yield f"{name}.{index}", array.isel(policy=0).transpose(*dims).values
    for name in _SHARED:
        array = ds[name].transpose(*[dim for dim in dims if dim in ds[name].dims]).astype("f8")
        index_of = tuple(slice(None) if dim in array.dims else None for dim in dims)
        yield name, np.broadcast_to(array.values[index_of], shape)


def independent(array: NDArray[Any], dims: Sequence[str]) -> tuple[NDArray[Any], list[str]]:
    """Return `array` without the dims along which it never changes, and the dims that are left."""
    kept = list(dims)
    for dim in dims:
        axis = kept.index(dim)
        first = array.take([0], axis=axis)
        if array.shape[axis] == 1 or bool((array == first).all()):
            array = first.squeeze(axis)
            kept.remove(dim)
    return np.ascontiguousarray(array), kept


def _store(values: NDArray[Any]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the description of a plane and its bytes by name suffix."""
    if values.dtype == np.uint8:
        return {"type": "u1"}, {"": values.tobytes()}
    if not _is_large(values) or not _has_log_scale(values):
        kind = "f4" if values.dtype == np.float32 else "f8"
        return {"type": kind}, {"": values.astype("<" + kind).tobytes()}
    codes, low, step = quantise(values)
    fine = (codes & 0xFFFF).astype("<u2").view(np.uint8).reshape(-1, 2)
    parts = {".hi": (codes >> 16).astype(np.uint8).tobytes(), ".lo": fine.T.tobytes()}
    return {"type": "log24", "low": low, "step": step, "error": math.expm1(step / 2)}, parts


def _is_large(values: NDArray[Any]) -> bool:
    return values.dtype != np.uint8 and values.size > EXACT_VALUES


def _residue(ds: xr.Dataset, name: str, array: NDArray[Any]) -> float:
    """Return the greatest relative difference [1] between a plane and what the viewer can derive it from.

    That is the longer of restore and recompute for the total, and blocks over rate for the recompute time; inf
    for other planes. Comparing keeps the viewer right under cost models where neither holds.
    """
    quantity, _, index = name.partition(".")
    if quantity not in ("total_time", "recompute_time"):
        return math.inf
    one = ds.isel(policy=int(index))
    blocks = one["miss_blocks"] + one["reassigned_hit_blocks"].astype("f8")
    derived = blocks / one["recompute_throughput"]
    if quantity == "total_time":
        derived = np.maximum(derived, ds.isel(policy=[int(index)]).kvsweep.storage_time.isel(policy=0))
    dims = list(one["meets_slo"].dims)
    with np.errstate(divide="ignore", invalid="ignore"):
        difference = np.abs(derived.transpose(*dims).values - array) / array
    return float(np.nanmax(np.where(array == 0.0, 0.0, difference)))


def _has_log_scale(values: NDArray[Any]) -> bool:
    return bool(np.all(values >= 0.0)) and bool(np.any((values > 0.0) & np.isfinite(values)))


def quantise(values: NDArray[Any]) -> tuple[NDArray[np.uint32], float, float]:
    """Return 24-bit codes of values >= 0 and the scale (low, step): a code c means ``exp(low + (c - 1) step)``.

    The relative error is at most ``exp(step / 2) - 1``.
    """
    numbers = values.astype(np.float64)
    usable = (numbers > 0.0) & np.isfinite(numbers)
    logs = np.log(numbers, where=usable, out=np.zeros_like(numbers))
    low, high = float(logs[usable].min()), float(logs[usable].max())
    step = (high - low) / LEVELS or 1.0
    codes = np.where(usable, 1.0 + np.rint((logs - low) / step), 0.0).astype(np.uint32)
    codes[np.isinf(numbers)] = LEVELS + 2
    return codes, low, step


def _widen(known: list[float] | None, values: NDArray[Any]) -> list[float]:
    """Return [least positive, greatest] finite value seen so far."""
    usable = values[(values > 0) & np.isfinite(values)]
    if not usable.size:
        return known or [0.0, 0.0]
    low, high = float(usable.min()), float(usable.max())
    return [min(known[0], low) if known and known[0] else low, max(known[1], high) if known else high]


def _header(ds: xr.Dataset, dims: list[str], verdict: NDArray[np.uint8]) -> dict[str, Any]:
    axes = default_axes({dim: ds.sizes[dim] for dim in dims})
    passes = verdict == sweeps.VERDICTS.index("pass")
    answer = headline(ds, verdict, dims)
    one_axis = sum(ds.sizes[dim] > 1 for dim in dims) == 1
    return {
        "format": FORMAT,
        "title": str(ds.attrs.get("title", "Restore or recompute")),
        "view": "total_time" if one_axis else "verdict",  # over one axis there are curves to see, not maps
        "dims": [describe_dim(ds, dim, block_tokens(ds)) for dim in dims],
        "scalars": _scalars(ds),
        "policies": describe_policies(ds),
        "simplest": simplest_first(ds["policy_modes"].values, ds["policy_order"].values),
        "modes": str(ds["decision_mode"].attrs.get("flag_meanings", "")).split(),
        "axes": axes,
        "start": start_amid(passes.any(axis=0) & ~passes.all(axis=0), dims, axes),
        "headline": answer.sentences,
        "counts": answer.counts.tolist(),
        "sufficient": answer.sufficient.tolist(),
    }


def describe_policies(ds: xr.Dataset) -> list[dict[str, str]]:
    """Return id, label, description and colour of each policy, as they are in the Dataset."""
    columns = {"id": "policy", "label": "policy_label", "description": "policy_description", "color": "policy_color"}
    return [{key: str(ds[name].values[index]) for key, name in columns.items()} for index in range(ds.sizes["policy"])]


def describe_dim(ds: xr.Dataset, name: str, tokens_per_block: float | None = None) -> dict[str, Any]:
    """Return what the viewer needs to know of an axis; one of blocks is told in tokens where a block is so many."""
    axis = ds[name]
    if name in IN_TOKENS and tokens_per_block is not None:
        values = (axis.values.astype(float) * tokens_per_block).tolist()
        about = {"label": IN_TOKENS[name], "unit": "tokens", "kind": "number", "per": tokens_per_block}
        return {"name": name, **about, "values": values}
    # An endless store (disk_capacity inf) has no place on a scale: such an axis is a list of labels.
    numeric = axis.dtype.kind in "fiu" and bool(np.isfinite(axis.values).all())
    texts = [f"{value:g}" if axis.dtype.kind in "fiu" else str(value) for value in axis.values]
    return {
        "name": name,
        "label": label(name),
        "unit": unit(name, axis),
        "kind": "number" if numeric else "category",
        "values": axis.values.astype(float).tolist() if numeric else texts,
    }


def _scalars(ds: xr.Dataset) -> dict[str, float]:
    names = ("request_rate", "p95_seconds")
    return {name: float(ds[name]) for name in names if ds[name].ndim == 0}


def default_axes(sizes: Mapping[str, int]) -> list[str]:
    """Return the two dims drawn first: the usual pair where it varies, else the longest that do."""
    preferred = [dim for dim in AXIS_PREFERENCE if dim in sizes] + [dim for dim in sizes if dim not in AXIS_PREFERENCE]
    return sorted(preferred, key=lambda dim: sizes[dim] == 1)[:2]


def start_amid(differ: NDArray[np.bool_], dims: list[str], axes: list[str]) -> dict[str, int]:
    """Return where to look first: each slider where most of the points in `differ` are, the cursor amid those."""
    start: dict[str, int] = {}
    for dim in [dim for dim in dims if dim not in axes] + axes:
        axis = dims.index(dim)
        counts = differ.sum(axis=tuple(other for other in range(differ.ndim) if other != axis))
        if not counts.any():
            start[dim] = len(counts) // 2
        elif dim in axes:  # the cursor: amid the points that differ
            start[dim] = int(np.searchsorted(counts.cumsum(), counts.sum() / 2))
        else:
            start[dim] = int(counts.argmax())
        differ = differ.take([start[dim]], axis=axis)
    return start
