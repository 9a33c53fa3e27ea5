"""What a decision costs: scheduler time over the length of a stream, and its spread over the combinations of a pool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from kvsweep.report.plots import style
from kvsweep.report.plots.labels import plain, policy_labels
from kvsweep.report.plots.scales import count_axis

HEIGHT = 3.6
"""Height [inch] of a figure."""
LEAST = 1e-4
"""Least cost [us] that is drawn: below it, 0.1 ns, lies what a decision in a compiled loop cannot be told from."""
PATH_LABELS = {"scalar": "Python", "jit_call": "compiled, called", "jit_loop": "compiled loop"}
TITLES = {
    "total": ("Scheduler time of a request stream", "Scheduler time [s]"),
    "per_request": ("Amortised cost of one decision", "Time per decision [µs]"),
    "relative": ("Scheduler time as a share of the modelled request time", "Share of the request time [%]"),
    "distribution": ("Cost of one decision, each combination timed alone", "Time per decision [µs]"),
}


@style.in_style
def figure(ds: xr.Dataset, kind: str) -> Figure:
    """Return the figure ``total``, ``per_request``, ``relative`` or ``distribution`` of an overhead run."""
    made = style.new_figure(HEIGHT)
    ax = made.subplots()
    if kind == "distribution":
        draw_distribution(ax, ds)
    else:
        draw_streams(ax, ds, kind)
    return made


def draw_streams(ax: Axes, ds: xr.Dataset, kind: str) -> None:
    """Draw a line for each policy and path over the length of the stream, with the quartiles of the trials."""
    counts = ds["request_count"].values
    scale = {
        "total": xr.ones_like(ds["stream_service_seconds"]),
        "per_request": 1e6 / ds["request_count"],
        "relative": 100.0 / ds["stream_service_seconds"],
    }[kind]
    middle, quartiles = ds["stream_seconds"] * scale, ds["stream_seconds_quartile"] * scale
    for policy, path, color, dash, marker in _series(ds):
        chosen = {"policy": policy, "path": path}
        low, high = quartiles.isel(chosen).transpose("quartile", "request_count").values
        ax.fill_between(counts, low, high, color=color, alpha=0.2, linewidth=0)
        # Hollow where a policy lies on an earlier one, as those without a decision do.
        ax.plot(
            counts, middle.isel(chosen).values, color=color, linestyle=dash, marker=marker,
            markersize=max(3.0, 5.0 - 0.5 * policy), linewidth=max(1.0, 1.8 - 0.25 * policy),
            markerfacecolor=style.PAPER if policy % 2 else color,
        )  # fmt: skip
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("Requests in the stream")
    count_axis(ax.xaxis)
    _finish(ax, ds, kind)


def draw_distribution(ax: Axes, ds: xr.Dataset) -> None:
    """Draw a box for each policy and path: quartiles and median, whiskers from 5 to 95 %, a diamond at the mean."""
    cost = 1e6 * ds["decision_seconds"].values
    lost = (cost < LEAST).any()
    cost = np.maximum(cost, LEAST)
    n, paths = ds.sizes["policy"], ds.sizes["path"]
    for policy, path, color, _dash, _marker in _series(ds):
        values = cost[policy, path]
        if np.isnan(values).any():
            continue
        at = path * (n + 1) + policy
        ax.bxp(
            [_box(values)], positions=[at], widths=0.6, showfliers=False, showmeans=True, patch_artist=True,
            boxprops={"facecolor": color, "alpha": 0.35, "edgecolor": color},
            medianprops={"color": style.INK, "lw": 1.6}, whiskerprops={"color": color}, capprops={"color": color},
            meanprops={"marker": "D", "markersize": 4, "markerfacecolor": style.PAPER, "markeredgecolor": style.INK},
        )  # fmt: skip
    ax.set_yscale("log")
    middle = [path * (n + 1) + (n - 1) / 2 for path in range(paths)]
    ax.set_xticks(middle, [PATH_LABELS[str(path)] for path in ds["path"].values])
    ax.tick_params(axis="x", length=0)
    _finish(ax, ds, "distribution")
    if lost:
        ax.set_ylabel(f"{ax.get_ylabel()}, {LEAST:g} or less at the foot")


def _box(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> dict[str, object]:
    low, first, median, third, high = np.percentile(values, [5, 25, 50, 75, 95])
    return {"med": median, "q1": first, "q3": third, "whislo": low, "whishi": high, "mean": values.mean()}


def _series(ds: xr.Dataset) -> Iterator[tuple[int, int, str, Any, str]]:
    """Yield (policy, path, colour, line style, marker) of every line; colour tells policies, the rest tells paths."""
    known = list(PATH_LABELS)
    for path, name in enumerate(ds["path"].values):
        kind = known.index(str(name))
        for policy, color in enumerate(ds["policy_color"].values):
            yield policy, path, str(color), style.DASHES[kind], style.MARKERS[kind]


def _finish(ax: Axes, ds: xr.Dataset, kind: str) -> None:
    """Give `ax` its log axis, grid, legend and title."""
    title, quantity = TITLES[kind]
    ax.set_ylabel(quantity)
    ax.yaxis.set_major_locator(LogLocator(numticks=14))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _position: f"{value:g}"))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.grid(True, axis="y")
    handles = [
        Line2D([], [], color=str(color), lw=3, label=label)
        for label, color in zip(policy_labels(ds), ds["policy_color"].values, strict=True)
    ]
    if kind == "distribution":
        handles += [
            Line2D([], [], color=style.INK, lw=1.6, label="median"),
            Line2D([], [], color=style.INK, lw=0, marker="D", mfc=style.PAPER, ms=4, label="mean"),
        ]
    else:
        shown = dict.fromkeys((path, dash, marker) for _, path, _, dash, marker in _series(ds))
        names = [PATH_LABELS[str(path)] for path in ds["path"].values]
        handles += [
            Line2D([], [], color=style.INK, linestyle=dash, marker=marker, ms=4, label=names[path])
            for path, dash, marker in shown
        ]
    host = plain(str(ds.attrs["host_cpu_model"]))
    style.head(ax, f"{title}\n{host} · {ds.sizes['combination']} workload combinations", handles)
