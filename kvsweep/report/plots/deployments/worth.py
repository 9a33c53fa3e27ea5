"""Restore roofline: the bandwidth that restoring must have to beat computing, by where a token stands, and paths."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from kvsweep.costs.deployment import Deployment
from kvsweep.costs.roofline import BreakEven, break_even_bandwidth
from kvsweep.report.plots import style
from kvsweep.report.plots.labels import plain
from kvsweep.report.plots.scales import count_axis

FIRST = 100.0
"""First token drawn [token]."""
COLORS = style.SERIES[:-1]
"""Without ink, which the break-even has."""
DASHES: tuple[tuple[float, tuple[float, ...]], ...] = ((0, (1, 0)), (0, (5, 1.5)), (0, (2, 1.4)), (0, (6, 1, 1, 1)))


@style.in_style
def figure(of: Deployment, paths: Mapping[str, BreakEven], last: float) -> Figure:
    """Return the figure of `paths` by name beside the break-even of the tokens up to `last` [token]."""
    made = style.new_figure(4.4 + 0.16 * len(paths))
    ax = made.subplots()
    at = np.geomspace(FIRST, last, 200)
    least = break_even_bandwidth(at, of) / 1e9
    rates = [path.bytes_per_s / 1e9 for path in paths.values()]
    low, high = min(*rates, least.min()) / 1.6, max(*rates, least.max()) * 1.6
    ax.fill_between(at, least, high, color=style.INK, alpha=0.07, lw=0)
    (curve,) = ax.plot(at, least, color=style.INK, lw=2.2, label="break-even: above it, restoring the token is sooner")
    handles = [curve]
    for i, (name, path) in enumerate(paths.items()):
        color, dash = COLORS[i % len(COLORS)], DASHES[i % len(DASHES)]
        rate = path.bytes_per_s / 1e9
        ax.plot([FIRST, last], [rate, rate], color=color, lw=1.4, linestyle=dash)
        if FIRST < path.position < last:
            ax.plot([path.position], [rate], "o", mfc=style.PAPER, mec=color, zorder=5)
        label = plain(f"{name}: {rate:.3g} GB/s, {said(path)}")
        handles.append(Line2D([], [], color=color, lw=1.4, linestyle=dash, label=label))
    ax.set(xscale="log", yscale="log", xlim=(FIRST, last), ylim=(low, high))
    count_axis(ax.xaxis)
    ax.yaxis.set_major_locator(LogLocator(numticks=12))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("Where the token stands in its prompt [token]")
    ax.set_ylabel("Bandwidth of KV [GB/s]")
    ax.grid(True)
    gpus = of.gpu if of.gpu_count == 1 else f"{of.gpu_count:g} × {of.gpu}"
    style.head(ax, plain(f"Is it worth restoring? {of.model} on {gpus}", 100), handles)
    return made


def said(path: BreakEven) -> str:
    """Return from which prompt on restoring over `path` pays, in words."""
    if path.length == float("inf"):
        return "never pays"
    return "always pays" if path.length <= 1.0 else f"pays from {path.length:,.0f} tokens"
