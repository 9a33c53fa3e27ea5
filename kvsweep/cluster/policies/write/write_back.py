"""Pages are copied when the device evicts them, and not before."""

from __future__ import annotations

from kvsweep.cluster.policies.write.none import NEVER_USED

TAKES_EVICTED = True


def uses_needed(threshold: int) -> int:
    """Return a number of uses that is never reached."""
    return NEVER_USED
