"""Eviction policies, one module each: which idle page goes when room is needed.

A policy names the key by which idle entries without resident children are compared, the least first; ``lru`` needs
none, as the list of idle entries is in order of release and its head never has resident children.
"""

from __future__ import annotations

from kvsweep.cluster import columns as col
from kvsweep.cluster.eviction.fifo import key as fifo_key
from kvsweep.cluster.eviction.lfu import key as lfu_key
from kvsweep.cluster.state import State

POLICIES = ("lru", "fifo", "lfu")
"""Ids; the place of an id is its code in the core."""


def victim(s: State, w: int, tier: int) -> int:
    """Return the entry of prefill worker `w` whose last resident page of `tier` goes next."""
    policy = s.run[col.EVICTION]
    best = e = s.prefill[w, col.IDLE_LIST + 2 * tier]
    if policy == 0:
        return int(best)
    least = col.NEVER
    while e >= 0:
        if s.entry[e, col.CHILDREN + tier] == 0:
            key = fifo_key(s, tier, e) if policy == 1 else lfu_key(s, tier, e)
            if key < least:
                best, least = e, key
        e = s.entry[e, col.AFTER + tier]
    return int(best)
