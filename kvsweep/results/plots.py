"""Where ``ds.kvsweep.plot`` comes from: figures stand above results, and are offered to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xarray as xr

Figures = Callable[["xr.Dataset"], Any]
"""The class of ``ds.kvsweep.plot``."""
_offered: list[Callable[[], Figures]] = []


def offer(load: Callable[[], Figures]) -> None:
    """Have ``ds.kvsweep.plot`` be what `load` returns, which is asked when a figure is: it may load matplotlib."""
    _offered[:] = [load]


def figures(ds: xr.Dataset) -> Any:
    """Return the figures of `ds`."""
    (load,) = _offered
    return load()(ds)
