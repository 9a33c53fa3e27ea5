"""Time to first token by where the KV comes from. Run as ``python figures/sources.py [FILE]``."""

import sys
from pathlib import Path

from matplotlib.figure import Figure

from kvsweep.catalog import load
from kvsweep.cluster.inputs.roofline import roofline
from kvsweep.report.plots.files import write_figure
from kvsweep.report.plots.studies.pictures import sources_figure
from kvsweep.studies.shipped.pictures import sources


def make() -> Figure:
    """Return the figure: an 8B model on two H100, lone prompts, each simulated."""
    catalog = load()
    behind = catalog.disks["samsung-pm1743-7.68t"], catalog.links["rdma-400g"]
    return sources_figure(sources(roofline(catalog, "qwen3-8b", "h100-sxm", 2), *behind))


if __name__ == "__main__":
    write_figure(make(), Path(*sys.argv[1:2] or ["sources.pdf"]), force=True)
