"""Belady's oracle: the segment whose next use is farthest in the trace; a bound, as no cache knows the future."""

from __future__ import annotations

from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.state import State


def key(s: State, e: int) -> int:
    """Return the next request that will use entry `e`, negated; the same for every tier."""
    return -next_use(s, s.entry[e, col.OF_SEGMENT])


def next_use(s: State, segment: int) -> int:
    """Return the next request that will use `segment`, NEVER for none."""
    first = s.run[col.ORACLE] + segment
    at = s.lists[first]
    while s.lists[at] != col.NEVER and _is_past(s, s.lists[at]):
        at += 1
    # Nobody's use comes back, so that each of them is passed over once in a run.
    s.lists[first] = at
    return int(s.lists[at])


def _is_past(s: State, r: int) -> bool:
    return bool(s.request[r, col.ADMITTED] >= 0 or s.request[r, col.REJECTED] == 1)
