"""A map of categories over two dims: coloured cells, hatches over them and a letter in each where it fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path
from numpy.typing import NDArray

from kvsweep.report.plots.labels import axis_title, tick_text
from kvsweep.report.plots.style import PAPER, State

LETTER_CELLS = (20, 16)
"""Most columns and rows of cells that still hold a letter each."""
VECTOR_CELLS = 20_000
"""Cells beyond which the colours are stored as a bitmap inside the vector file."""
MOST_TICKS = 8


def draw_cells(ax: Axes, codes: NDArray[np.integer[Any]], states: Sequence[State]) -> None:
    """Draw `codes` (y, x), indices of `states`, one unit cell a point.

    Cells are equally wide whatever the axis: a list of points need not be evenly spaced, and each cell is one point.
    """
    rows, columns = codes.shape
    mesh = ax.pcolormesh(
        np.arange(columns + 1) - 0.5, np.arange(rows + 1) - 0.5, codes,
        cmap=ListedColormap([state.color for state in states]),
        norm=BoundaryNorm(np.arange(len(states) + 1) - 0.5, len(states)),
        rasterized=codes.size > VECTOR_CELLS,
    )  # fmt: skip
    lettered = columns <= LETTER_CELLS[0] and rows <= LETTER_CELLS[1]
    if lettered:
        mesh.set(edgecolor=PAPER, linewidth=0.5)
    for code, state in enumerate(states):
        if lettered:
            for row, column in np.argwhere(codes == code):
                ax.text(column, row, state.letter, ha="center", va="center_baseline", fontsize=6, color=state.ink)
        elif state.hatch and np.any(codes == code):
            ax.add_patch(
                PathPatch(outline(codes == code), facecolor="none", edgecolor=state.ink, lw=0, hatch=state.hatch)
            )
    for spine in ax.spines.values():
        spine.set_visible(False)


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
        places = tick_places(points)
        texts = [tick_text(dim, points[place]) for place in places]
        long = axis is ax.xaxis and sum(map(len, texts)) > 40
        axis.set_ticks(places, texts)
        if long:
            for text in axis.get_ticklabels():
                text.set(rotation=30, ha="right", rotation_mode="anchor")
        axis.set_label_text(axis_title(dim))


def tick_places(points: Sequence[Any]) -> list[int]:
    """Return the cells that get a tick: all names, and of many numbers an even choice of round ones."""
    count = len(points)
    if count <= MOST_TICKS or isinstance(points[0], str):
        return list(range(count))
    digits = np.array([len(f"{float(point):.9e}".partition("e")[0].replace(".", "").rstrip("0")) for point in points])
    fewest = -(-count // MOST_TICKS)
    choices = [range(first, count, step) for step in range(fewest, 3 * fewest + 1) for first in range(step)]
    best: range = min(choices, key=lambda places: digits[list(places)].mean() - 0.2 * len(places))
    return list(best)


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
