"""Studies of clusters: one figure over their axes, replicate seeds as a mean and its interval, the best of several."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr

from kvsweep.errors import InputError, unknown_name
from kvsweep.results.analysis.slices import value_text
from kvsweep.results.names import attributes

MORE_IS_BETTER = frozenset(
    {"token_hit_ratio", "hit_tokens", "slo_attainment", "goodput", "tokens_per_second", "output_tokens"}
)
"""Figures of which the best is the greatest; of all others it is the least."""
ORACLE = "belady"
"""Eviction policy that knows the future: regret is against it."""
DEFAULT_POINT = {"statistic": "mean", "tier": "l1"}
"""Point taken along a figure's own dim when nobody says."""
MAIN: tuple[tuple[str, str, str | None], ...] = (
    ("ttft mean [s]", "ttft", "mean"), ("ttft p95 [s]", "ttft", "p95"), ("tpot mean [s]", "tpot", "mean"),
    ("e2e mean [s]", "e2e", "mean"), ("hit ratio", "token_hit_ratio", None), ("tokens/s", "tokens_per_second", None),
)  # fmt: skip
"""Columns of the table: header, variable, point."""

REGRET = (("regret", "regret", None),)
"""The column of studies that have the oracle."""

ROUNDING = 1e-13
"""Intervals this much smaller than the mean are the arithmetic's, not the seeds'."""

# Two-sided 95 % points of Student's t by degrees of freedom; beyond 30 the normal's will do.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def is_study(ds: xr.Dataset) -> bool:
    """Return whether `ds` says that it is a study of clusters."""
    return bool(ds.attrs.get("kvsweep_result") == "cluster_study")


def require_study(ds: xr.Dataset) -> None:
    """Raise InputError for a Dataset that is no cluster study."""
    if not is_study(ds) or "cell_state" not in ds or "ttft" not in ds:
        raise InputError("not a study of clusters; allowed: a file that `kvsweep cluster sweep` wrote")


def axes_of(ds: xr.Dataset) -> list[str]:
    """Return the dims of a study that are axes."""
    return [str(dim) for dim in ds["cell_state"].dims]


def figures_of(ds: xr.Dataset) -> list[str]:
    """Return the names of the figures of a study."""
    found = [str(name) for name in ds.data_vars if name not in ("cell_state", "bottleneck")]
    return [*found, *(["regret"] if has_oracle(ds) else [])]


def has_oracle(ds: xr.Dataset) -> bool:
    """Return whether a study holds what the oracle computes."""
    return "oracle_uncached_tokens" in ds


def regret(ds: xr.Dataset) -> xr.DataArray:
    """Return prompt tokens computed beyond those of the oracle, relative to it [1]; NaN where it is not known.

    The oracle evicts by next use, lets nothing expire, and has everything else alike. It is no strict bound, so that
    regret may be below 0. Raises InputError for a study without the oracle.
    """
    require_study(ds)
    if not has_oracle(ds):
        raise InputError(
            f"regret: the study has no oracle; allowed: one with `regret: true`, or with eviction {ORACLE} and no "
            "retention among its simulations"
        )
    best = ds["oracle_uncached_tokens"]
    ratio = ds["uncached_tokens"] / best.where(best > 0) - 1.0
    return ratio.rename("regret").assign_attrs(attributes("regret"))


def figure(ds: xr.Dataset, name: str, of: str | None = None, spelled: str = "") -> xr.DataArray:
    """Return one figure on the axes of a study; `of` chooses along the figure's own dim (p95, l2, an SLO, a cause).

    Without a choice that is the mean, the device tier, or the first. Raises InputError for what is not there;
    `spelled` stands before the names of these arguments in messages.
    """
    require_study(ds)
    if name not in figures_of(ds):
        raise unknown_name(f"{spelled}value", name, figures_of(ds))
    if name == "regret":
        return regret(ds)
    array = ds[name]
    own = [str(dim) for dim in array.dims if dim not in ds["cell_state"].dims]
    if not own:
        if of is not None:
            raise InputError(f"{spelled}of: {name} has nothing to choose; allowed: leave it out")
        return array
    points = [str(point) for point in ds[own[0]].values]
    chosen = of if of is not None else DEFAULT_POINT.get(own[0], points[0])
    if chosen not in points:
        raise unknown_name(f"{spelled}of", chosen, points)
    return array.isel({own[0]: points.index(chosen)}).assign_attrs(ds[name].attrs, kvsweep_of=chosen)


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
    half = deviation / np.sqrt(xr.where(n > 0, n, 1)) * quantile
    mean = array.mean("seed", keep_attrs=True)
    # Equal seeds have a mean that is off them by a rounding or two, which is no spread.
    return mean, half.where(~(half <= ROUNDING * abs(mean)), 0.0)


