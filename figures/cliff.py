"""The cliff: latency and throughput as the working set outgrows memory. Run as ``python figures/cliff.py [FILE]``."""

import sys
from pathlib import Path

from matplotlib.figure import Figure

import kvsweep
from kvsweep.catalog import load
from kvsweep.cluster.inputs.roofline import roofline
from kvsweep.report.plots.files import write_figure
from kvsweep.report.plots.studies.pictures import cliff_figure
from kvsweep.studies.shipped.pictures import cliff_study, with_working_sets


def make() -> Figure:
    """Return the figure: 12 questions a second to 4 to 384 documents of 8000 tokens, without and with host memory."""
    study = cliff_study(roofline(load(), "qwen3-8b", "h100-sxm", 2), (0, 524_352, 2_097_152))
    return cliff_figure(with_working_sets(kvsweep.cluster.sweep(study)), 262_144)


if __name__ == "__main__":
    write_figure(make(), Path(*sys.argv[1:2] or ["cliff.pdf"]), force=True)
