"""Eviction policies, one module each: which idle page goes when room is needed.

A policy names the key by which idle entries without resident children are compared, the least first; ``lru`` needs
none, as the list of idle entries is in order of release and its head never has resident children. Ties go by it.
A core takes that head itself for ``lru``, asks for the `victim` of all others, and has ``gdsf`` set its priority at
each release: a call that passes the whole state costs more than ``lru`` does.
"""

from __future__ import annotations

from kvsweep.cluster.policies.eviction.belady import key as belady_key
from kvsweep.cluster.policies.eviction.fifo import key as fifo_key
from kvsweep.cluster.policies.eviction.from_file import victim as by_file
from kvsweep.cluster.policies.eviction.gdsf import grow_older
from kvsweep.cluster.policies.eviction.gdsf import key as gdsf_key
from kvsweep.cluster.policies.eviction.lfu import key as lfu_key
from kvsweep.cluster.policies.eviction.tlru import victim as tail_first
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.policy_functions import PolicyFunctions
from kvsweep.cluster.shared.state import State

POLICIES = ("lru", "fifo", "lfu", "gdsf", "belady", "tlru")
"""Ids; the place of an id is its code in the core."""
LRU, FIFO, LFU, GDSF, BELADY, TLRU = range(6)


def victim(s: State, w: int, tier: int, ask: PolicyFunctions) -> int:
    """Return the entry of prefill worker `w` whose last resident page of `tier` goes next; not for ``lru``."""
    if s.run[col.EVICTION] == col.FROM_FILE:
        return by_file(s, w, tier, ask)
    if s.run[col.EVICTION] == TLRU:
        return tail_first(s, w, tier)
    e = s.prefill[w, col.IDLE_LIST + 2 * tier]
    least, best = col.NEVER, -1
    while e >= 0:
        if s.entry[e, col.CHILDREN + tier] == 0:
            key = _key(s, tier, e)
            if key < least:
                best, least = e, key
        e = s.entry[e, col.AFTER + tier]
    if s.run[col.EVICTION] == GDSF:
        grow_older(s, w, tier, best)
    return int(best)


def _key(s: State, tier: int, e: int) -> int:
    policy = s.run[col.EVICTION]
    if policy == FIFO:
        return fifo_key(s, tier, e)
    if policy == LFU:
        return lfu_key(s, tier, e)
    return gdsf_key(s, tier, e) if policy == GDSF else belady_key(s, e)
