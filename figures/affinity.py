"""Session affinity against round robin on coding sessions. Run as ``python figures/affinity.py [FILE]``.

The paper found 50.3 % (8B) and 47.7 % (32B) less uncached input, and -0.23 % and +1.21 % mean E2E; its traces and
profiles are not public. What generated sessions on assumed rooflines give, and why E2E moves more, stands in
kvsweep/studies/README.md.
"""

import sys
from pathlib import Path

from matplotlib.figure import Figure

from kvsweep.report.plots.files import write_figure
from kvsweep.report.plots.studies.paper_studies import affinity_figure
from kvsweep.studies.shipped.affinity import affinity
from kvsweep.studies.shipped.published import coding_trace, profiles


def make() -> Figure:
    """Return the figure: what affinity changes for each session and for all requests."""
    return affinity_figure(affinity(profiles({}), coding_trace(None), range(5)))


if __name__ == "__main__":
    write_figure(make(), Path(*sys.argv[1:2] or ["affinity.pdf"]), force=True)
