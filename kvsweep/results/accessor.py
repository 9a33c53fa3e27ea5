"""``ds.kvsweep``: everything derived from a stored sweep, computed when asked for."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

import xarray as xr

from kvsweep.results import frame, plots
from kvsweep.results.analysis import studies, sweeps

if TYPE_CHECKING:
    import pandas as pd


@xr.register_dataset_accessor("kvsweep")
class KvsweepAccessor:
    """Derived quantities of a sweep Dataset, exact to what it stores."""

    def __init__(self, ds: xr.Dataset) -> None:
        self._ds = ds

    @property
    def _sweep(self) -> xr.Dataset:
        sweeps.require_sweep(self._ds)
        return self._ds

    @property
    def storage_time(self) -> xr.DataArray:
        """Restore time [s]."""
        return sweeps.storage_time(self._sweep)

    @property
    def recompute_time(self) -> xr.DataArray:
        """Recompute time [s]."""
        return sweeps.recompute_time(self._sweep)

    @property
    def gpu_utilization(self) -> xr.DataArray:
        """Request rate times recompute time [1]."""
        return sweeps.gpu_utilization(self._sweep)

    @property
    def storage_utilization(self) -> xr.DataArray:
        """Request rate times restore time [1]."""
        return sweeps.storage_utilization(self._sweep)

    @property
    def latency_ratio(self) -> xr.DataArray:
        """Total time over latency target [1]."""
        return sweeps.latency_ratio(self._sweep)

    @property
    def slo_margin(self) -> xr.DataArray:
        """Latency target minus total time [s]."""
        return sweeps.slo_margin(self._sweep)

    @property
    def max_violation(self) -> xr.DataArray:
        """Largest excess [1] over the latency, GPU and storage limits."""
        return sweeps.max_violation(self._sweep)

    @property
    def verdict(self) -> xr.DataArray:
        """0 fail, 1 throughput only, 2 latency only, 3 pass."""
        return sweeps.verdict(self._sweep)

    @property
    def sufficient(self) -> xr.DataArray:
        """Index of the simplest policy that meets the SLO, -1 where none does."""
        return sweeps.sufficient(self._sweep)

    def figure(self, value: str, of: str | None = None) -> xr.DataArray:
        """One figure of a cluster study on its axes; `of` chooses a statistic, tier, SLO or cause."""
        return studies.figure(self._ds, value, of)

    @property
    def regret(self) -> xr.DataArray:
        """Prompt tokens of a cluster study computed beyond those of the oracle, relative to it [1]."""
        return studies.regret(self._ds)

    def winner(self, over: str, value: str = "ttft", of: str | None = None) -> xr.DataArray:
        """Index along the axis `over` of a cluster study at which a figure is best, seeds averaged."""
        return studies.winner(self._ds, over, value, of)

    @property
    def plot(self) -> Any:
        """Figures: ``.heatmap()``, ``.success_rate()``, ``.sufficient()``."""
        return plots.figures(self._ds)

    def policy(self, name: str) -> xr.Dataset:
        """Return the results of one policy, by id (``performance_aware``) or by label (``IO-aware policy``)."""
        return self._ds.isel(policy=sweeps.policy_index(self._ds, name))

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row for each policy and point, and a column for each variable, modes by their names.

        Xarray's own ``to_dataframe`` adds a column for each of some forty coordinates, the same in every row.
        """
        return frame.to_dataframe(self._ds)

    def success_rate(self, over: Iterable[Hashable] = ("request_rate", "p95_seconds")) -> xr.DataArray:
        """Share [1] of the points along `over` that meet the SLO."""
        return sweeps.success_rate(self._sweep, over)

    def speedup(self, faster: str, slower: str) -> xr.DataArray:
        """How many times faster [1] the first policy is than the second: ``T_slower / T_faster``."""
        return sweeps.speedup(self._sweep, faster, slower)
