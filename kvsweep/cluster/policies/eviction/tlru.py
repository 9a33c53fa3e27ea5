"""Tail-optimised LRU: what no conversation needs for its next uncached part to be short goes before all else."""

from __future__ import annotations

from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.state import State


def surplus(s: State, e: int, resident: int) -> int:
    """Return how many of the `resident` first pages of entry `e` its conversations can do without [page]."""
    page = s.run[col.PAGE]
    needed = -(-max(0, s.entry[e, col.LONGEST] + s.run[col.BEYOND]) // page) - s.entry[e, col.DEPTH]
    return int(min(resident, max(0, resident - needed)))


def victim(s: State, w: int, tier: int) -> int:
    """Return the entry of worker `w` with surplus pages that was released first, else that which was."""
    first = s.prefill[w, col.IDLE_LIST + 2 * tier]
    e = first
    while e >= 0:
        # Descendants of surplus pages are surplus, too, and were released before, so that they come first.
        if surplus(s, e, s.entry[e, col.DEVICE + tier]) > 0:
            return int(e)
        e = s.entry[e, col.AFTER + tier]
    return int(first)


def most(s: State, tier: int, e: int) -> int:
    """Return the most pages that victim `e` gives before all are compared anew."""
    resident = s.entry[e, col.DEVICE + tier]
    beyond = surplus(s, e, resident)
    return int(beyond if beyond > 0 else resident)
