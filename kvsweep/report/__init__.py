"""What people look at: reports and figures made from results and costs."""

from __future__ import annotations

from typing import Any

from kvsweep.results import plots

__all__ = ["write_comparison", "write_report"]


def __getattr__(name: str) -> Any:
    if name == "write_report":  # importing the package stays free of numpy and xarray
        from kvsweep.report.write import write_report

        return write_report
    if name == "write_comparison":
        from kvsweep.report.comparison.page import write_comparison

        return write_comparison
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _figures() -> Any:
    """Return the class of ``ds.kvsweep.plot``, which loads matplotlib."""
    from kvsweep.report.plots.namespace import PlotNamespace

    return PlotNamespace


plots.offer(_figures)
