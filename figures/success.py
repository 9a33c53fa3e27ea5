"""Success rate against hit ratio, the long prompt of the heatmap. Run as ``python figures/success.py [FILE]``."""

import sys
from pathlib import Path

from matplotlib.figure import Figure

import kvsweep
from kvsweep.report.plots.files import write_figure
from kvsweep.report.plots.sweeps.success import figure


def make() -> Figure:
    """Return the figure: the share of rates and latency targets that each policy meets."""
    sweep = kvsweep.sweep(
        stack="h200", placement="auto", total_blocks=200_000, hit_ratio="0:1:0.1",
        request_rate="0.002:0.06:0.002", p95_seconds="5:60:5",
    )  # fmt: skip
    return figure(sweep, {})


if __name__ == "__main__":
    write_figure(make(), Path(*sys.argv[1:2] or ["success.pdf"]), force=True)
