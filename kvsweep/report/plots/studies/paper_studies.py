"""The paper's two studies drawn from their Datasets, beside what the paper found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from kvsweep.report.plots import style
from kvsweep.report.plots.labels import plain, tick_text
from kvsweep.results.analysis.studies import over_seeds
from kvsweep.results.attrs import mapping_attr

LOADS = {"paper": "at the paper's rates", "own": "at the trace's own pace"}
PAPER_COLOR = "#222222"
MARKED = "*"
HALO = withStroke(linewidth=1.5, foreground=style.PAPER)
"""Keeps a label legible where a line or a bar runs behind it."""
NEAR = 14.0
"""Distance of points that share a label [pixel]."""


@style.in_style
def affinity_figure(ds: xr.Dataset) -> Figure:
    """Return what session affinity changes for each session, a panel a model and fidelity; stars are the paper's."""
    names = ("uncached_change", "e2e_change")
    made, panels = _panels(ds)
    for ax, size, part in panels:
        for i, load in enumerate(part["load"].values):
            at = part.sel(load=load)
            first = at.isel(seed=0)
            ax.plot(
                100 * first["session_uncached_change"].values, 100 * first["session_e2e_change"].values,
                style.MARKERS[i], color=style.SERIES[i], ms=3.5, alpha=0.6, mfc=style.PAPER if i else None,
            )  # fmt: skip
            (x, x_half), (y, y_half) = (_percent(at[name]) for name in names)
            ax.errorbar(
                x.item(), y.item(), y_half.item(), x_half.item(), fmt=style.MARKERS[i], color=style.SERIES[i], ms=9,
                mec=style.INK, ecolor=style.INK, elinewidth=1.0, zorder=4,
            )  # fmt: skip
        _paper_point(ax, ds, size, names)
        _cross(ax)
        _title(ax, part, {}, (("uncached_change", "uncached"), ("e2e_change", "E2E")))
    _label(panels, ds, "Change of the prompt tokens computed [%]", "Change of the mean E2E latency [%]")
    what = "all requests (large, bars 95 % of the mean over seeds) or a session of the first seed (small)"
    _finish(made, ds, "Session affinity against round robin, 3P–1D", what)
    return made


@style.in_style
def retention_figure(ds: xr.Dataset) -> Figure:
    """Return the time to first token against the KV held, a point a TTL, a panel a model and fidelity; with stars."""
    names = ("occupancy_change", "ttft_change")
    made, panels = _panels(ds)
    for ax, size, part in panels:
        for i, load in enumerate(part["load"].values):
            (held, held_half), (later, later_half) = (_percent(part[name].sel(load=load)) for name in names)
            ax.errorbar(
                held, later, later_half, held_half, color=style.SERIES[i], marker=style.MARKERS[i],
                ls=style.DASHES[i], ms=4, elinewidth=0.8, ecolor=(style.SERIES[i], 0.5),
            )  # fmt: skip
        _paper_point(ax, ds, size, names)
        _cross(ax)
        _title(ax, part, {"ttl": 60.0}, (("occupancy_change", "KV held"), ("ttft_change", "TTFT")), "60 s")
        ax.set_yscale("symlog", linthresh=1.0)
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _position: f"{value:g}".replace("-", "−")))
        ax.set_xlim(-120, 16)
        ax.set_ylim(*_whole_bars(ds["ttft_change"]))
        for i, load in enumerate(part["load"].values):
            x, y = (_percent(part[name].sel(load=load))[0].values for name in names)
            _name_ttls(ax, i, x, y, part["ttl"].values.tolist())
    _label(panels, ds, "Change of the KV held in L1 and L2 over time [%]", "Change of the mean TTFT [%]")
    what = "a TTL; bars are 95 % intervals of the mean over seeds"
    _finish(made, ds, "Idle time to live [s] on top of LRU, 3P–1D", what)
    return made


Panel = tuple[Axes, str, xr.Dataset]


def _panels(ds: xr.Dataset) -> tuple[Figure, list[Panel]]:
    """Return a figure and its panels, a row a fidelity and a column a model: axes, model, part of the study."""
    rules = [str(name) for name in ds["fidelity"].values]
    made = style.new_figure(1.2 + 3.1 * len(rules))
    axes = made.subplots(len(rules), ds.sizes["profile"], sharex=True, sharey=True, squeeze=False)
    sizes = [str(size) for size in ds["profile"].values]
    return made, [
        (axes[row, column], size, ds.sel(fidelity=fidelity, profile=size))
        for row, fidelity in enumerate(rules) for column, size in enumerate(sizes)
    ]  # fmt: skip


