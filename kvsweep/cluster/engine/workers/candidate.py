"""A waiting request as a candidate of the batch that is being built (README §4, step 5)."""

from __future__ import annotations

from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.engine.cache.kv import (
    evict,
    give_device,
    host_lock,
    lock,
    match,
    put_on_device,
    take_device,
    unlock,
)
from kvsweep.cluster.engine.cache.l3 import close, stored_hits
from kvsweep.cluster.engine.cache.tree import end_of, split
from kvsweep.cluster.engine.chunks import take_chunk
from kvsweep.cluster.policies.retrieval import retrieved_pages
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.clock import push
from kvsweep.cluster.shared.policy_functions import PolicyFunctions
from kvsweep.cluster.shared.prefill_step import execute
from kvsweep.cluster.shared.state import State

TAKEN, CAPACITY, BUDGET, NONSENSE = range(4)
"""What becomes of a candidate; the last three end the round."""


def consider(s: State, w: int, r: int, ask: PolicyFunctions) -> int:
    """Take request `r` into the batch of worker `w`, if that goes."""
    own, request, page = s.prefill[w], s.request[r], s.run[col.PAGE]
    if s.run[eng.STORE] == 1:
        close(s, w, r)
    match(s, w, r, (request[eng.TOKENS] - 1) // page)
    if own[eng.FOUND_HOST] * page < s.run[eng.LOAD_LEAST]:
        own[eng.FOUND_HOST] = 0
    split = (own[eng.FOUND_DEVICE], own[eng.FOUND_HOST], -(-request[eng.TOKENS] // page))
    load = retrieved_pages(s, w, r, split, ask)
    if load < 0:
        s.run[col.SUSPECT] = r
        return NONSENSE
    extend = request[eng.TOKENS] - own[eng.FOUND_DEVICE] * page
    if extend + reserve(s, r) >= room(s, w):
        return CAPACITY
    if up(extend - load * page, page) >= own[eng.REM_INPUT] and own[col.N_STEP] > 0:
        return BUDGET
    lock(s, w, own[eng.FOUND_NODE])
    if own[eng.FOUND_HOST] > 0:
        host_lock(s, own[eng.FOUND_DEEPEST], own[eng.FOUND_DEVICE], 1)
    answer = _take_matched(s, w, r, load, ask)
    if own[eng.FOUND_HOST] > 0:
        host_lock(s, own[eng.FOUND_DEEPEST], own[eng.FOUND_DEVICE], -1)
    unlock(s, w, own[eng.FOUND_NODE])
    return answer


def _take_matched(s: State, w: int, r: int, load: int, ask: PolicyFunctions) -> int:
    """Take request `r`, whose match is locked, into the batch, if that goes; `load` pages are to be loaded."""
    own, request, page = s.prefill[w], s.request[r], s.run[col.PAGE]
    extend = request[eng.TOKENS] - own[eng.FOUND_DEVICE] * page
    if extend + reserve(s, r) >= room(s, w):
        return CAPACITY
    node, in_front = own[eng.FOUND_NODE], s.run[col.FRONT] == 1
    own[eng.LOADED] = 0
    if load > 0:
        node = _load_own(s, w, load, ask) if in_front else _load_back(s, w, load, ask)
    loaded = own[eng.LOADED]
    extend -= loaded * page
    tokens = extend if up(extend, page) <= own[eng.REM_CHUNK] else own[eng.REM_CHUNK] // page * page
    if tokens == 0 or (up(extend, page) >= own[eng.REM_INPUT] and own[col.N_STEP] > 0):
        if in_front:  # nobody else knows what was loaded
            give_device(s, w, loaded)
            own[eng.STEP_LOADED] -= loaded
        return BUDGET
    lock(s, w, node)
    request[eng.LOCKED] = node
    request[col.TO_DO] = extend
    _place(s, w, r, in_front)
    own[col.USED_SLOTS] += 1 - s.run[eng.COLOCATED]
    if request[col.ADMITTED] < 0:
        request[col.ADMITTED] = request[col.READY] = s.run[col.NOW]
        request[col.MATCHED], request[col.RETRIEVED] = own[eng.FOUND_DEVICE], loaded
        first = own[eng.FOUND_DEVICE] + (own[eng.FOUND_HOST] - loaded if in_front else 0)
        request[eng.STORED_HITS] = stored_hits(s, r, first, first + loaded)
    take(s, w, r, tokens)
    return TAKEN


def _place(s: State, w: int, r: int, in_front: bool) -> None:
    """Place request `r` behind what it shares; what was loaded into its own pages is a gap in what it executes."""
    own, request, page = s.prefill[w], s.request[r], s.run[col.PAGE]
    loaded = own[eng.LOADED]
    request[eng.HELD_PAGES] = 0
    request[col.GAP_BEGIN] = request[col.GAP_END] = -1
    request[eng.COVERED] = own[eng.FOUND_DEVICE] + (0 if in_front else loaded)
    position = request[eng.COVERED] * page
    if in_front and loaded > 0:
        end = own[eng.FOUND_DEVICE] + own[eng.FOUND_HOST]
        request[col.GAP_BEGIN], request[col.GAP_END] = (end - loaded) * page, end * page
        request[eng.HELD_PAGES] = loaded
        request[eng.GAP_NODE], request[eng.GAP_DEPTH] = own[eng.FOUND_DEEPEST], own[eng.FOUND_DEVICE]
        host_lock(s, own[eng.FOUND_DEEPEST], own[eng.FOUND_DEVICE], 1)
        if position == request[col.GAP_BEGIN]:
            position = request[col.GAP_END]
    request[col.POSITION] = request[col.NEXT_POSITION] = position


def _load_own(s: State, w: int, pages: int, ask: PolicyFunctions) -> int:
    """Load the last `pages` host pages of the match into pages of the request; return the deepest node it shares."""
    own = s.prefill[w]
    if own[col.FREE] < pages:
        evict(s, w, pages * s.run[col.PAGE], ask)
    if own[col.FREE] >= pages:
        take_device(s, w, pages)
        own[eng.LOADED] = pages
        own[eng.STEP_LOADED] += pages
    return int(own[eng.FOUND_NODE])


def _load_back(s: State, w: int, pages: int, ask: PolicyFunctions) -> int:
    """Load the first `pages` host pages of the match; return the deepest node of the match on the device then."""
    own = s.prefill[w]
    if own[col.FREE] < pages:
        evict(s, w, pages * s.run[col.PAGE], ask)
    if own[col.FREE] < pages:
        return int(own[eng.FOUND_NODE])
    end = own[eng.FOUND_DEVICE] + pages
    n = own[eng.FOUND_DEEPEST]
    while s.node[n, eng.BEGIN] >= end:
        n = s.node[n, eng.PARENT]
    if end_of(s, n) > end:
        n = split(s, n, end - s.node[n, eng.BEGIN])
    take_device(s, w, pages)
    deepest = n
    while n >= 0 and s.node[n, eng.DEVICE] == 0:
        put_on_device(s, w, n)
        n = s.node[n, eng.PARENT]
    lock(s, w, deepest)
    k = take_chunk(s)
    s.chunk[k, col.CHUNK_REQUEST] = deepest
    push(s.prefill, w, eng.LOADS, s.chunk, col.CHUNK_NEXT, k)
    own[eng.LOADED] = pages
    own[eng.STEP_LOADED] += pages
    return int(deepest)


def take(s: State, w: int, r: int, tokens: int) -> None:
    """Give request `r` its share of the step being formed [token]."""
    own, request, page = s.prefill[w], s.request[r], s.run[col.PAGE]
    request[eng.TAKEN] = tokens
    execute(s, w, r, tokens)
    charged = up(tokens, page)
    own[eng.REM_INPUT] -= charged
    own[eng.REM_CHUNK] -= charged
    own[eng.OFF] += charged
    if request[col.TO_DO] == 0:
        own[eng.OFF] += reserve(s, r)
    else:
        own[col.PARTIAL] = r
    s.prefill[w, s.run[eng.STEP_LIST] + own[col.N_STEP]] = r
    own[col.N_STEP] += 1


def reserve(s: State, r: int) -> int:
    """Return the tokens that request `r` is taken to generate at this worker."""
    if s.run[eng.COLOCATED] == 0:
        return 1
    return int(min(s.request[r, col.OUTPUT] - s.request[r, eng.GENERATED], 4096))


def room(s: State, w: int) -> int:
    """Return the tokens that the batch being built may still ask for."""
    own = s.prefill[w]
    return int((own[col.FREE] + own[col.IDLE]) * s.run[col.PAGE] - own[eng.OFF])


def up(tokens: int, page: int) -> int:
    """Return `tokens` rounded up to whole pages."""
    return -(-tokens // page) * page
