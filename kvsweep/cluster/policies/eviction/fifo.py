"""First in, first out: the segment that began to be resident first."""

from __future__ import annotations

from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.state import State


def key(s: State, tier: int, e: int) -> int:
    """Return when the first page of entry `e` became visible in `tier` [ps]."""
    return int(s.entry[e, col.BORN + tier])
