"""L3: what workers fetch from it while requests wait, and what they write to it (README §9)."""

from __future__ import annotations

from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.engine.cache.kv import evict_host, host_lock, match, put_on_host_alone, take_host
from kvsweep.cluster.engine.cache.pageset import add, pin, store, touch
from kvsweep.cluster.engine.cache.tree import end_of, grow, leading, mark, walk
from kvsweep.cluster.engine.resources import reading_resource, writing_resource
from kvsweep.cluster.policies.prefetch import waits_until as stop
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.clock import copy_duration, pop, push, schedule
from kvsweep.cluster.shared.policy_functions import PolicyFunctions
from kvsweep.cluster.shared.state import State


def prefetch(s: State, w: int, r: int, ask: PolicyFunctions) -> None:
    """Begin to fetch what request `r`, which arrives at worker `w`, may find in L3."""
    own, request, page = s.prefill[w], s.request[r], s.run[col.PAGE]
    match(s, w, r, (request[col.PROMPT] - 1) // page)
    matched = own[eng.FOUND_DEVICE] + own[eng.FOUND_HOST]
    pages, node = request[col.FULL] - matched, own[eng.FOUND_NODE]
    if pages * page < s.run[eng.PREFETCH_LEAST] or (node >= 0 and s.node[node, eng.HOST] == 0):
        return
    if 5 * own[eng.FETCHING] >= 4 * (own[col.HOST_POOL] - own[col.POOL]):
        return
    if own[col.HOST_FREE] < pages:
        evict_host(s, w, pages, ask)
    if own[col.HOST_FREE] < pages:
        return
    request[eng.FETCH_SPACE] = 0
    _hold(s, w, r, pages)
    request[eng.FETCH_WANTED], request[eng.FETCH_FROM] = pages, matched
    request[eng.FETCH_FOUND] = request[eng.FETCH_DONE] = 0
    request[eng.FETCH_PINNED] = -1
    request[eng.FETCH_BEGAN] = s.run[col.NOW]
    request[eng.FETCH_STATE] = eng.FETCH_QUEUED
    push(s.prefill, w, eng.READS, s.request, eng.NEXT_FETCH, r)
    if own[eng.READING] < 0:
        _read_next(s, w)


def _hold(s: State, w: int, r: int, pages: int) -> None:
    """Take host pages for the prefetch of request `r`; fewer give them back."""
    take_host(s, w, pages)
    s.request[r, eng.FETCH_SPACE] += pages
    s.prefill[w, eng.FETCHING] += pages


def _read_next(s: State, w: int) -> None:
    """Begin the query of the next prefetch that is still wanted."""
    own = s.prefill[w]
    own[eng.READING] = -1
    schedule(s, reading_resource(s, w), col.NEVER)
    while own[eng.READS] >= 0:
        r = pop(s.prefill, w, eng.READS, s.request, eng.NEXT_FETCH)
        if s.request[r, eng.FETCH_STATE] != eng.FETCH_QUEUED:
            continue
        s.request[r, eng.FETCH_STATE] = eng.FETCH_ASKED
        own[eng.READING] = r
        batch, wanted = s.run[eng.BATCH_PAGES], s.request[r, eng.FETCH_WANTED]
        looked_at = min(-(-wanted // batch), _found(s, r) // batch + 1)
        schedule(s, reading_resource(s, w), s.run[col.NOW] + looked_at * s.run[eng.QUERY])
        return


def _found(s: State, r: int) -> int:
    """Return how many of the pages that request `r` wants L3 holds, in a row."""
    first, wanted = s.request[r, eng.FETCH_FROM], s.request[r, eng.FETCH_WANTED]
    return int(max(0, leading(s, store(s), r, first + wanted) - first))


def end_read(s: State, w: int) -> None:
    """End the query, or the batch, that worker `w` was at."""
    r = s.prefill[w, eng.READING]
    request = s.request[r]
    if request[eng.FETCH_STATE] == eng.FETCH_ASKED:
        _take_answer(s, w, r)
    elif request[eng.FETCH_STATE] == eng.FETCH_READ:
        request[eng.FETCH_DONE] += _batch(s, r)
        if request[eng.FETCH_DONE] == request[eng.FETCH_FOUND]:
            request[eng.FETCH_STATE] = eng.FETCH_ENDED
    if request[eng.FETCH_STATE] == eng.FETCH_READ:
        _read_batch(s, w, r)
    else:
        _read_next(s, w)


def _take_answer(s: State, w: int, r: int) -> None:
    """Go on with what L3 holds for request `r`, or give up."""
    request, found = s.request[r], _found(s, r)
    if found * s.run[col.PAGE] < s.run[eng.PREFETCH_LEAST]:
        _hold(s, w, r, -request[eng.FETCH_SPACE])
        request[eng.FETCH_STATE] = eng.FETCH_ENDED
        return
    _hold(s, w, r, found - request[eng.FETCH_SPACE])
    n = touch(s, store(s), r, request[eng.FETCH_FROM] + found)
    pin(s, n, 1)
    request[eng.FETCH_PINNED], request[eng.FETCH_FOUND] = n, found
    request[eng.FETCH_STATE] = eng.FETCH_READ


def _batch(s: State, r: int) -> int:
    return int(min(s.run[eng.BATCH_PAGES], s.request[r, eng.FETCH_FOUND] - s.request[r, eng.FETCH_DONE]))


def _read_batch(s: State, w: int, r: int) -> None:
    pages = _batch(s, r)
    payload = pages * s.run[col.PAGE_BYTES]
    s.prefill[w, eng.STORE_READS] += 1
    s.prefill[w, eng.STORE_READS_BEYOND] += int(not s.run[eng.READ_LOW] <= payload <= s.run[eng.READ_HIGH])
    s.prefill[w, eng.STORE_READ_PAGES] += pages
    time = copy_duration(s, s.run[eng.READ_SETUP], s.run[eng.READ_PER_BYTE], pages)
    schedule(s, reading_resource(s, w), s.run[col.NOW] + time)


def waits_until(s: State, r: int) -> int:
    """Return until when request `r` waits for its prefetch [ps], at most NEVER; -1 where it does not."""
    request = s.request[r]
    if not eng.FETCH_QUEUED <= request[eng.FETCH_STATE] < eng.FETCH_ENDED:
        return -1
    since, tokens = request[eng.FETCH_BEGAN] + s.run[eng.TIMEOUT], request[eng.FETCH_WANTED] * s.run[col.PAGE]
    return stop(s.run[eng.STOP_POLICY], since, tokens, s.run[eng.TIMEOUT_PER_KI])


def close(s: State, w: int, r: int) -> None:
    """End the prefetch of request `r`: what has arrived is on the host from now on, the rest is let go."""
    request = s.request[r]
    if request[eng.FETCH_STATE] < eng.FETCH_QUEUED or request[eng.FETCH_STATE] == eng.FETCH_CLOSED:
        return
    request[eng.FETCH_STATE] = eng.FETCH_CLOSED
    if request[eng.FETCH_DONE] > 0:
        _insert(s, w, r, request[eng.FETCH_FROM] + request[eng.FETCH_DONE])
    _hold(s, w, r, -request[eng.FETCH_SPACE])
    pin(s, request[eng.FETCH_PINNED], -1)


def _insert(s: State, w: int, r: int, end: int) -> None:
    """Insert what was fetched, up to page `end`, behind what the host holds of the prompt."""
    request = s.request[r]
    deepest = walk(s, w, r, end)
    mark(s, w, r, deepest, end)
    have = end_of(s, deepest)
    if have < request[eng.FETCH_FROM] or have >= end or (deepest >= 0 and s.node[deepest, eng.HOST] == 0):
        return
    n = grow(s, w, r, deepest, end)
    s.node[n, eng.HOST] = 1
    put_on_host_alone(s, n)
    # The node keeps these of the host pages the prefetch took.
    request[eng.FETCH_SPACE] -= end - have
    s.prefill[w, eng.FETCHING] -= end - have
    request[eng.STORED_BEGIN], request[eng.STORED_END] = have, end


def stored_hits(s: State, r: int, begin: int, end: int) -> int:
    """Return how many of the pages `begin` to `end` of request `r` its prefetch brought."""
    return int(max(0, min(end, s.request[r, eng.STORED_END]) - max(begin, s.request[r, eng.STORED_BEGIN])))


def queue_write(s: State, w: int, n: int) -> None:
    """Queue the write of what was copied of node `n` to the host."""
    host_lock(s, n, end_of(s, n) - s.node[n, eng.QUEUE_PAGES], 1)
    push(s.prefill, w, eng.WRITES, s.node, eng.QUEUE_AFTER, n)
    if s.prefill[w, eng.STORING] == 0:
        _write_next(s, w)


def _write_next(s: State, w: int) -> None:
    """Begin the next write that has something to write; end those before it."""
    own = s.prefill[w]
    own[eng.STORING] = 0
    schedule(s, writing_resource(s, w), col.NEVER)
    while own[eng.WRITES] >= 0:
        n = own[eng.WRITES]
        end = end_of(s, n)
        begin = max(end - s.node[n, eng.QUEUE_PAGES], leading(s, store(s), s.node[n, eng.CHAIN_OF], end))
        if _continues(s, n) and begin < end:
            own[eng.STORING] = 1
            own[eng.STORED_FROM] = begin
            _write(s, w, end - begin)
            return
        _end_write(s, w)


def _continues(s: State, n: int) -> bool:
    """Return whether L3 holds all pages before those that were copied of node `n`."""
    first = end_of(s, n) - s.node[n, eng.QUEUE_PAGES]
    return bool(leading(s, store(s), s.node[n, eng.CHAIN_OF], first) == first)


def _write(s: State, w: int, pages: int) -> None:
    payload = pages * s.run[col.PAGE_BYTES]
    s.prefill[w, eng.STORE_WRITES] += 1
    s.prefill[w, eng.STORE_WRITES_BEYOND] += int(not s.run[eng.STORE_LOW] <= payload <= s.run[eng.STORE_HIGH])
    s.prefill[w, eng.STORE_WRITTEN_PAGES] += pages
    setup = -(-pages // s.run[eng.BATCH_PAGES]) * s.run[eng.WRITE_SETUP]
    time = copy_duration(s, setup, s.run[eng.WRITE_PER_BYTE], pages)
    schedule(s, writing_resource(s, w), s.run[col.NOW] + time)


def _end_write(s: State, w: int) -> None:
    n = pop(s.prefill, w, eng.WRITES, s.node, eng.QUEUE_AFTER)
    host_lock(s, n, end_of(s, n) - s.node[n, eng.QUEUE_PAGES], -1)


def end_write(s: State, w: int) -> None:
    """End the write of worker `w`: its pages are in L3, as far as they still continue what it holds."""
    n = s.prefill[w, eng.WRITES]
    r, begin = s.node[n, eng.CHAIN_OF], s.prefill[w, eng.STORED_FROM]
    if leading(s, store(s), r, begin) == begin:
        add(s, store(s), r, end_of(s, n))
    _end_write(s, w)
    _write_next(s, w)
