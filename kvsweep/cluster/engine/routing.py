"""What the gateway goes by when it chooses a prefill or colocated worker (README §2)."""

from __future__ import annotations

from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.engine.cache.pageset import add, routed_set, store
from kvsweep.cluster.engine.cache.tree import leading, leading_tiers
from kvsweep.cluster.policies.gateway import choose
from kvsweep.cluster.policies.gateway.cache_aware import is_unbalanced
from kvsweep.cluster.policies.gateway.least_loaded import choose as least_loaded
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.policy_functions import PolicyFunctions
from kvsweep.cluster.shared.state import State

CACHE_AWARE, KV_COST = 5, 6


def choose_prefill(s: State, r: int, room: int, ask: PolicyFunctions) -> int:
    """Return the prefill or colocated worker for request `r`, which needs `room` pages."""
    if s.run[col.GATEWAY] == CACHE_AWARE:
        w = _by_routed_sets(s, r, room)
        add(s, routed_set(s, w), r, s.request[r, col.FULL])
        return w
    if s.run[col.GATEWAY] >= KV_COST:
        _look_at_trees(s, r)
    return choose(s, col.PREFILL_SIDE, r, room, ask)


def _by_routed_sets(s: State, r: int, room: int) -> int:
    lightest = least_loaded(s, col.PREFILL_SIDE, r, room)
    if is_unbalanced(s, col.PREFILL_SIDE, room, lightest):
        return lightest
    best, most, smallest = -1, -1, -1
    for w in range(s.prefill.shape[0]):
        if s.prefill[w, col.POOL] < room:
            continue
        pages = leading(s, routed_set(s, w), r, s.request[r, col.FULL])
        if pages > most or (pages == most and s.prefill[w, col.LOAD] < s.prefill[best, col.LOAD]):
            best, most = w, pages
        if smallest < 0 or s.tree[routed_set(s, w), eng.SIZE] < s.tree[routed_set(s, smallest), eng.SIZE]:
            smallest = w
    return best if most * s.run[col.PAGE] > s.real[col.MATCH_RATIO] * s.request[r, col.PROMPT] else smallest


def _look_at_trees(s: State, r: int) -> None:
    """Fill in what each worker holds of the prompt of request `r`, by tier."""
    cap = (s.request[r, col.PROMPT] - 1) // s.run[col.PAGE]
    stored = leading(s, store(s), r, cap) if s.run[eng.STORE] == 1 else 0
    for w in range(s.prefill.shape[0]):
        device, there = leading_tiers(s, w, r, cap)
        s.prefill[w, col.ON_DEVICE], s.prefill[w, col.ON_HOST] = device, there - device
        s.prefill[w, col.ON_L3] = max(0, stored - there)
