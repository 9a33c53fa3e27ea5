"""Studies of clusters: maps of a figure over two axes, maps of the best choice, and curves with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from kvsweep.errors import InputError
from kvsweep.report.labels import in_sentence, label
from kvsweep.report.plots import style
from kvsweep.report.plots.cells import draw_cells, label_cells, state_handles
from kvsweep.report.plots.labels import axis_title, plain, tick_text
from kvsweep.report.plots.scales import count_text, keep_scale, log_spaced, point_axis, widened
from kvsweep.report.plots.style import State
from kvsweep.results.analysis import studies
from kvsweep.results.analysis.slices import take_slice

NONE = State("no result", "–", "#f1f1f1")
CURVE_HEIGHT = 3.6
WINNER_HEIGHT = 4.0
Value = tuple[str, str | None]
"""A figure and the point along its own dim, see `results.studies.figure`."""
MOST_LINES = 16
"""Most lines of a figure that can be told apart."""
MOST_PANELS = 12
MOST_WINNERS = 35  # of which each has a letter or digit of its own, beside those without a winner
NUMBERED = 100
"""Most cells of a panel in which numbers are written."""


@style.in_style
def map_figure(
    ds: xr.Dataset, axes: tuple[str, str], value: Value = ("ttft", None), panel: str | None = None,
    select: Mapping[str, Any] | None = None, spelled: str = "",
) -> Figure:  # fmt: skip
    """Return the map of a figure over ``axes = (x, y)``, a panel for each point of `panel`.

    `select` fixes other axes, and seeds are averaged.
    """
    made = style.new_figure(map_height(ds, panel))
    draw_maps(made, ds, axes, value, panel, select, spelled)
    return made


def map_height(ds: xr.Dataset, panel: str | None) -> float:
    """Return the height [inch] of a map, so that panels keep their shape however many there are."""
    return 1.3 + 2.35 * style.panel_rows(ds.sizes.get(panel, 1) if panel else 1)


def draw_maps(
    made: Figure, ds: xr.Dataset, axes: tuple[str, str], value: Value, panel: str | None = None,
    select: Mapping[str, Any] | None = None, spelled: str = "",
) -> list[Axes]:  # fmt: skip
    """Draw the map of `map_figure` into the empty figure `made`; return its panels."""
    x, y = axes
    array, caption = _slice(ds, value, [x, y, *([panel] if panel else [])], select or {}, spelled)
    parts = [(None, array)] if panel is None else [(point, array.sel({panel: point})) for point in array[panel].values]
    if len(parts) > MOST_PANELS:
        raise InputError(f"{spelled}panel: {panel} has {len(parts)} points; allowed: at most {MOST_PANELS}")
    drawn = style.panels(made, len(parts))
    norm = _norm(array.values)
    for ax, (point, part) in zip(drawn, parts, strict=True):
        _draw_cells(ax, part.transpose(y, x), norm)
        label_cells(ax, (x, ds[x].values.tolist()), (y, ds[y].values.tolist()))
        if panel is not None and point is not None:
            ax.set_title(said(panel, point.item()))
    style.outer_labels(drawn)
    _color_bar(made, drawn, norm, array)
    made.suptitle(f"{_headline(ds)}\n{caption}")
    return drawn


def draw_map(ax: Axes, ds: xr.Dataset, axes: tuple[str, str], value: Value, select: Mapping[str, Any]) -> None:
    """Draw the map of a figure without panels into `ax`."""
    x, y = axes
    array, caption = _slice(ds, value, [x, y], select, "")
    norm = _norm(array.values)
    _draw_cells(ax, array.transpose(y, x), norm)
    label_cells(ax, (x, ds[x].values.tolist()), (y, ds[y].values.tolist()))
    _color_bar(ax.figure, [ax], norm, array)
    ax.set_title(f"{_headline(ds)}\n{caption}")


def _color_bar(made: Figure | SubFigure, drawn: Sequence[Axes], norm: Normalize, array: xr.DataArray) -> None:
    form = FuncFormatter(count_text) if norm.vmax is not None and norm.vmax >= 1e4 else None
    made.colorbar(ScalarMappable(norm, "cividis"), ax=drawn, label=_title(array), pad=0.01, aspect=30, format=form)


@style.in_style
def winner_figure(
    ds: xr.Dataset, axes: tuple[str, str], over: str, value: Value = ("ttft", None),
    select: Mapping[str, Any] | None = None, spelled: str = "",
) -> Figure:  # fmt: skip
    """Return the map over ``axes = (x, y)`` of the point of the axis `over` at which a figure is best."""
    made = style.new_figure(WINNER_HEIGHT)
    draw_winner(made.subplots(), ds, axes, over, value, select, spelled)
    return made


def draw_winner(
    ax: Axes, ds: xr.Dataset, axes: tuple[str, str], over: str, value: Value,
    select: Mapping[str, Any] | None = None, spelled: str = "",
) -> None:  # fmt: skip
    """Draw the map of `winner_figure` into `ax`."""
    x, y = axes
    array, caption = _slice(ds, value, [x, y, over], select or {}, spelled)
    if array.sizes[over] > MOST_WINNERS:
        raise InputError(f"{spelled}over: {over} has {array.sizes[over]} points; allowed: at most {MOST_WINNERS}")
    best = studies.best_along(array, over, value[0] in studies.MORE_IS_BETTER)
    points = [tick_text(over, point) for point in array[over].values.tolist()]
    states = [NONE, *_states(points)]
    lettered = draw_cells(ax, best.transpose(y, x).values + 1, states)
    label_cells(ax, (x, ds[x].values.tolist()), (y, ds[y].values.tolist()))
    kind = "highest" if value[0] in studies.MORE_IS_BETTER else "lowest"
    title = f"{_headline(ds)}\n{label(over)} with the {kind} {_title(array)}\n{caption}"
    style.head(ax, title, state_handles([state for i, state in enumerate(states) if i or (best < 0).any()], lettered))


@style.in_style
def curve_figure(
    ds: xr.Dataset, x: str, value: Value = ("ttft", None), lines: str | None = None,
    select: Mapping[str, Any] | None = None, spelled: str = "",
) -> Figure:  # fmt: skip
    """Return a figure over one axis, a line for each point of the axis `lines`, with 95 % intervals over seeds."""
    made = style.new_figure(CURVE_HEIGHT)
    draw_curve(made.subplots(), ds, x, value, lines, select, spelled)
    return made


def draw_curve(
    ax: Axes, ds: xr.Dataset, x: str, value: Value, lines: str | None = None,
    select: Mapping[str, Any] | None = None, spelled: str = "",
) -> None:  # fmt: skip
    """Draw the curves of `curve_figure` into `ax`."""
    keep = [x, *([lines] if lines else [])]
    array, caption = _slice(ds, value, keep, select or {}, spelled)
    half, _ = _slice(ds, value, keep, select or {}, spelled, interval=True)
    points = [None] if lines is None else list(array[lines].values)
    if len(points) > MOST_LINES:
        raise InputError(f"{spelled}lines: {lines} has {len(points)} points; allowed: at most {MOST_LINES}")
    places = axis_places(ax, x, array[x].values)
    for i, point in enumerate(points):
        at = {} if point is None else {lines: point}
        name = "" if lines is None or point is None else said(lines, point.item())
        draw_line(ax, (i, len(points)), places, array.sel(at).values, half.sel(at).values, name)
    ax.set_ylabel(_title(array))
    if np.nanmax(np.abs(array.values), initial=0.0) >= 1e4:
        ax.yaxis.set_major_formatter(FuncFormatter(count_text))
    keep_scale(ax, "y")
    ax.grid(True, axis="y")
    title = f"{_headline(ds)}\n{caption}"
    if np.isfinite(half.values).any():
        title += f"\nbands: 95 % intervals of the mean over {ds.sizes['seed']} seeds"
    if lines:
        style.head(ax, title, ax.get_lines()[: len(points)])
    else:
        ax.set_title(title, loc="center", fontsize=9)


def said(dim: str, value: Any) -> str:
    """Return a point of an axis with the name of the axis, unless it starts with that anyway."""
    text = tick_text(dim, value)
    return text if text.startswith(dim) else f"{in_sentence(label(dim))} {text}"


def draw_line(
    ax: Axes, place: tuple[int, int], x: NDArray[Any], values: NDArray[Any], half: NDArray[Any], name: str
) -> None:
    """Draw a line, ``place = (its number, how many there are)``, with its interval where there is one."""
    color = style.SERIES[place[0] % len(style.SERIES)]
    ax.plot(x, values, label=name, **style.line_look(*place, color))
    if np.isfinite(half).any():
        low = values - half
        if np.nanmin(values) >= 0.0:  # what cannot be negative has no interval below 0
            low = np.maximum(low, 0.0)
        ax.fill_between(x, low, values + half, color=color, alpha=min(0.2, 0.4 / place[1]), lw=0)


def axis_places(ax: Axes, dim: str, points: NDArray[Any]) -> NDArray[Any]:
    """Prepare the x axis for the points of `dim`; return where they are. Names and an infinite end stand in a row."""
    numbers = points.dtype.kind in "fiu" and bool(np.isfinite(points.astype(float)).all())
    # Points from 0 on that grow by factors have room neither on a linear nor on a log scale.
    numbers = numbers and not (points.min() == 0 and len(points) > 3 and log_spaced(np.sort(points)[1:]))
    ax.set_xlabel(axis_title(dim))
    if not numbers:
        places = np.arange(len(points))
        ax.set_xticks(places, [tick_text(dim, point) for point in points.tolist()])
        return places
    point_axis(ax, points, lambda value: tick_text(dim, value))
    return points


def _slice(
    ds: xr.Dataset, value: tuple[str, str | None], keep: Sequence[str], select: Mapping[str, Any], spelled: str,
    interval: bool = False,
) -> tuple[xr.DataArray, str]:  # fmt: skip
    """Return a figure over the axes `keep`, seeds averaged, and the words for what is fixed."""
    array = studies.figure(ds, *value, spelled)
    if "seed" not in keep and "seed" not in select:
        mean, half = studies.over_seeds(array)
        array = (half if interval else mean).assign_attrs(array.attrs)
    elif interval:
        array = xr.full_like(array, np.nan, dtype="f8")
    if len(set(keep)) < len(keep):
        raise InputError(f"{spelled}y: {keep[-1]} is drawn over twice; allowed: different axes")
    part = take_slice(array.rename(value[0]).to_dataset(), keep, select, f"{spelled}select " if spelled else "")
    found = part.dataset[value[0]]
    words = [said(str(name), coord.item()) for name, coord in found.coords.items()
             if coord.ndim == 0 and name not in ("statistic", "tier", "slo", "cause")]  # fmt: skip
    words.append(f"service models {ds.attrs.get('kvsweep_profile_kind', '')}")
    return found, " · ".join(plain(word) for word in words)


def _draw_cells(ax: Axes, part: xr.DataArray, norm: Normalize) -> None:
    values = part.values
    cells = np.ma.masked_invalid(values)
    colors = ScalarMappable(norm, "cividis")
    ax.imshow(cells, cmap="cividis", norm=norm, aspect="auto", origin="lower", interpolation="none")
    ax.spines[:].set_visible(False)
    ax.set_facecolor("#f1f1f1")
    if values.size > NUMBERED:
        return
    for (row, column), number in np.ndenumerate(values):
        known = np.isfinite(number)
        shade = colors.to_rgba(number) if known else (0.95, 0.95, 0.95, 1.0)
        ink = style.INK if 0.2126 * shade[0] + 0.7152 * shade[1] + 0.0722 * shade[2] > 0.45 else style.PAPER
        ax.text(column, row, short(number) if known else "–", ha="center", va="center", fontsize=5.5, color=ink)


def short(number: float) -> str:
    """Return a number in three digits, large ones whole or with their prefix."""
    if abs(number) >= 1e4:
        return count_text(float(f"{number:.3g}"))
    return f"{number:.0f}" if abs(number) >= 1e3 else f"{number:.3g}"


def _norm(values: NDArray[np.float64]) -> Normalize:
    known = values[np.isfinite(values)]
    if not known.size:
        return Normalize(0.0, 1.0)
    low, high = float(known.min()), float(known.max())
    if low > 0.0 and high > 10.0 * low:
        return LogNorm(low, high)
    low, high = widened(low, high)
    return Normalize(low, high if high > low else low + 1.0)


def _title(array: xr.DataArray) -> str:
    of = str(array.attrs.get("kvsweep_of", ""))
    units = str(array.attrs.get("units", ""))
    tokens = str(array.name).endswith(("tokens", "occupancy"))
    units = "token" if tokens else {"1": "", "s-1": "1/s"}.get(units, units)
    short_names = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E", "slo_attainment": "SLO attainment"}
    name = short_names.get(str(array.name), str(array.name).replace("_", " "))
    name, of = name[0].upper() + name[1:], of.upper() if "tier" in array.coords else of
    return " ".join(part for part in (name, plain(of), f"[{units}]" if units else "") if part)


def _headline(ds: xr.Dataset) -> str:
    return plain(str(ds.attrs.get("title", "Cluster study")), 110)


def _states(points: Sequence[str]) -> list[State]:
    """Return how each point is drawn: a colour, a letter and a hatch of its own."""
    states: list[State] = []
    for i, point in enumerate(points):
        taken = {NONE.letter, *(state.letter for state in states)}
        letters = [letter for letter in point.upper() if letter.isascii() and letter.isalnum()]
        letter = next(each for each in (*letters, *"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") if each not in taken)
        states.append(State(plain(point), letter, style.SERIES[i % len(style.SERIES)], style.HATCHES[i % 8]))
    return states
