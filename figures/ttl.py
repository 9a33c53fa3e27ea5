"""Idle TTLs on top of LRU on coding sessions. Run as ``python figures/ttl.py [FILE]``.

The paper found for 60 s 86.9 % (8B) and 92.9 % (32B) less KV held over time, and +7.4 % and +3.8 % mean TTFT; its
traces and profiles are not public. What generated sessions on assumed rooflines give stands in
kvsweep/studies/README.md.
"""

import sys
from pathlib import Path

from matplotlib.figure import Figure

from kvsweep.report.plots.files import write_figure
from kvsweep.report.plots.studies.paper_studies import retention_figure
from kvsweep.studies.shipped.published import coding_trace, profiles
from kvsweep.studies.shipped.retention import retention


def make() -> Figure:
    """Return the figure: time to first token against the KV held, a point a TTL."""
    return retention_figure(retention(profiles({}), coding_trace(None), range(5)))


if __name__ == "__main__":
    write_figure(make(), Path(*sys.argv[1:2] or ["ttl.pdf"]), force=True)
