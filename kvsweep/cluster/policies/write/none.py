"""Nothing is copied to the host."""

from __future__ import annotations

from kvsweep.cluster.shared import columns as col

NEVER_USED = col.NEVER
"""More uses than any page has [requests]."""
TAKES_EVICTED = False


def uses_needed(threshold: int) -> int:
    """Return a number of uses that is never reached."""
    return NEVER_USED
