"""All permutations of parts. Run as ``python figures/permutations.py [FILE]``."""

import sys
from pathlib import Path

from matplotlib.figure import Figure

from kvsweep.catalog.load import load
from kvsweep.report.plots.deployments.permutations import figure
from kvsweep.report.plots.files import write_figure


def make() -> Figure:
    """Return the figure: the spread of 1764 stacks beside six compute lines."""
    return figure(load())


if __name__ == "__main__":
    write_figure(make(), Path(*sys.argv[1:2] or ["permutations.pdf"]), force=True)
