"""Pages are copied as they are used, from the use on that the cluster file says."""

from __future__ import annotations

TAKES_EVICTED = False


def uses_needed(threshold: int) -> int:
    """Return `threshold`."""
    return threshold
