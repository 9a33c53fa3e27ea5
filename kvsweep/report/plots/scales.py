"""Log axes of tokens, blocks and seconds with ticks that people read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator
from numpy.typing import NDArray

LEAST_FACTOR = 8.0
"""Least factor between the ends of an axis that is worth a log scale."""
FEW = 10
"""Most points of a log axis of which each has a tick: with decades alone a short one would have a single label."""
LEAST_SPAN = 0.1
"""Least share of its values that a linear axis spans: what differs by a tenth of that looks alike, as it should."""


def log_spaced(points: NDArray[Any]) -> bool:
    """Return whether the points span most of a decade and the ratios of neighbours vary less than their distances."""
    if len(points) < 3 or points.min() <= 0.0 or points.max() < LEAST_FACTOR * points.min():
        return False
    distances = np.diff(points)
    return bool(np.ptp(np.diff(np.log(points))) < np.ptp(distances) / np.abs(distances).max())


def point_axis(ax: Axes, points: NDArray[Any], text: Callable[[float], str]) -> None:
    """Make the x axis log or linear by how `points` lie, with ticks that `text` writes."""
    log = log_spaced(points)
    ax.set_xscale("log" if log else "linear")
    if log and len(points) <= FEW:
        ax.xaxis.set_major_locator(FixedLocator(points.tolist()))
        ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _position: text(value)))
    ax.xaxis.set_minor_formatter(NullFormatter())


def widened(low: float, high: float) -> tuple[float, float]:
    """Return ends around `low` and `high` that span at least `LEAST_SPAN` of them, not below 0 unless these are."""
    lack = LEAST_SPAN * max(abs(low), abs(high)) - (high - low)
    if lack <= 0.0:
        return low, high
    start = low - lack / 2
    return (0.0 if start < 0.0 <= low else start), high + lack / 2


def keep_scale(ax: Axes, *names: Literal["x", "y"]) -> None:
    """Widen linear axes on which trifles would look as if they mattered."""
    for name in names:
        if getattr(ax, f"get_{name}scale")() == "linear":
            getattr(ax, f"set_{name}lim")(widened(*getattr(ax, f"get_{name}lim")()))


def count_text(count: float, _position: int | None = None) -> str:
    """Return a count with its decimal prefix: 16k, 512k, 1M."""
    if count >= 1e6:
        return f"{count / 1e6:.4g}M"
    return f"{count / 1e3:.4g}k" if count >= 1e3 else f"{count:.4g}"


def seconds_text(seconds: float, _position: int | None = None) -> str:
    """Return seconds as plain decimals from 1 ms to 100 000 s."""
    return f"{seconds:.10g}" if seconds < 1e4 else f"{seconds:,.0f}".replace(",", "\u202f")


def count_axis(axis: Axis, counts: Sequence[float] | None = None, each: float = 1.0) -> None:
    """Give a log axis of counts one tick at each of `counts`, or at decades without them.

    Ticks tell `each` of what is counted: an axis of blocks is read in tokens with those of a block, and decades and
    ``counts`` are of tokens then.
    """
    decades = 10.0 ** np.arange(-3, 13)
    places = np.asarray(counts if counts is not None else decades) / each
    axis.set_major_locator(FixedLocator(places.tolist()) if counts is not None or each != 1.0 else LogLocator())
    axis.set_major_formatter(FuncFormatter(lambda place, _position: count_text(float(f"{place * each:.9g}"))))
    if counts is not None or each != 1.0:
        axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def seconds_axis(ax: Axes) -> None:
    """Make the y axis a log axis of seconds with a tick a decade."""
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(numticks=12))
    ax.yaxis.set_major_formatter(FuncFormatter(seconds_text))
    ax.yaxis.set_minor_locator(NullLocator())
