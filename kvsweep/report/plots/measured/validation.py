"""Predictions beside measurements: every request, errors, windows over time, and fits of a profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from kvsweep.report.plots import style

Floats = NDArray[np.float64]
Both = Mapping[str, tuple[Floats, Floats]]
"""Measured and predicted values [s] by latency."""

HEIGHT = 2.7
TITLES = {
    "outstanding": "Outstanding requests",
    "completed_requests": "Completed requests",
    "delivered_tokens": "Delivered tokens",
}


@style.in_style
def scatter_figure(title: str, both: Both) -> Figure:
    """Return every request, measured against predicted, a panel a latency; the line is equality."""
    made = style.new_figure(HEIGHT)
    made.suptitle(f"Every request: {title}")
    for ax, (name, (measured, predicted)) in zip(made.subplots(1, len(both)), both.items(), strict=True):
        known = np.isfinite(measured) & np.isfinite(predicted)
        ends = [0.0, float(max(measured[known].max(), predicted[known].max()))]
        ax.plot(ends, ends, color=style.INK, linewidth=0.8)
        ax.plot(measured[known], predicted[known], ".", color=style.SERIES[0], markersize=3.0, alpha=0.6)
        ax.set(xlabel=f"{name.upper()} measured [s]", ylabel="predicted [s]")
    return made


@style.in_style
def error_figure(title: str, both: Both) -> Figure:
    """Return the share of requests whose relative error is at most a value, a line a latency."""
    made = style.new_figure(HEIGHT)
    made.suptitle(f"Errors: {title}")
    ax = made.subplots()
    for i, (name, (measured, predicted)) in enumerate(both.items()):
        known = np.isfinite(measured) & (measured > 0.0)
        errors = np.sort(np.abs(predicted[known] / measured[known] - 1.0)) * 100.0
        share = np.arange(1, len(errors) + 1) / len(errors)
        ax.step(errors, share, where="post", color=style.SERIES[i], linestyle=style.DASHES[i], label=name.upper())
    ax.set(xlabel="Error at most [%]", ylabel="Share of the requests", xscale="symlog", ylim=(0.0, 1.02))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.legend()
    return made


@style.in_style
def windows_figure(title: str, measured: Mapping[str, Floats], predicted: Mapping[str, Floats]) -> Figure:
    """Return outstanding and completed requests and delivered tokens over time, measured and predicted."""
    made = style.new_figure(1.8 * HEIGHT)
    made.suptitle(f"Windows: {title}")
    axes = made.subplots(len(TITLES), 1, sharex=True)
    for ax, (name, label) in zip(axes, TITLES.items(), strict=True):
        for i, (which, values) in enumerate((("measured", measured), ("predicted", predicted))):
            ax.step(values["window"], values[name], where="post", color=style.SERIES[i], linestyle=style.DASHES[i],
                    label=which)  # fmt: skip
        ax.set(ylabel=label, ylim=(0.0, None))
    axes[0].legend()
    axes[-1].set(xlabel="Time [s]")
    return made


@style.in_style
def fit_figure(title: str, parts: Sequence[tuple[str, Floats, Floats, Floats]]) -> Figure:
    """Return each fitted curve over its measurements: parts of (title, points, measured [s], fitted [s])."""
    made = style.new_figure(HEIGHT)
    made.suptitle(title)
    for ax, (name, x, measured, fitted) in zip(np.atleast_1d(made.subplots(1, len(parts))), parts, strict=True):
        ax.plot(x, measured * 1e3, ".", color=style.SERIES[1], markersize=3.0, label="measured")
        ax.plot(x, fitted * 1e3, color=style.SERIES[0], label="fitted")
        ax.set(title=name, xlabel=name.rpartition("by ")[2].capitalize(), ylabel="Time [ms]", xscale="log")
        ax.legend()
    return made
