"""Roofline of the preset stacks. Run as ``python figures/roofline.py [FILE]``."""

import sys
from pathlib import Path

from matplotlib.figure import Figure

from kvsweep.catalog.load import load
from kvsweep.report.plots.deployments.roofline import figure
from kvsweep.report.plots.files import write_figure


def make() -> Figure:
    """Return the figure: computing, and computing plus reading, with what the parts cost."""
    catalog = load()
    return figure(catalog, list(catalog.stacks))


if __name__ == "__main__":
    write_figure(make(), Path(*sys.argv[1:2] or ["roofline.pdf"]), force=True)
