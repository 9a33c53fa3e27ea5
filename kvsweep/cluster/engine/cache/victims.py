"""Which node goes when room is needed (README §3.4)."""

from __future__ import annotations

from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.policies.eviction import FIFO, GDSF, LFU, LRU, TLRU
from kvsweep.cluster.policies.eviction.belady import next_use
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.clock import prefill_duration
from kvsweep.cluster.shared.policy_functions import PolicyFunctions, Score
from kvsweep.cluster.shared.state import State


def device_victim(s: State, w: int, ask: PolicyFunctions) -> int:
    """Return the evictable device node of worker `w` without children there that goes next, -1 for none."""
    n = s.tree[w, eng.LIST_HEAD]
    if s.run[col.EVICTION] == LRU:  # the children of the least recently walked node come before it
        return int(n)
    if s.run[col.EVICTION] == col.FROM_FILE:
        return _by_file(s, col.DEVICE_TIER, n, ask)
    best = -1
    while n >= 0:
        if _may_leave(s, col.DEVICE_TIER, n) and (best < 0 or _is_before(s, n, best)):
            best = n
        n = s.node[n, eng.AFTER]
    _grow_older(s, w, best)
    return int(best)


def _grow_older(s: State, w: int, n: int) -> None:
    """Raise the age of a tier of worker `w` to the priority of its victim `n`."""
    if n >= 0 and s.run[col.EVICTION] == GDSF:
        age = col.AGE + s.node[n, eng.LIST]
        s.prefill[w, age] = max(s.prefill[w, age], s.node[n, eng.PRIORITY])


def host_victim(s: State, w: int, ask: PolicyFunctions) -> int:
    """Return the node of worker `w` on the host alone, without lock and children, that goes next, -1 for none."""
    n = s.tree[w, eng.HOST_HEAD]
    if s.run[col.EVICTION] == col.FROM_FILE:
        return _by_file(s, col.HOST_TIER, n, ask)
    best = -1
    while n >= 0:
        if _may_leave(s, col.HOST_TIER, n):
            if s.run[col.EVICTION] == LRU:
                return int(n)
            if best < 0 or _is_before(s, n, best):
                best = n
        n = s.node[n, eng.AFTER]
    _grow_older(s, w, best)
    return int(best)


def _is_before(s: State, n: int, best: int) -> bool:
    """Return whether node `n` goes before `best`, which comes before it in order of the last walk."""
    if s.run[col.EVICTION] == FIFO:
        return bool(s.node[n, eng.MADE] < s.node[best, eng.MADE])
    if s.run[col.EVICTION] == LFU:
        return bool(s.node[n, eng.HITS] < s.node[best, eng.HITS])
    if s.run[col.EVICTION] == GDSF:
        return bool(s.node[n, eng.PRIORITY] < s.node[best, eng.PRIORITY])
    if s.run[col.EVICTION] == TLRU:
        return _is_surplus(s, n) and not _is_surplus(s, best)
    return _next_use(s, n) > _next_use(s, best)


def _is_surplus(s: State, n: int) -> bool:
    """Return whether node `n` begins beyond what its conversations need (``tlru``)."""
    return bool(s.node[n, eng.BEGIN] * s.run[col.PAGE] >= s.node[n, eng.NODE_LONGEST] + s.run[col.BEYOND])


def _next_use(s: State, n: int) -> int:
    """Return the next request that will use the first page of node `n`; what answers add nobody uses."""
    segment = s.node[n, eng.NODE_SEGMENT]
    return next_use(s, segment) if segment < s.run[eng.N_SEGMENTS] else col.NEVER


def _may_leave(s: State, tier: int, n: int) -> bool:
    """Return whether node `n`, which nothing locks on the device, could go from `tier`."""
    if tier == col.DEVICE_TIER:
        return bool(s.node[n, eng.DEVICE_CHILDREN] == 0)
    return bool(s.node[n, eng.CHILD] < 0 and s.node[n, eng.HOST_LOCKS] == 0)


def _by_file(s: State, tier: int, n: int, ask: PolicyFunctions) -> int:
    """Return the node of least key from `n` on in order of the last walk; notes a fault where a key is no number."""
    best, least = -1, 0.0
    while n >= 0:
        if _may_leave(s, tier, n):
            key = answer(s, tier, n, ask.key)
            if key != key:
                s.run[col.FAULT] = col.FAULT_EVICTION
            if best < 0 or key < least:
                best, least = n, key
        n = s.node[n, eng.AFTER]
    return int(best)


def answer(s: State, tier: int, n: int, score: Score) -> float:
    """Return what `score` says of node `n`, which may go from `tier`, from the fields of `plugins.IdleContext`."""
    own, page = s.node[n], s.run[col.PAGE]
    begin, end = own[eng.BEGIN] * page, (own[eng.BEGIN] + own[eng.LENGTH]) * page
    return score(
        float(tier), float(own[eng.LENGTH]), float(own[eng.LENGTH]), float(own[eng.BEGIN]), float(own[eng.HITS]),
        own[eng.WALKED] * 1e-12, own[eng.MADE_AT] * 1e-12,
        prefill_duration(s, end - begin, end * end - begin * begin) * 1e-12, float(page), s.run[col.NOW] * 1e-12,
    )  # fmt: skip
