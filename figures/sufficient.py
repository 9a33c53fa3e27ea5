"""Simplest sufficient policy over link bandwidth and load. Run as ``python figures/sufficient.py [FILE]``."""

import sys
from pathlib import Path

from matplotlib.figure import Figure

import kvsweep
from kvsweep.report.plots.files import write_figure
from kvsweep.report.plots.sweeps.sufficient import figure


def make() -> Figure:
    """Return the figure: which policy is enough for a link and a request rate."""
    sweep = kvsweep.sweep(
        stack="h200", placement="auto", total_blocks=100_000, hit_ratio=0.8,
        link_bandwidth="log:1e9:1e12:n60", request_rate="log:0.01:1:n120", p95_seconds=60,
    )  # fmt: skip
    return figure(sweep, {}, x="request_rate", y="link_bandwidth")


if __name__ == "__main__":
    write_figure(make(), Path(*sys.argv[1:2] or ["sufficient.pdf"]), force=True)
