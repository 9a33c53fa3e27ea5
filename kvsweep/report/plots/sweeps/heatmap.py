"""SLO heatmap: the verdict of each policy over two dims of a sweep, a panel a policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kvsweep.errors import InputError
from kvsweep.report.plots import style
from kvsweep.report.plots.cells import draw_cells, label_cells, state_handles
from kvsweep.report.plots.labels import caption, policy_labels, shown_axis
from kvsweep.results.analysis import sweeps
from kvsweep.results.analysis.slices import Slice, take_slice

X, Y = "request_rate", "p95_seconds"
"""Dims of the map unless others are asked for."""


@style.in_style
def figure(ds: xr.Dataset, select: Mapping[str, Any], x: str = X, y: str = Y, spelled: str = "") -> Figure:
    """Return the figure of a sweep; `select` fixes the dims other than `x` and `y`, see `take_slice`."""
    sweeps.require_policies(ds)
    part = take_slice(ds, (x, y), select, spelled)
    made = style.new_figure(height(part))
    draw(made, part, x, y)
    return made


def height(part: Slice) -> float:
    """Return the height [inch] of the figure, so that panels keep their shape however many policies there are."""
    return 1.15 + 2.35 * style.panel_rows(part.dataset.sizes["policy"])


def draw(figure: Figure, part: Slice, x: str = X, y: str = Y) -> list[Axes]:
    """Draw a panel a policy into `figure` and return the panels."""
    ds = part.dataset
    codes = sweeps.verdict(ds).transpose("policy", y, x).values
    axes = style.panels(figure, len(codes))
    lettered = False
    for ax, verdicts, label in zip(axes, codes, policy_labels(ds, 22), strict=True):
        lettered = draw_panel(ax, verdicts, label)
        label_cells(ax, shown_axis(ds, x), shown_axis(ds, y))
    style.outer_labels(axes)
    figure.legend(handles=state_handles(style.VERDICT_STATES, lettered), loc="outside lower center", ncols=4)
    figure.suptitle(f"Which requests meet their SLO\n{caption(part)}")
    return axes


def draw_panel(ax: Axes, verdicts: Any, label: str) -> bool:
    """Draw the verdicts (y, x) of one policy, its share of passes in the title; return whether cells hold letters."""
    ax.set_title(f"{label}: {np.mean(verdicts == 3):.0%} pass")
    return draw_cells(ax, verdicts, style.VERDICT_STATES)


def draw_one(ax: Axes, part: Slice, x: str = X, y: str = Y) -> None:
    """Draw the map of the only policy of a slice into `ax`; raises InputError when there are several."""
    ds = part.dataset
    if ds.sizes["policy"] != 1:
        names = ", ".join(map(str, ds["policy"].values))
        raise InputError(f"policy: one panel shows one policy; choose with policy=NAME from {names}")
    draw_panel(ax, sweeps.verdict(ds).transpose("policy", y, x).values[0], policy_labels(ds)[0])
    label_cells(ax, shown_axis(ds, x), shown_axis(ds, y))