def winner(ds: xr.Dataset, over: str, name: str = "ttft", of: str | None = None, spelled: str = "") -> xr.DataArray:
    """Return the index along the axis `over` of the best value of a figure, -1 where no cell has any.

    Seeds are averaged first. Best is the least, but for figures in `MORE_IS_BETTER`; of equals the first.
    """
    values = over_seeds(figure(ds, name, of, spelled))[0]
    if over not in values.dims:
        names = [str(dim) for dim in values.dims]
        raise InputError(f"{spelled}over: no axis {over!r} in the study; it has {', '.join(names) or 'one cell'}")
    return best_along(values, over, name in MORE_IS_BETTER)


def best_along(values: xr.DataArray, over: str, more_is_better: bool) -> xr.DataArray:
    """Return the index along the dim `over` of the best value, the first of equals, -1 where there is none."""
    ranked = (-values if more_is_better else values).fillna(math.inf)
    best = xr.where(values.notnull().any(over), ranked.argmin(over), -1).astype(np.int16)
    texts = [value_text(point).replace(" ", "_") for point in values[over].values]
    flags = {"flag_values": np.arange(-1, len(texts), dtype=np.int16), "flag_meanings": " ".join(["none", *texts])}
    found: xr.DataArray = best.rename("best")
    return found.assign_attrs(attributes("best") | flags)


def alike(ds: xr.Dataset) -> list[str]:
    """Return a line for each set of points of an axis that have the same figures, to the last digit, in every cell.

    What is compared are all figures, of every statistic, tier and cause; seeds are replicates and not told.
    """
    require_study(ds)
    names = [name for name in figures_of(ds) if name != "regret" and ds[name].dtype.kind == "f"]
    lines = []
    for axis in (name for name in axes_of(ds) if name != "seed" and ds.sizes[name] > 1):
        arrays = [ds[name].transpose(axis, ...).values for name in names if axis in ds[name].dims]
        groups: list[list[int]] = []
        for index in range(ds.sizes[axis]):
            same = (group for group in groups if all(_equal(each[index], each[group[0]]) for each in arrays))
            found = next(same, None)
            if found is None:
                groups.append([index])
            else:
                found.append(index)
        points = [value_text(point) for point in ds[axis].values]
        lines += [
            f"{axis}: {' and '.join(points[index] for index in group)} give the same figures in every cell"
            for group in groups
            if len(group) > 1
        ]
    return lines


def _equal(one: Any, other: Any) -> bool:
    """Return whether two arrays hold the same numbers; cells that could not be simulated differ from none."""
    return bool(((one == other) | np.isnan(one) | np.isnan(other)).all())


def table(ds: xr.Dataset) -> list[dict[str, Any]]:
    """Return a row for each cell, seeds together: its point, the main figures, ± intervals where there are seeds."""
    require_study(ds)
    axes = [name for name in axes_of(ds) if name != "seed"]
    columns: dict[str, xr.DataArray] = {}
    for header, name, point in (*MAIN, *(REGRET if has_oracle(ds) else ())):
        array = figure(ds, name, point)
        columns[header], half = over_seeds(array)
        if "seed" in array.dims:
            columns[f"± {header.partition(' [')[0]}"] = half
    if "slo" in ds.dims:
        for label in ds["slo"].values:
            columns[f"meets {label}"] = over_seeds(figure(ds, "slo_attainment", str(label)))[0]
    rows = []
    for place in np.ndindex(*(ds.sizes[name] for name in axes)):
        at = dict(zip(axes, place, strict=True))
        row: dict[str, Any] = {name: value_text(ds[name].values[index]) for name, index in at.items()}
        rows.append(row | {header: float(array.isel(at)) for header, array in columns.items()})
    return rows
