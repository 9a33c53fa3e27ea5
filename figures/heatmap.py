"""SLO heatmap: a long prompt on an H200, most of it cached. Run as ``python figures/heatmap.py [FILE]``."""

import sys
from pathlib import Path

from matplotlib.figure import Figure

import kvsweep
from kvsweep.report.plots.files import write_figure
from kvsweep.report.plots.sweeps.heatmap import figure


def make() -> Figure:
    """Return the figure: the verdict of each policy over request rate and latency target."""
    sweep = kvsweep.sweep(
        stack="h200", placement="auto", total_blocks=200_000, hit_ratio=0.8,
        request_rate="0.002:0.06:0.002", p95_seconds="5:60:5",
    )  # fmt: skip
    return figure(sweep, {})


if __name__ == "__main__":
    write_figure(make(), Path(*sys.argv[1:2] or ["heatmap.pdf"]), force=True)
