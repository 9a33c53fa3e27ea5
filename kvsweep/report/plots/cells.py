"""A map of categories over two dims: coloured cells, with a letter in each or a hatch over those of a kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path
from matplotlib.ticker import Locator, LogLocator, MaxNLocator
from numpy.typing import NDArray

from kvsweep.report.plots.labels import axis_title, tick_text
from kvsweep.report.plots.scales import log_spaced
from kvsweep.report.plots.style import PAPER, State

LETTER_CELLS = (20, 16)
"""Most columns and rows of cells that hold a letter each; beyond them hatches tell the states apart."""
MOST_TICKS = 8
CHARACTER = 4.6
"""Width [point] of a letter of a tick text, with its share of the gap to the next text."""


def draw_cells(ax: Axes, codes: NDArray[np.integer[Any]], states: Sequence[State]) -> bool:
    """Draw `codes` (y, x), indices of `states`, one unit cell a point; return whether the cells hold letters.

    Cells are equally wide whatever the axis: a list of points need not be evenly spaced, and each cell is one point.
    All cells of a state are one filled path: no seams between them in any viewer, and a million stay a small file.
    """
    rows, columns = codes.shape
    lettered = bool(columns <= LETTER_CELLS[0] and rows <= LETTER_CELLS[1])
    for code, state in enumerate(states):
        mask = codes == code
        if not mask.any():
            continue
        hatch = "" if lettered else state.hatch
        ax.add_patch(PathPatch(outline(mask), facecolor=state.color, edgecolor=state.ink, lw=0, hatch=hatch))
        for row, column in np.argwhere(mask) if lettered else ():
            ax.text(column, row, state.letter, ha="center", va="center_baseline", fontsize=6, color=state.ink)
    if lettered:
        ax.vlines(np.arange(1, columns) - 0.5, -0.5, rows - 0.5, color=PAPER, lw=0.6)
        ax.hlines(np.arange(1, rows) - 0.5, -0.5, columns - 0.5, color=PAPER, lw=0.6)
    ax.set(xlim=(-0.5, columns - 0.5), ylim=(-0.5, rows - 0.5))
    ax.spines[:].set_visible(False)
    return lettered


def outline(mask: NDArray[np.bool_]) -> Path:
    """Return one path of rectangles that covers the cells of `mask` (y, x), a rectangle a run of cells in a row."""
    padded = np.zeros((mask.shape[0], mask.shape[1] + 2), dtype=np.int8)
    padded[:, 1:-1] = mask
    change = np.diff(padded, axis=1)
    row, start = np.nonzero(change == 1)
    _, stop = np.nonzero(change == -1)
    left, right, low, high = start - 0.5, stop - 0.5, row - 0.5, row + 0.5
    corners = np.stack([(left, low), (right, low), (right, high), (left, high), (left, low)])
    codes = np.tile([Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY], len(row))
    return Path(corners.transpose(2, 0, 1).reshape(-1, 2), codes)


def label_cells(ax: Axes, x: tuple[str, Sequence[Any]], y: tuple[str, Sequence[Any]]) -> None:
    """Name the axes of a map of cells; `x` and `y` are a dim and its points."""
    for axis, (dim, points) in ((ax.xaxis, x), (ax.yaxis, y)):
        places, values = ticks(points)
        axis.set_ticks(places, [tick_text(dim, value) for value in values])
        axis.set_label_text(axis_title(dim))
    _lean(ax, ax.xaxis)


def ticks(points: Sequence[Any]) -> tuple[list[float], list[Any]]:
    """Return where to put ticks, in cells, and the value at each: every point, or round values between many numbers."""
    count = len(points)
    values = np.asarray(points)
    if count <= MOST_TICKS or values.dtype.kind not in "fiu":
        return [float(place) for place in range(count)], list(points)
    steps = np.diff(values)
    if not (np.all(steps > 0.0) or np.all(steps < 0.0)):
        chosen = list(range(0, count, -(-count // MOST_TICKS)))
        return [float(place) for place in chosen], [points[place] for place in chosen]
    order = np.argsort(values)
    if log_spaced(values):
        nice = _within(LogLocator(numticks=MOST_TICKS), values)
        places = np.interp(np.log(nice), np.log(values[order]), order)
    else:
        nice = _within(MaxNLocator(MOST_TICKS - 2, steps=[1, 2, 2.5, 5, 10]), values)
        places = np.interp(nice, values[order], order)
    return places.tolist(), [float(f"{value:.9g}") for value in nice]


def _within(locator: Locator, values: NDArray[Any]) -> NDArray[np.float64]:
    """Return the ticks of `locator` from end to end, which take part even if they round to just outside."""
    low, high = float(values.min()), float(values.max())
    nice = np.asarray(locator.tick_values(low, high))
    return nice[(nice >= low - 1e-9 * abs(low)) & (nice <= high + 1e-9 * abs(high))]


def _lean(ax: Axes, axis: Axis) -> None:
    """Slant the tick texts of the x axis when they would run into each other."""
    texts = axis.get_ticklabels()
    room = ax.get_window_extent().width * 72.0 / ax.figure.dpi
    if len(texts) * max((len(text.get_text()) for text in texts), default=0) * CHARACTER > room:
        for text in texts:
            text.set(rotation=30, ha="right", rotation_mode="anchor")


def state_handles(states: Sequence[State], lettered: bool) -> list[Patch]:
    """Return the legend entries of `states`, with the letters of a lettered map or the hatches of one without."""
    return [
        Patch(
            facecolor=state.color, edgecolor=state.ink if state.hatch and not lettered else "#999999", lw=0.4,
            hatch="" if lettered else state.hatch,
            label=f"{state.letter}  {state.name}" if lettered else state.name,
        )
        for state in states
    ]  # fmt: skip
