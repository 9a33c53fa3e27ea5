"""The order of the waiting queue by longest prefix (README §4.1)."""

from __future__ import annotations

from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.engine.cache.kv import match
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.state import State

MOST = 128
"""Waiting requests up to which they are sorted."""
ALIKE = 32
"""Tokens that requests with no longer device match may have in common before all but the first are put off [token]."""


def sort_waiting(s: State, w: int) -> bool:
    """Sort the waiting queue of worker `w`: most on the device first, last what will find there what others compute."""
    own = s.prefill[w]
    count, r = 0, own[col.WAITING]
    while r >= 0 and count <= MOST:
        count += 1
        r = s.request[r, col.NEXT_PREFILL]
    if count > MOST:
        return False
    r = own[col.WAITING]
    while r >= 0:
        match(s, w, r, (s.request[r, eng.TOKENS] - 1) // s.run[col.PAGE])
        s.request[r, eng.RANK] = own[eng.FOUND_DEVICE]
        if own[eng.FOUND_DEVICE] * s.run[col.PAGE] <= ALIKE and _is_like_an_earlier(s, w, r):
            s.request[r, eng.RANK] = -1
        r = s.request[r, col.NEXT_PREFILL]
    _sort(s, w)
    return True


def _is_like_an_earlier(s: State, w: int, r: int) -> bool:
    """Return whether a request before `r` that was not put off begins as it does."""
    pages = max(1, -(-ALIKE // s.run[col.PAGE]))
    other = s.prefill[w, col.WAITING]
    while other != r:
        if s.request[other, eng.RANK] >= 0 and _begin_alike(s, r, other, pages):
            return True
        other = s.request[other, col.NEXT_PREFILL]
    return False


def _begin_alike(s: State, r: int, other: int, pages: int) -> bool:
    if min(s.request[r, col.FULL], s.request[other, col.FULL]) < pages:
        return False
    place, its = s.request[r, col.CHAIN], s.request[other, col.CHAIN]
    found = 0
    while found < pages and s.chain[place, col.SEGMENT] == s.chain[its, col.SEGMENT]:
        found += s.chain[place, col.SEGMENT_PAGES]
        place += 1
        its += 1
    return found >= pages


def _sort(s: State, w: int) -> None:
    """Insert each waiting request behind those of no less rank."""
    request = s.request
    head = tail = -1
    r = s.prefill[w, col.WAITING]
    while r >= 0:
        after = request[r, col.NEXT_PREFILL]
        if head < 0 or request[head, eng.RANK] < request[r, eng.RANK]:
            request[r, col.NEXT_PREFILL] = head
            head = r
        else:
            before = head
            if request[tail, eng.RANK] >= request[r, eng.RANK]:
                before = tail
            while (
                request[before, col.NEXT_PREFILL] >= 0
                and request[request[before, col.NEXT_PREFILL], eng.RANK] >= request[r, eng.RANK]
            ):
                before = request[before, col.NEXT_PREFILL]
            request[r, col.NEXT_PREFILL] = request[before, col.NEXT_PREFILL]
            request[before, col.NEXT_PREFILL] = r
        if request[r, col.NEXT_PREFILL] < 0:
            tail = r
        r = after
    s.prefill[w, col.WAITING], s.prefill[w, col.WAITING_TAIL] = head, tail
