"""Prediction against simulation, request by request, a panel a policy."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from kvsweep.report.plots import style
from kvsweep.report.plots.labels import plain, policy_colors, policy_labels
from kvsweep.report.plots.scales import seconds_text


@style.in_style
def analytic_figure(ds: xr.Dataset) -> Figure:
    """Return the time in the cluster, waits left out, against the prediction it should meet; on the line they agree."""
    made = style.new_figure(1.3 + 2.2 * style.panel_rows(ds.sizes["policy"]))
    axes = style.panels(made, ds.sizes["policy"])
    expected = str(ds.attrs["kvsweep_expected"])
    both = [ds[name].values for name in (expected, "simulated_time")]
    title = f"Predicted, {'serial' if 'serial' in expected else 'overlapped'} [s]"
    positive = np.concatenate([values[values > 0].ravel() for values in both])
    ends = [float(positive.min()) / 1.3, float(positive.max()) * 1.3]
    for i, (ax, label, color) in enumerate(zip(axes, policy_labels(ds), policy_colors(ds), strict=True)):
        ax.plot(ends, ends, color="#999999", lw=0.8)
        ax.plot(both[0][i], both[1][i], "o", color=color, ms=2.5, alpha=0.5, mew=0)
        ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel=title, ylabel="Cluster [s]")
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter(FuncFormatter(seconds_text))
            axis.set_minor_formatter(NullFormatter())
        error = np.median(np.abs(both[1][i] / both[0][i] - 1.0))
        ax.set_title(f"{label}: median error {error:.1%}")
        ax.grid(True)
    style.outer_labels(axes)
    made.suptitle(plain(str(ds.attrs.get("title", "")), 110))
    return made
