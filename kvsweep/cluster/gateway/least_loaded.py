"""The worker with the fewest requests in progress."""

from __future__ import annotations

from kvsweep.cluster import columns as col
from kvsweep.cluster.gateway.candidates import workers
from kvsweep.cluster.state import State


def choose(s: State, side: int, r: int, room: int) -> int:
    """Return the candidate with the least load, the first of several."""
    table = workers(s, side)
    best = -1
    for w in range(table.shape[0]):
        if table[w, col.POOL] >= room and (best < 0 or table[w, col.LOAD] < table[best, col.LOAD]):
            best = w
    return best
