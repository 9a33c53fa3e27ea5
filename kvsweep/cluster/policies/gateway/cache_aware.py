"""The prefill worker that holds most of the prompt, while loads are in balance; decode workers by load."""

from __future__ import annotations

from kvsweep.cluster.policies.gateway.candidates import load, n_workers, pool
from kvsweep.cluster.policies.gateway.least_loaded import choose as least_loaded
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.state import State


def choose(s: State, side: int, r: int, room: int) -> int:
    """Return the candidate with the longest visible prefix if that is long enough, else the least loaded one."""
    lightest = least_loaded(s, side, r, room)
    if side == col.DECODE_SIDE or is_unbalanced(s, side, room, lightest):
        return lightest
    best, most = -1, -1
    for w in range(s.prefill.shape[0]):
        if s.prefill[w, col.POOL] < room:
            continue
        pages = s.prefill[w, col.ON_DEVICE] + s.prefill[w, col.ON_HOST]
        if pages > most or (pages == most and s.prefill[w, col.LOAD] < s.prefill[best, col.LOAD]):
            best, most = w, pages
    return best if most > s.real[col.MATCH_RATIO] * s.request[r, col.FULL] else lightest


def is_unbalanced(s: State, side: int, room: int, lightest: int) -> bool:
    """Return whether the loads of the candidates differ by more than the gateway lets pass; one is the `lightest`."""
    least = most = load(s, side, lightest)
    for w in range(n_workers(s, side)):
        if pool(s, side, w) >= room:
            most = max(most, load(s, side, w))
    return bool(most - least > s.run[col.BALANCE_REQUESTS] and most > s.real[col.BALANCE_RATIO] * least)
