"""Which node goes when room is needed (README §3.4)."""

from __future__ import annotations

from kvsweep.cluster import columns as col
from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.state import State


def device_victim(s: State, w: int) -> int:
    """Return the evictable device node of worker `w` without children there that goes next, -1 for none."""
    n = s.tree[w, eng.LIST_HEAD]
    if s.run[col.EVICTION] == 0:  # the children of the least recently walked node come before it
        return int(n)
    best = -1
    while n >= 0:
        if s.node[n, eng.DEVICE_CHILDREN] == 0 and (best < 0 or _is_before(s, n, best)):
            best = n
        n = s.node[n, eng.AFTER]
    return int(best)


def host_victim(s: State, w: int) -> int:
    """Return the node of worker `w` on the host alone, without lock and children, that goes next, -1 for none."""
    n = s.tree[w, eng.HOST_HEAD]
    best = -1
    while n >= 0:
        if s.node[n, eng.CHILD] < 0 and s.node[n, eng.HOST_LOCKS] == 0:
            if s.run[col.EVICTION] == 0:
                return int(n)
            if best < 0 or _is_before(s, n, best):
                best = n
        n = s.node[n, eng.AFTER]
    return int(best)


def _is_before(s: State, n: int, best: int) -> bool:
    """Return whether node `n` goes before `best`, which comes before it in order of the last walk."""
    if s.run[col.EVICTION] == 1:
        return bool(s.node[n, eng.MADE] < s.node[best, eng.MADE])
    return bool(s.node[n, eng.HITS] < s.node[best, eng.HITS])
