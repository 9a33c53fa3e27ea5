"""Workers in turn."""

from __future__ import annotations

from kvsweep.cluster.policies.gateway.candidates import n_workers, pool
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.state import State


def choose(s: State, side: int, r: int, room: int) -> int:
    """Return the first candidate at or after the turn, which moves behind it."""
    n = n_workers(s, side)
    w = s.run[col.TURN + side] % n
    while pool(s, side, w) < room:
        w = (w + 1) % n
    s.run[col.TURN + side] = w + 1
    return int(w)
