"""The look shared by all figures: style file, colours, hatches, line styles, and panels laid out in a page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import matplotlib.style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from kvsweep.report.labels import STATE_WORDS

WIDTH = 7.2
"""Width [inch] of a figure: two columns of a paper."""

LEGEND_CHARACTERS = 130
"""Characters that fit in a legend row, each handle counting as 8."""
LEGEND_ROW = 12.5
"""Height [point] of a legend row in the style's font."""

INK = "#222222"
PAPER = "#ffffff"

# Okabe and Ito's colours, dark ones first; yellow is left out, it vanishes on paper.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#222222")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[str | tuple[int, tuple[float, ...]], ...] = (
    "-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)), (0, (8, 2)), (0, (3, 1, 1, 1, 1, 1)),
)  # fmt: skip
THINNEST, SMALLEST = 1.3, 4.0
"""Width [point] of the last line of a figure, and size of its markers."""
HATCHES = ("", "////", "\\\\\\\\", "....", "xxxx", "----", "||||", "++++")

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class State:
    """How a category of cells is drawn: name, letter, fill and hatch."""

    name: str
    letter: str
    color: str
    hatch: str = ""

    @property
    def ink(self) -> str:
        """Colour that reads on the fill."""
        return ink_on(self.color)


VERDICT_STATES = tuple(
    State(word, letter, color, hatch)
    for word, letter, color, hatch in zip(
        STATE_WORDS, "FSOP", ("#f0d3ca", "#e3a33f", "#9a86ad", "#1f5fa8"), ("xx", "//", "\\\\", ""), strict=True
    )
)
"""Drawing of the verdict codes, as on the pages: from fail to pass ever darker, so that the order survives grey."""


@contextmanager
def styled() -> Iterator[None]:
    """Apply the style file on top of matplotlib's own defaults, whatever the user's settings are."""
    with matplotlib.style.context("kvsweep.report.plots.kvsweep", after_reset=True):
        yield


def in_style(make: Callable[P, R]) -> Callable[P, R]:
    """Return `make` wrapped so that what it draws has the shared style."""

    @wraps(make)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with styled():
            return make(*args, **kwargs)

    return wrapped


def new_figure(height: float) -> Figure:
    """Return an empty figure `height` [inch] high that belongs to no window."""
    return Figure(figsize=(WIDTH, height), layout="constrained")


def panel_rows(count: int) -> int:
    """Return the rows that `count` panels take, at most three in a row."""
    return math.ceil(count / 3)


def panels(figure: Figure, count: int) -> list[Axes]:
    """Return `count` axes in rows of equal panels that share both axes."""
    rows = panel_rows(count)
    grid = figure.subplots(rows, math.ceil(count / rows), sharex=True, sharey=True, squeeze=False)
    axes: list[Axes] = list(grid.flat)
    for unused in axes[count:]:
        unused.remove()
    return axes[:count]


def outer_labels(axes: Sequence[Axes]) -> None:
    """Leave labels of the axes to the outer panels of `panels`, the foot of a column that ends early among them."""
    grid = axes[0].get_subplotspec()
    columns = grid.get_gridspec().ncols if grid else 1
    for index, ax in enumerate(axes):
        title = ax.get_xlabel()
        ax.label_outer()
        if index + columns >= len(axes):
            ax.set_xlabel(title)
            ax.xaxis.set_tick_params(which="both", labelbottom=True)


def head(ax: Axes, title: str, handles: Sequence[Artist]) -> None:
    """Put a legend above `ax`, clear of the data, and `title` above the legend."""
    lengths = [len(str(handle.get_label())) + 8 for handle in handles]
    columns = len(handles) if sum(lengths) <= LEGEND_CHARACTERS else max(1, LEGEND_CHARACTERS // max(lengths))
    ax.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns)
    rows = math.ceil(len(handles) / columns)
    ax.set_title(title, loc="center", fontsize=9, pad=8 + LEGEND_ROW * rows)


def line_look(index: int, count: int, color: str) -> dict[str, Any]:
    """Return how line number `index` of `count` is drawn.

    Lines often coincide: earlier ones are broader, with larger markers, so that each shows around the next.
    """
    more = min(1.0, 3.0 / max(1, count - 1)) * (count - 1 - index)
    return {
        "color": color, "marker": MARKERS[index % len(MARKERS)], "linestyle": DASHES[index % len(DASHES)],
        "linewidth": THINNEST + 0.6 * more, "markersize": SMALLEST + 1.6 * more, "markeredgewidth": 1.2,
        "markerfacecolor": PAPER if index % 2 == 0 and count > 1 else color, "zorder": 2 + index,
    }  # fmt: skip


def ink_on(color: str) -> str:
    """Return the colour, dark or light, that text on `color` needs."""
    red, green, blue = to_rgb(color)
    return INK if 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.25 else PAPER
