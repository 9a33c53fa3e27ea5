"""Studies of a few named cases: the replay matrix as dots, what each tier is worth as bars and dots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from kvsweep.report.plots import style
from kvsweep.report.plots.labels import plain
from kvsweep.results.attrs import mapping_attr

LINE = 0.21
"""Height of a case [inch]."""
AROUND = 1.7
"""Height of titles, axis and legend [inch]."""
TIERS = {"l1": "device (L1)", "l2": "host (L2)", "l3": "shared (L3)"}
POINTS = {"mean": "mean", "p50": "P50", "p95": "P95", "p99": "P99"}


@style.in_style
def replay_figure(ds: xr.Dataset) -> Figure:
    """Return latencies and reuse of every case of the replay matrix, a line a case, a mark a fidelity."""
    cases = [str(case) for case in ds["case"].values]
    made = style.new_figure(LINE * len(cases) + AROUND)
    axes = made.subplots(1, 3, sharey=True)
    panels = (
        (ds["ttft"].sel(statistic="mean"), "Mean time to first token [s]"),
        (ds["e2e"].sel(statistic="mean"), "Mean end-to-end latency [s]"),
        (100.0 * ds["token_hit_ratio"], "Prompt tokens cached [%]"),
    )
    places = np.arange(len(cases))
    for ax, (array, title) in zip(axes, panels, strict=True):
        for i, fidelity in enumerate(ds["fidelity"].values):
            ax.plot(
                array.sel(fidelity=fidelity).values, places, style.MARKERS[i], color=style.SERIES[i], ms=5,
                mfc="none" if i else None, label=f"fidelity {fidelity}",
            )  # fmt: skip
        ax.set_xlabel(title)
        ax.grid(True, axis="both")
        if title.endswith("[s]"):
            _log_seconds(ax)
    axes[2].set_xlim(-3, 103)
    axes[0].set_yticks(places, cases)
    axes[0].invert_yaxis()
    made.legend(handles=axes[0].get_lines(), loc="outside lower center", ncols=ds.sizes["fidelity"])
    profiles = ", ".join(f"{size}: {name}" for size, name in mapping_attr(ds, "kvsweep_profiles").items())
    made.suptitle(f"{plain(str(ds.attrs['title']), 100)}\n{plain(profiles, 110)}")
    return made


@style.in_style
def tiers_figure(ds: xr.Dataset, rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Return where prompt tokens were found and the time to first token, a line for each row of ``tiers_table``."""
    made = style.new_figure(2 * LINE * len(rows) + AROUND)
    left, right = made.subplots(1, 2, sharey=True)
    places = np.arange(len(rows))
    start = np.zeros(len(rows))
    for i, (tier, label) in enumerate(TIERS.items()):
        shares = np.array([100.0 * row.get(f"hit_share_{tier}", 0.0) for row in rows])
        left.barh(places, shares, 0.6, left=start, color=style.SERIES[i], label=label, edgecolor=style.PAPER)
        start = start + shares
    left.set(xlabel="Prompt tokens found in caches [%]", xlim=(0, 100))
    left.set_yticks(places, [str(row["tiers"]) for row in rows])
    left.invert_yaxis()
    for i, (point, label) in enumerate(POINTS.items()):
        values = [row[f"ttft_{point}"] for row in rows]
        right.plot(values, places, style.MARKERS[i], color=style.INK, ms=5, mfc=style.PAPER if i else None, label=label)
    _log_seconds(right)
    right.set_xlabel("Time to first token [s]")
    for ax in (left, right):
        ax.grid(True, axis="x")
    handles = [*left.get_legend_handles_labels()[0], *right.get_lines()]
    made.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    store = str(mapping_attr(ds, "kvsweep_shared_tier").get("store", "none"))
    about = f"{ds.attrs['kvsweep_profile_kind']} profile; shared tier: {store}"
    made.suptitle(f"{plain(str(ds.attrs['title']), 100)}\n{plain(about, 110)}")
    return made


def _log_seconds(ax: Axes) -> None:
    """Give the x axis a log scale of seconds with ticks that can be read within a decade, too."""
    ax.set_xscale("log")
    low, high = ax.get_xlim()
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0,) if high > 100.0 * low else (1.0, 2.0, 5.0)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _position: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
