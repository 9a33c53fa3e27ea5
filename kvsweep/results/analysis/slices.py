"""One slice of a sweep: the dims a picture is drawn over stay, every other one is fixed to a stated value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from kvsweep.errors import InputError, shown, unknown_name
from kvsweep.results.analysis.sweeps import policy_index

DEFAULT_HIT_RATIO = 0.5
"""Where `hit_ratio` is cut when nobody says."""

SHOWN_VALUES = 8


@dataclass(frozen=True)
class Slice:
    """A Dataset over ``policy`` and the kept dims only; `assumed` are the dims fixed to a default."""

    dataset: xr.Dataset
    assumed: tuple[str, ...] = ()


def take_slice(ds: xr.Dataset, keep: Sequence[str], chosen: Mapping[str, Any], spelled: str = "") -> Slice:
    """Return the slice of a sweep over `keep`, at the values `chosen` gives for other dims.

    Without a choice `hit_ratio` is cut nearest 0.5 and a dim that has one value needs none. ``policy`` may be chosen,
    too: one or several, by id or by label.

    Parameters
    ----------
    spelled
        What stands before ``dim=value`` where the reader makes a choice (``--select `` on the command line).

    Raises
    ------
    InputError
        For a dim the sweep lacks, a value that is not on it, and a dim left open, naming its values.
    """
    dims = grid_dims(ds)
    missing = [dim for dim in keep if dim not in dims]
    if missing:
        raise InputError(f"the sweep has no dim {missing[0]}; it has {', '.join(dims) or 'one point'}")
    indexers = {dim: _chosen(ds, keep, dim, value, spelled) for dim, value in chosen.items()}
    assumed = []
    for dim in dims:
        if dim in keep or dim in indexers:
            continue
        if dim == "hit_ratio":
            indexers[dim] = int(np.argmin(np.abs(ds[dim].values - DEFAULT_HIT_RATIO)))
            assumed.append(dim)
        elif ds.sizes[dim] == 1:
            indexers[dim] = 0
        else:
            first = value_text(ds[dim].values[0])
            raise InputError(f"{dim} is open: {_listed(ds[dim].values)}; choose one, as in {spelled}{dim}={first}")
    present = {dim: index for dim, index in indexers.items() if dim in ds.dims}
    return Slice(ds.isel(present), tuple(assumed))


def _chosen(ds: xr.Dataset, keep: Sequence[str], dim: str, value: Any, spelled: str) -> int | list[int]:
    """Return the position of a chosen value along its dim; a dim squeezed out has one value, which must be it."""
    if dim in keep:
        raise InputError(f"{spelled}{dim}={value}: {dim} is an axis of the figure; choose among the other dims")
    if dim == "policy":
        return _policy_indices(ds, value, f"{spelled}policy={value}")
    if dim in grid_dims(ds):
        return _index_of(ds, dim, value, spelled)
    if dim in ds.coords and ds[dim].ndim == 0:
        return _index_of(ds.expand_dims(dim), dim, value, spelled)
    raise unknown_name(f"{spelled}{dim}={value}", dim, [name for name in grid_dims(ds) if name not in keep])


def grid_dims(ds: xr.Dataset) -> list[str]:
    """Return the dims of the sweep's grid in order, without ``policy`` and ``tier``."""
    return [str(dim) for dim in next(iter(ds.data_vars.values())).dims if dim not in ("policy", "tier")]


def value_text(value: Any) -> str:
    """Return a point of an axis as a user would type it."""
    return f"{float(value):.12g}" if isinstance(value, float | np.floating | int | np.integer) else str(value)


def _policy_indices(ds: xr.Dataset, value: Any, what: str) -> list[int]:
    names = [item.strip() for item in value.split(",")] if isinstance(value, str) else [str(item) for item in value]
    return [policy_index(ds, name, what) for name in names]


def _index_of(ds: xr.Dataset, dim: str, value: Any, spelled: str) -> int:
    """Return the position of `value` along `dim`; numbers agree to 9 digits, so that 0.3 finds 0.30000000000000004."""
    points = ds[dim].values
    if points.dtype.kind in "fiu":
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise InputError(f"{spelled}{dim}={value}: {shown(value)} is not a number") from None
        found = np.flatnonzero(np.isclose(points, number, rtol=1e-9, atol=0.0))
    else:
        found = np.flatnonzero(points == str(value))
    if not found.size:
        raise InputError(f"{spelled}{dim}={value}: not on the axis; choose from {_listed(points)}")
    return int(found[0])


def _listed(points: Any) -> str:
    texts = [value_text(point) for point in points]
    if len(texts) <= SHOWN_VALUES:
        return ", ".join(texts)
    return f"{', '.join(texts[: SHOWN_VALUES - 1])}, … {texts[-1]} ({len(texts)} values)"