def _label(panels: list[Panel], ds: xr.Dataset, below: str, left: str) -> None:
    """Write the titles of the axes at the outer panels."""
    columns = ds.sizes["profile"]
    for ax, *_ in panels[-columns:]:
        ax.set_xlabel(below)
    for ax, *_ in panels[::columns]:
        ax.set_ylabel(left)


def _percent(array: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Return the mean over seeds and half its interval [%], 0 for a single seed."""
    mean, half = over_seeds(array)
    return 100 * mean, 100 * half.fillna(0.0)


def _whole_bars(change: xr.DataArray) -> tuple[float, float]:
    """Return ends [%] of a symmetric log axis that hold every interval, with room for the labels."""
    mean, half = _percent(change)
    return min(-1.0, 2.0 * float((mean - half).min())), max(10.0, 2.0 * float((mean + half).max()))


def _paper_point(ax: Axes, ds: xr.Dataset, size: str, names: tuple[str, str]) -> None:
    """Mark what the paper simulated, and where it measured, a line to that."""
    said = mapping_attr(ds, "kvsweep_paper")
    for kind, fill in (("simulated", PAPER_COLOR), ("measured", style.PAPER)):
        values = [said.get(name, {}).get(kind, {}).get(size) for name in names]
        if None not in values:
            ax.plot(*(100 * float(value) for value in values), MARKED, color=PAPER_COLOR, mfc=fill, ms=10, zorder=5)


def _cross(ax: Axes) -> None:
    ax.axhline(0.0, color="#999999", lw=0.6, zorder=0)
    ax.axvline(0.0, color="#999999", lw=0.6, zorder=0)
    ax.grid(True)


def _title(ax: Axes, part: xr.Dataset, at: Mapping[str, float], names: tuple[tuple[str, str], ...],
           what: str = "") -> None:  # fmt: skip
    """Write the changes at the paper's rates above a panel, with their intervals over seeds."""
    words = []
    for name, word in names:
        mean, half = _percent(part[name].sel(at).sel(load="paper"))
        spread = f" ± {half.item():.2g}" if half.item() else ""
        words.append(f"{mean.item():+.3g}{spread} % {word}".replace("-", "−"))
    head = f"{part['profile'].item()}, fidelity {part['fidelity'].item()}"
    ax.set_title(f"{head}{what and f', {what}'}\n{', '.join(words)}", fontsize=8)


def _name_ttls(ax: Axes, i: int, held: NDArray[Any], later: NDArray[Any], ttls: list[float]) -> None:
    """Write the TTLs at the points of a load, one label for those that lie on top of each other."""
    places = ax.transData.transform(np.stack([held, later], axis=1))
    groups: list[list[int]] = []
    for index, place in enumerate(places):
        near = bool(groups) and np.abs(place - places[groups[-1][-1]]).max() < NEAR
        if near:
            groups[-1].append(index)
        else:
            groups.append([index])
    for group in groups:
        text = ", ".join(tick_text("ttl", ttls[index]) for index in group)
        # Both curves fall to the right: below the left one and above the right one there is nothing else.
        ax.annotate(
            text, (held[group[0]], later[group[0]]), ((-4, -8), (5, 4))[i > 0], textcoords="offset points",
            fontsize=6.5, color=style.SERIES[i], ha="right" if i == 0 else "left", path_effects=[HALO], zorder=6,
        )  # fmt: skip


def _finish(made: Figure, ds: xr.Dataset, title: str, what: str) -> None:
    handles = [
        Line2D([], [], color=style.SERIES[i], marker=style.MARKERS[i], ls="", label=LOADS[str(load)])
        for i, load in enumerate(ds["load"].values)
    ]
    handles.append(Line2D([], [], color=PAPER_COLOR, marker=MARKED, ls="", ms=9, label="the paper, simulated"))
    if any(item.get("measured") for item in mapping_attr(ds, "kvsweep_paper").values()):
        handles.append(
            Line2D([], [], color=PAPER_COLOR, mfc=style.PAPER, marker=MARKED, ls="", ms=9, label="the paper, measured")
        )
    made.legend(handles=handles, loc="outside lower center", ncols=4)
    kinds = sorted({str(text).rpartition("(")[2].rstrip(")") for text in _profiles(ds).values()})
    trace = plain(str(ds.attrs.get("kvsweep_trace", "")))
    made.suptitle(f"{title}\n{trace} coding sessions · profiles {', '.join(kinds)}\na point is {what}")


def _profiles(ds: xr.Dataset) -> Mapping[str, Any]:
    return mapping_attr(ds, "kvsweep_profiles")
