"""Restore against recompute on six GPUs. Run as ``python figures/violins.py [FILE]``."""

import sys
from pathlib import Path

from matplotlib.figure import Figure

from kvsweep.catalog.load import load
from kvsweep.report.plots.deployments.violins import figure
from kvsweep.report.plots.files import write_figure


def make() -> Figure:
    """Return the figure: 1764 deployments of each GPU and its prefill curve."""
    return figure(load())


if __name__ == "__main__":
    write_figure(make(), Path(*sys.argv[1:2] or ["violins.pdf"]), force=True)
