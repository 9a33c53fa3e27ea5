"""``ds.kvsweep.plot``: the figures of a sweep in a notebook, into pyplot's windows or into given axes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import xarray as xr
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kvsweep.errors import InputError
from kvsweep.report.plots import style
from kvsweep.report.plots.studies import study
from kvsweep.report.plots.sweeps import heatmap, success, sufficient
from kvsweep.report.plots.sweeps.heatmap import X, Y
from kvsweep.results.analysis import studies, sweeps
from kvsweep.results.analysis.slices import take_slice


class PlotNamespace:
    """Figures of one sweep or study, drawn by pyplot or into the axes `ax`; each method returns what it drew into.

    Maps return the list of their panels, other figures their axes. Keyword arguments named like dims fix those that are
    not drawn over.
    """

    def __init__(self, ds: xr.Dataset) -> None:
        self._ds = ds

    def heatmap(self, ax: Axes | None = None, x: str = X, y: str = Y, **sel: Any) -> list[Axes]:
        """Return the panels of the SLO heatmap over `x` and `y`, one a policy; into `ax`, a policy must be chosen."""
        sweeps.require_sweep(self._ds)
        part = take_slice(self._ds, (x, y), sel)
        with _own_figure(heatmap.height(part), ax) as made:
            if ax is None:
                return heatmap.draw(made, part, x, y)
            heatmap.draw_one(ax, part, x, y)
            return [ax]

    def success_rate(self, ax: Axes | None = None, x: str | None = None, **sel: Any) -> Axes:
        """Return the axes with the success rate of each policy over `x`, by default the hit ratio."""
        part, dim = success.rates(self._ds, sel, x)
        with _own_figure(success.HEIGHT, ax) as made:
            ax = ax or made.subplots()
            success.draw(ax, part, dim)
        return ax

    def sufficient(self, ax: Axes | None = None, x: str = X, y: str = Y, **sel: Any) -> Axes:
        """Return the axes with the map of the simplest policy that meets the SLO over `x` and `y`."""
        sweeps.require_sweep(self._ds)
        part = take_slice(self._ds, (x, y), sel)
        with _own_figure(sufficient.HEIGHT, ax) as made:
            ax = ax or made.subplots()
            sufficient.draw(ax, part, x, y)
        return ax

    def map(self, x: str, y: str, value: str = "ttft", of: str | None = None, panel: str | None = None, *,
            ax: Axes | None = None, **sel: Any) -> list[Axes]:  # fmt: skip
        """Return the panels of the map of a figure of a cluster study over two of its axes, one a point of `panel`.

        A map into `ax` is one panel.
        """
        studies.require_study(self._ds)
        if ax is not None and panel is not None:
            raise InputError(f"panel: {panel}; allowed: a map into ax has none")
        with _own_figure(study.map_height(self._ds, panel), ax) as made:
            if ax is None:
                return study.draw_maps(made, self._ds, (x, y), (value, of), panel, sel)
            study.draw_map(ax, self._ds, (x, y), (value, of), sel)
            return [ax]

    def winner(self, x: str, y: str, over: str, value: str = "ttft", of: str | None = None, *,
               ax: Axes | None = None, **sel: Any) -> Axes:  # fmt: skip
        """Return the axes with the map of the point of the axis `over` of a cluster study at which a figure is best."""
        studies.require_study(self._ds)
        with _own_figure(study.WINNER_HEIGHT, ax) as made:
            ax = ax or made.subplots()
            study.draw_winner(ax, self._ds, (x, y), over, (value, of), sel)
        return ax

    def curve(self, x: str, value: str = "ttft", of: str | None = None, lines: str | None = None, *,
              ax: Axes | None = None, **sel: Any) -> Axes:  # fmt: skip
        """Return the axes with a figure of a cluster study over one axis, a line for each point of the axis `lines`."""
        studies.require_study(self._ds)
        with _own_figure(study.CURVE_HEIGHT, ax) as made:
            ax = ax or made.subplots()
            study.draw_curve(ax, self._ds, x, (value, of), lines, sel)
        return ax


@contextmanager
def _own_figure(height: float, ax: Axes | None) -> Iterator[Figure]:
    """Give an empty figure in the shared style that pyplot knows, so that notebooks and ``pyplot.savefig`` find it.

    Where `ax` is given it is its own. A figure that could not be drawn is closed.
    """
    with style.styled():
        if ax is not None:
            yield ax.get_figure(root=True)  # type: ignore[misc]
            return
        made = pyplot.figure(figsize=(style.WIDTH, height), layout="constrained")
        try:
            yield made
        except BaseException:
            pyplot.close(made)
            raise
