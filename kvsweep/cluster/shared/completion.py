"""Requests that are over, and the end of a run."""

from __future__ import annotations

from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.arrivals import follow
from kvsweep.cluster.shared.state import State


def leave(s: State, r: int) -> None:
    """Count request `r` as over, finished or rejected; the next of its session may now arrive."""
    s.run[col.LEFT] -= 1
    if s.request[r, col.FOLLOWER] >= 0:
        follow(s, r)


def reject(s: State, r: int) -> None:
    """Refuse request `r`, which no worker could ever hold."""
    s.request[r, col.REJECTED] = 1
    leave(s, r)


def end(s: State) -> int:
    """Return how a run ends in which nothing is due any more: DONE, or STUCK, the first unfinished one the suspect."""
    if s.run[col.LEFT] == 0:
        return col.DONE
    for r in range(s.request.shape[0]):
        if s.request[r, col.FINISHED] < 0 and s.request[r, col.REJECTED] != 1:
            s.run[col.SUSPECT] = r
            break
    return col.STUCK
