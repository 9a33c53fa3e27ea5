"""What requests leave in the tree of their worker, and copies of it to the host (README §3.3, §3.5)."""

from __future__ import annotations

from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.engine.cache.kv import evict_host, give_device, lock, put_on_device, take_host, unlock
from kvsweep.cluster.engine.cache.tree import end_of, grow, mark, walk
from kvsweep.cluster.engine.resources import copying_resource
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.clock import is_beyond, path_duration, pop, push, schedule
from kvsweep.cluster.shared.policy_functions import PolicyFunctions
from kvsweep.cluster.shared.state import State


def insert(s: State, w: int, r: int, pages: int, counting: int, ask: PolicyFunctions) -> None:
    """Insert the first `pages` pages of request `r`; it shares them from then on."""
    request = s.request[r]
    if pages > 0:
        deepest = walk(s, w, r, pages)
        mark(s, w, r, deepest, pages)
        _pass(s, w, r, deepest, counting)
        if end_of(s, deepest) < pages:
            deepest = grow(s, w, r, deepest, pages)
            s.node[deepest, eng.HITS] = counting
            request[eng.HELD_PAGES] -= s.node[deepest, eng.LENGTH]
            put_on_device(s, w, deepest)
        lock(s, w, deepest)
        unlock(s, w, request[eng.LOCKED])
        request[eng.LOCKED] = deepest
        request[eng.COVERED] = pages
    if counting == 1 and s.run[col.THRESHOLD] < col.NEVER:
        _back_up_path(s, w, request[eng.LOCKED], ask)


def let_go(s: State, w: int, r: int) -> None:
    """Take the lock of request `r` off and free its own pages."""
    request = s.request[r]
    unlock(s, w, request[eng.LOCKED])
    request[eng.LOCKED] = -1
    give_device(s, w, request[eng.HELD_PAGES])
    request[eng.HELD_PAGES] = 0


def _pass(s: State, w: int, r: int, n: int, counting: int) -> None:
    """Pass node `n` and all above it: what request `r` has of them, too, is freed, or becomes resident."""
    request = s.request[r]
    covered = request[eng.COVERED]
    while n >= 0:
        if s.node[n, eng.DEVICE] == 1:
            s.node[n, eng.HITS] += counting
            twice = end_of(s, n) - max(s.node[n, eng.BEGIN], covered)
            if twice > 0:
                request[eng.HELD_PAGES] -= twice
                give_device(s, w, twice)
        else:
            request[eng.HELD_PAGES] -= s.node[n, eng.LENGTH]
            put_on_device(s, w, n)
        n = s.node[n, eng.PARENT]


def _back_up_path(s: State, w: int, deepest: int, ask: PolicyFunctions) -> None:
    """Back up the nodes down to `deepest`, from the root, that have the hits for it and whose parent is on the host."""
    n = deepest
    while n >= 0:  # to the highest that is not on the host; those above it are
        if s.node[n, eng.HOST] == 0 and (s.node[n, eng.PARENT] < 0 or s.node[s.node[n, eng.PARENT], eng.HOST] == 1):
            break
        n = s.node[n, eng.PARENT]
    while n >= 0:
        if s.node[n, eng.HITS] < s.run[col.THRESHOLD] or not _back_up(s, w, n, ask) or n == deepest:
            return  # those below have a parent that is not on the host
        m = deepest
        while s.node[m, eng.PARENT] != n:
            m = s.node[m, eng.PARENT]
        n = m


def _back_up(s: State, w: int, n: int, ask: PolicyFunctions) -> bool:
    """Begin to copy node `n` to the host; False where there is no room."""
    length = s.node[n, eng.LENGTH]
    if s.prefill[w, col.HOST_FREE] < length:
        evict_host(s, w, length, ask)
    if s.prefill[w, col.HOST_FREE] < length:
        return False
    take_host(s, w, length)
    s.node[n, eng.HOST] = 1
    lock(s, w, n)
    s.node[n, eng.QUEUE_PAGES] = length
    push(s.prefill, w, eng.COPYING, s.node, eng.QUEUE_AFTER, n)
    if s.prefill[w, eng.COPYING] == n:
        _start_copy(s, w, n)
    return True


def end_copy(s: State, w: int) -> None:
    """End the copy of worker `w` that is due; its lock stays until acks are polled."""
    schedule(s, copying_resource(s, w), col.NEVER)
    n = pop(s.prefill, w, eng.COPYING, s.node, eng.QUEUE_AFTER)
    s.prefill[w, col.WRITTEN_PAGES] += s.node[n, eng.QUEUE_PAGES]
    push(s.prefill, w, eng.COPIED, s.node, eng.QUEUE_AFTER, n)
    if s.prefill[w, eng.COPYING] >= 0:
        _start_copy(s, w, s.prefill[w, eng.COPYING])


def _start_copy(s: State, w: int, n: int) -> None:
    pages = s.node[n, eng.QUEUE_PAGES]
    s.prefill[w, col.D2HS] += 1
    s.prefill[w, col.D2HS_BEYOND] += is_beyond(s, col.DOMAIN_PAYLOAD + col.D2H, pages * s.run[col.PAGE_BYTES])
    schedule(s, copying_resource(s, w), s.run[col.NOW] + path_duration(s, col.D2H, pages))
