"""kvsweep: sweep and simulate LLM KV-cache hierarchies.

Names are imported when first used, so that ``import kvsweep`` and ``kvsweep --help`` stay quick.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import kvsweep.report  # noqa: F401  (offers ds.kvsweep.plot)
from kvsweep.version import __version__ as __version__

if TYPE_CHECKING:
    from kvsweep import catalog, cluster, policies
    from kvsweep.grid.simulate import simulate
    from kvsweep.grid.sweep import sweep
    from kvsweep.results.netcdf import open_dataset as open

__all__ = ["catalog", "cluster", "open", "policies", "simulate", "sweep"]

_LAZY = {
    "open": ("kvsweep.results.netcdf", "open_dataset"),
    "simulate": ("kvsweep.grid.simulate", "simulate"),
    "sweep": ("kvsweep.grid.sweep", "sweep"),
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        module, attribute = _LAZY[name]
        value = getattr(importlib.import_module(module), attribute)
    elif name in ("catalog", "cluster", "policies"):
        value = importlib.import_module(f"kvsweep.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


if "xarray" in sys.modules:  # a notebook that has xarray already gets ds.kvsweep at once
    importlib.import_module("kvsweep.results.accessor")
