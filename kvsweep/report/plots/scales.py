"""Log axes of tokens, blocks and seconds with ticks that people read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator
from numpy.typing import NDArray


def log_spaced(points: NDArray[Any]) -> bool:
    """Return whether the ratios of neighbouring points vary less than their distances do."""
    if len(points) < 3 or points.min() <= 0.0:
        return False
    distances = np.diff(points)
    return bool(np.ptp(np.diff(np.log(points))) < np.ptp(distances) / np.abs(distances).max())


def count_text(count: float, _position: int | None = None) -> str:
    """Return a count with its decimal prefix: 16k, 512k, 1M."""
    if count >= 1e6:
        return f"{count / 1e6:.4g}M"
    return f"{count / 1e3:.4g}k" if count >= 1e3 else f"{count:.4g}"


def seconds_text(seconds: float, _position: int | None = None) -> str:
    """Return seconds as plain decimals from 1 ms to 100 000 s."""
    return f"{seconds:.10g}" if seconds < 1e4 else f"{seconds:,.0f}".replace(",", "\u202f")


def count_axis(axis: Axis, counts: Sequence[float] | None = None) -> None:
    """Give a log axis of counts one tick at each of `counts`, or at decades without them."""
    axis.set_major_locator(FixedLocator(list(counts)) if counts is not None else LogLocator())
    axis.set_major_formatter(FuncFormatter(count_text))
    if counts is not None:
        axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def seconds_axis(ax: Axes) -> None:
    """Make the y axis a log axis of seconds with a tick a decade."""
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(numticks=12))
    ax.yaxis.set_major_formatter(FuncFormatter(seconds_text))
    ax.yaxis.set_minor_locator(NullLocator())
