"""Pages are copied when they are used a second time: what is used once only may never be worth it."""

from __future__ import annotations

TAKES_EVICTED = False


def uses_needed(threshold: int) -> int:
    """Return 2, whatever the cluster file says."""
    return 2
