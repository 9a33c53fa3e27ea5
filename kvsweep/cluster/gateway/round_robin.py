"""Workers in turn."""

from __future__ import annotations

from kvsweep.cluster import columns as col
from kvsweep.cluster.gateway.candidates import workers
from kvsweep.cluster.state import State


def choose(s: State, side: int, r: int, room: int) -> int:
    """Return the first candidate at or after the turn, which moves behind it."""
    table = workers(s, side)
    n = table.shape[0]
    w = s.turn[side] % n
    while table[w, col.POOL] < room:
        w = (w + 1) % n
    s.turn[side] = w + 1
    return int(w)
