"""The worker with the fewest requests in progress."""

from __future__ import annotations

from kvsweep.cluster.policies.gateway.candidates import load, n_workers, pool
from kvsweep.cluster.shared.state import State


def choose(s: State, side: int, r: int, room: int) -> int:
    """Return the candidate with the least load, the first of several."""
    best = -1
    for w in range(n_workers(s, side)):
        if pool(s, side, w) >= room and (best < 0 or load(s, side, w) < load(s, side, best)):
            best = w
    return best
