"""``ds.kvsweep.plot``: the figures of a sweep in a notebook, into pyplot's windows or into given axes."""

from __future__ import annotations

from typing import Any

import xarray as xr
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kvsweep.report.plots import style
from kvsweep.report.plots.studies import study
from kvsweep.report.plots.sweeps import heatmap, success, sufficient
from kvsweep.report.plots.sweeps.heatmap import X, Y
from kvsweep.results.analysis import sweeps
from kvsweep.results.analysis.slices import take_slice


class PlotNamespace:
    """Figures of one sweep. Keyword arguments named like dims fix those that are not drawn over."""

    def __init__(self, ds: xr.Dataset) -> None:
        self._ds = ds

    def heatmap(self, ax: Axes | None = None, x: str = X, y: str = Y, **sel: Any) -> list[Axes]:
        """Return the panels of the SLO heatmap over `x` and `y`, one a policy; into `ax`, a policy must be chosen."""
        sweeps.require_sweep(self._ds)
        part = take_slice(self._ds, (x, y), sel)
        with style.styled():
            if ax is None:
                return heatmap.draw(_figure(heatmap.height(part)), part, x, y)
            heatmap.draw_one(ax, part, x, y)
            return [ax]

    def success_rate(self, ax: Axes | None = None, x: str | None = None, **sel: Any) -> Axes:
        """Return the axes with the success rate of each policy over `x`, by default the hit ratio."""
        part, dim = success.rates(self._ds, sel, x)
        with style.styled():
            ax = ax or _figure(success.HEIGHT).subplots()
            success.draw(ax, part, dim)
        return ax

    def sufficient(self, ax: Axes | None = None, x: str = X, y: str = Y, **sel: Any) -> Axes:
        """Return the axes with the map of the simplest policy that meets the SLO over `x` and `y`."""
        sweeps.require_sweep(self._ds)
        part = take_slice(self._ds, (x, y), sel)
        with style.styled():
            ax = ax or _figure(sufficient.HEIGHT).subplots()
            sufficient.draw(ax, part, x, y)
        return ax

    def map(self, x: str, y: str, value: str = "ttft", of: str | None = None, panel: str | None = None,
            **sel: Any) -> Figure:  # fmt: skip
        """Return the map of a figure of a cluster study over two of its axes, a panel for each point of `panel`."""
        return study.map_figure(self._ds, (x, y), (value, of), panel, sel)

    def winner(self, x: str, y: str, over: str, value: str = "ttft", of: str | None = None, **sel: Any) -> Figure:
        """Return the map of the point of the axis `over` of a cluster study at which a figure is best."""
        return study.winner_figure(self._ds, (x, y), over, (value, of), sel)

    def curve(self, x: str, value: str = "ttft", of: str | None = None, lines: str | None = None,
              **sel: Any) -> Figure:  # fmt: skip
        """Return a figure of a cluster study over one axis, a line for each point of the axis `lines`."""
        return study.curve_figure(self._ds, x, (value, of), lines, sel)


def _figure(height: float) -> Figure:
    """Return an empty figure that pyplot knows, so that notebooks and ``pyplot.show`` show it."""
    return pyplot.figure(figsize=(style.WIDTH, height), layout="constrained")
