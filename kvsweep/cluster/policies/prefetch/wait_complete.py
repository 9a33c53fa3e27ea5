"""A request waits until all has arrived."""

from __future__ import annotations

from kvsweep.cluster.shared import columns as col


def waits_until() -> int:
    """Return NEVER: only the prefetch ends it."""
    return col.NEVER
