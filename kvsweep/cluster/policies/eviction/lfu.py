"""Least frequently used: the segment with the fewest admissions so far."""

from __future__ import annotations

from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.state import State


def key(s: State, tier: int, e: int) -> int:
    """Return the number of admissions that contained entry `e`, the same for every tier."""
    return int(s.entry[e, col.USES])
