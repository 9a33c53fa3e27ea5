"""Hit ratio against host memory: every eviction policy, oracle included. ``python figures/capacity.py [FILE]``."""

import sys
from pathlib import Path

from matplotlib.figure import Figure

import kvsweep
from kvsweep.catalog import load
from kvsweep.cluster.inputs.roofline import roofline
from kvsweep.report.plots.files import write_figure
from kvsweep.report.plots.studies.pictures import capacity_figure
from kvsweep.studies.shipped.pictures import bounds, capacity_study, worker_cluster
from kvsweep.trace.generate import generate


def make() -> Figure:
    """Return the figure: questions to 400 documents on one prefill worker."""
    trace = {"generate": "qa", "sessions": 400, "label": "questions to 400 documents"}
    profile, cluster = roofline(load(), "qwen3-8b", "h100-sxm", 2), worker_cluster(2, 262_144, 0)
    ds = kvsweep.cluster.sweep(capacity_study(profile, cluster, trace, [0, *(262_144 * 2**i for i in range(5))]))
    limit = bounds(generate("qa", 400, 0), [262_144 + int(tokens) for tokens in ds["host_tokens"].values])
    return capacity_figure(ds, limit.lru, limit.infinite, profile.kv_bytes_per_token)


if __name__ == "__main__":
    write_figure(make(), Path(*sys.argv[1:2] or ["capacity.pdf"]), force=True)
