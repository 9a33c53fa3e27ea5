"""Success rate: the share of the P95 x rate cells that meet the SLO against one dim, a line a policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kvsweep.errors import InputError
from kvsweep.report.plots import style
from kvsweep.report.plots.labels import axis_title, caption, policy_colors, policy_labels, shown_axis, tick_text
from kvsweep.report.plots.scales import point_axis
from kvsweep.results.analysis import sweeps
from kvsweep.results.analysis.slices import Slice, grid_dims, take_slice

OVER = ("request_rate", "p95_seconds")
"""Dims the share is taken over."""
MOST_MARKERS = 16
"""Markers of a line."""
HEIGHT = 3.4
"""Height [inch] of the figure."""


@style.in_style
def figure(ds: xr.Dataset, select: Mapping[str, Any], x: str | None = None, spelled: str = "") -> Figure:
    """Return the figure of a sweep, or of its streamed ``success_rate``; `select` fixes the dims other than `x`."""
    made = style.new_figure(HEIGHT)
    draw(made.subplots(), *rates(ds, select, x, spelled))
    return made


def rates(ds: xr.Dataset, select: Mapping[str, Any], x: str | None = None, spelled: str = "") -> tuple[Slice, str]:
    """Return the slice of success rates over `x` and the name of that dim, by default the hit axis of the sweep."""
    if "success_rate" not in ds:
        sweeps.require_sweep(ds)
        ds = ds.drop_dims(["tier"], errors="ignore").assign(success_rate=sweeps.success_rate(ds, OVER))
    ds = ds[["success_rate"]].assign_attrs(ds.attrs)
    dims = grid_dims(ds)
    if x is None:
        found = [dim for dim in ("hit_ratio", "miss_blocks", *dims) if dim in dims and dim not in select]
        if not found:
            raise InputError("the sweep has no dim to draw the success rate over; sweep hit_ratio, as in 0:1:0.1")
        x = found[0]
    return take_slice(ds, (x,), select, spelled), x


def draw(ax: Axes, part: Slice, x: str) -> None:
    """Draw the curves into `ax`."""
    ds = part.dataset
    dim, listed = shown_axis(ds, x)
    points = np.asarray(listed)
    named = points.dtype.kind not in "fiu"
    places = range(len(points)) if named else points
    percent = 100.0 * ds["success_rate"].transpose("policy", x).values
    count = len(percent)
    for i, (label, color) in enumerate(zip(policy_labels(ds), policy_colors(ds), strict=True)):
        look = style.line_look(i, count, color)
        ax.plot(places, percent[i], label=label, markevery=-(-len(points) // MOST_MARKERS), **look)
    if named:
        texts = [tick_text(dim, point) for point in points.tolist()]
        ax.set_xticks(list(places), texts, rotation=20 if sum(map(len, texts)) > 80 else 0)
    else:
        point_axis(ax, points, lambda value: tick_text(dim, value))
    ax.set_xlabel(axis_title(dim))
    ax.set_ylabel("Share of P95 × rate cells that pass [%]")
    ax.set_ylim(-4, 104)
    ax.set_yticks(range(0, 101, 20))
    ax.grid(True, axis="y")
    title = f"How often each policy meets the SLO\n{caption(part)}"
    style.head(ax, title, ax.get_lines()[-count:])
