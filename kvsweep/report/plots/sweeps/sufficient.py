"""Map of the simplest policy that meets the SLO over two dims of a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kvsweep.report.plots import style
from kvsweep.report.plots.cells import draw_cells, label_cells, state_handles
from kvsweep.report.plots.labels import caption, policy_colors, policy_labels, shown_axis
from kvsweep.report.plots.sweeps.heatmap import X, Y
from kvsweep.results.analysis import sweeps
from kvsweep.results.analysis.ranking import simplest_first
from kvsweep.results.analysis.slices import Slice, take_slice

HEIGHT = 3.8
"""Height [inch] of the figure."""

NONE = style.State("none passes", "–", "#f1f1f1")


@style.in_style
def figure(ds: xr.Dataset, select: Mapping[str, Any], x: str = X, y: str = Y, spelled: str = "") -> Figure:
    """Return the figure of a sweep; `select` fixes the dims other than `x` and `y`, see `take_slice`."""
    sweeps.require_sweep(ds)
    made = style.new_figure(HEIGHT)
    draw(made.subplots(), take_slice(ds, (x, y), select, spelled), x, y)
    return made


def draw(ax: Axes, part: Slice, x: str = X, y: str = Y) -> None:
    """Draw the map into `ax`, with a legend of the policies in order of simplicity above it."""
    ds = part.dataset
    states = policy_states(ds)
    codes = sweeps.sufficient(ds).transpose(y, x).values
    lettered = draw_cells(ax, codes + 1, states)
    label_cells(ax, shown_axis(ds, x), shown_axis(ds, y))
    simplest = simplest_first(ds["policy_modes"].values, ds["policy_order"].values)
    shown = [states[index + 1] for index in simplest] + [NONE]
    title = f"The simplest policy that meets the SLO\n{caption(part)}"
    style.head(ax, title, state_handles(shown, lettered))


def policy_states(ds: xr.Dataset) -> list[style.State]:
    """Return how "none" and then each policy is drawn: its own colour, a letter and a hatch no other policy has."""
    states, taken = [NONE], {NONE.letter}
    for i, (label, color) in enumerate(zip(policy_labels(ds), policy_colors(ds), strict=True)):
        letter = _letter(label, taken)
        taken.add(letter)
        states.append(style.State(label, letter, color, style.HATCHES[i % len(style.HATCHES)]))
    return states


def _letter(label: str, taken: set[str]) -> str:
    """Return the first letter of `label` that no other policy has, or else any free one."""
    wanted = [letter for letter in label.upper() if letter.isascii() and letter.isalnum()]
    free = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    return next((letter for letter in (*wanted, *free) if letter not in taken), "?")
