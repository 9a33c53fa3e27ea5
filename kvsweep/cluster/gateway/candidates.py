"""What gateway policies look at: which workers could hold a request, and how busy they are."""

from __future__ import annotations

from kvsweep.cluster import columns as col
from kvsweep.cluster.state import Ints, State


def workers(s: State, side: int) -> Ints:
    """Return the workers of `side`."""
    return s.prefill if side == col.PREFILL_SIDE else s.decode


def count(s: State, side: int, room: int) -> int:
    """Return the number of candidates, workers whose pool has at least `room` pages."""
    table = workers(s, side)
    found = 0
    for w in range(table.shape[0]):
        if table[w, col.POOL] >= room:
            found += 1
    return found


def nth(s: State, side: int, room: int, number: int) -> int:
    """Return candidate `number`, counted from 0."""
    table = workers(s, side)
    for w in range(table.shape[0]):
        if table[w, col.POOL] >= room:
            if number == 0:
                return w
            number -= 1
    return -1
