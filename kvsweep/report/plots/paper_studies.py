"""The paper's two studies drawn from their Datasets, beside what the paper found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from kvsweep.report.plots import style
from kvsweep.report.plots.labels import plain, tick_text
from kvsweep.results.attrs import mapping_attr

HEIGHT = 4.3
LOADS = {"paper": "at the paper's rates", "own": "at the trace's own pace"}
PAPER_COLOR = "#222222"
MARKED = "*"


@style.in_style
def affinity_figure(ds: xr.Dataset) -> Figure:
    """Return what session affinity changes for each session, a panel a model; stars are the paper's totals."""
    made = style.new_figure(HEIGHT)
    axes = made.subplots(1, ds.sizes["profile"], sharey=True, squeeze=False)[0]
    for ax, size in zip(axes, ds["profile"].values, strict=True):
        part = ds.sel(profile=size)
        for i, load in enumerate(part["load"].values):
            at = part.sel(load=load)
            ax.plot(
                100 * at["session_uncached_change"].values.ravel(), 100 * at["session_e2e_change"].values.ravel(),
                style.MARKERS[i], color=style.SERIES[i], ms=3.5, alpha=0.6, mfc=style.PAPER if i else None,
            )  # fmt: skip
            total = 100 * at["uncached_change"].mean().item(), 100 * at["e2e_change"].mean().item()
            ax.plot(*total, style.MARKERS[i], color=style.SERIES[i], ms=9, mec=style.INK)
        _paper_point(ax, ds, str(size), ("uncached_change", "e2e_change"))
        _cross(ax)
        ax.set_title(f"{size}: {_change(part, 'uncached_change')} uncached, {_change(part, 'e2e_change')} E2E")
        ax.set_xlabel("Change of the prompt tokens computed [%]")
    axes[0].set_ylabel("Change of the mean E2E latency [%]")
    _finish(made, ds, "Session affinity against round robin, 3P–1D", "all requests (large), a session (small)")
    return made


@style.in_style
def retention_figure(ds: xr.Dataset) -> Figure:
    """Return the time to first token against the KV held, a point a TTL, a panel a model; the star is the paper's."""
    made = style.new_figure(HEIGHT)
    axes = made.subplots(1, ds.sizes["profile"], sharey=True, squeeze=False)[0]
    for ax, size in zip(axes, ds["profile"].values, strict=True):
        part = ds.sel(profile=size)
        for i, load in enumerate(part["load"].values):
            at = part.sel(load=load).mean("seed")
            held, later = 100 * at["occupancy_change"].values, 100 * at["ttft_change"].values
            ax.plot(held, later, color=style.SERIES[i], marker=style.MARKERS[i], ls=style.DASHES[i], ms=4)
            for x, y, ttl in zip(held, later, at["ttl"].values.tolist(), strict=True):
                ax.annotate(
                    tick_text("ttl", ttl), (x, y), ((5, 3), (-4, -8))[i > 0], textcoords="offset points", fontsize=6.5,
                    color=style.SERIES[i], ha="left" if i == 0 else "right",
                )  # fmt: skip
        _paper_point(ax, ds, str(size), ("occupancy_change", "ttft_change"))
        _cross(ax)
        minute = part.sel(ttl=60.0)
        words = f"{_change(minute, 'occupancy_change')} KV held, {_change(minute, 'ttft_change')} TTFT"
        ax.set_title(f"{size}, 60 s: {words}")
        ax.set_xlabel("Change of the KV held in L1 and L2 over time [%]")
    highest = 100 * float(ds["ttft_change"].max())
    axes[0].set_yscale("symlog", linthresh=1.0)
    for ax in axes:
        ax.set_xlim(-112, 12)
    axes[0].set_ylim(-0.9, max(10.0, 2.0 * highest))
    axes[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _position: f"{value:g}"))
    axes[0].set_ylabel("Change of the mean TTFT [%]")
    _finish(made, ds, "Idle time to live [s] on top of LRU, 3P–1D", "a TTL, the paper's is 60 s")
    return made


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


def _change(part: xr.Dataset, name: str) -> str:
    """Return the change at the paper's rates as text, over the seeds where there are several."""
    values = 100 * part[name].sel(load="paper").values.ravel()
    spread = f" ± {np.ptp(values) / 2:.2g}" if len(values) > 1 else ""
    return f"{values.mean():+.3g}{spread} %".replace("-", "−")


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
    made.suptitle(f"{title}\n{trace} coding sessions · profiles {', '.join(kinds)} · a point is {what}")


def _profiles(ds: xr.Dataset) -> Mapping[str, Any]:
    return mapping_attr(ds, "kvsweep_profiles")
