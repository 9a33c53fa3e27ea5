"""KV of a prefill or colocated worker: its tree on device and host, locks, eviction (README §3.2, §3.4, §3.6)."""

from __future__ import annotations

from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.engine.cache.tree import delete, end_of, enlist, mark, unlist, walk
from kvsweep.cluster.engine.cache.victims import answer, device_victim, host_victim
from kvsweep.cluster.engine.resources import SWEEP
from kvsweep.cluster.policies.retention.from_file import picoseconds
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.clock import due, host_pool, is_beyond, occupy, path_duration, schedule
from kvsweep.cluster.shared.policy_functions import PolicyFunctions
from kvsweep.cluster.shared.state import State


def match(s: State, w: int, r: int, limit: int) -> None:
    """Match the first `limit` pages of request `r` at worker `w`, which fills in its FOUND columns."""
    own = s.prefill[w]
    n = deepest = walk(s, w, r, limit)
    mark(s, w, r, deepest, limit)
    while n >= 0 and s.node[n, eng.DEVICE] == 0:
        n = s.node[n, eng.PARENT]
    own[eng.FOUND_NODE], own[eng.FOUND_DEEPEST] = n, deepest
    own[eng.FOUND_DEVICE] = end_of(s, n)
    own[eng.FOUND_HOST] = end_of(s, deepest) - own[eng.FOUND_DEVICE]


def lock(s: State, w: int, n: int) -> None:
    """Add a device lock to node `n` and all above it."""
    while n >= 0:
        s.node[n, eng.LOCKS] += 1
        if s.node[n, eng.LOCKS] == 1 and s.node[n, eng.LIST] == eng.ON_DEVICE_LIST:
            unlist(s, n)
            s.prefill[w, col.IDLE] -= s.node[n, eng.LENGTH]
        n = s.node[n, eng.PARENT]


def unlock(s: State, w: int, n: int) -> None:
    """Take a device lock off node `n` and all above it."""
    while n >= 0:
        s.node[n, eng.LOCKS] -= 1
        if s.node[n, eng.LOCKS] == 0:
            _show_evictable(s, w, n)
        n = s.node[n, eng.PARENT]


def host_lock(s: State, n: int, depth: int, change: int) -> None:
    """Add `change` host locks to node `n` and those above it down to page `depth` of the chain."""
    while n >= 0 and s.node[n, eng.BEGIN] >= depth:
        s.node[n, eng.HOST_LOCKS] += change
        if change < 0:
            pull_sweep(s, n)
        n = s.node[n, eng.PARENT]


def put_on_device(s: State, w: int, n: int) -> None:
    """Make node `n`, unlocked, resident on the device; its pages were counted as held before."""
    if s.node[n, eng.LIST] >= 0:
        unlist(s, n)
    s.node[n, eng.DEVICE] = 1
    parent = s.node[n, eng.PARENT]
    if parent >= 0:
        s.node[parent, eng.DEVICE_CHILDREN] += 1
    if s.node[n, eng.LOCKS] == 0:
        _show_evictable(s, w, n)


def _show_evictable(s: State, w: int, n: int) -> None:
    enlist(s, eng.ON_DEVICE_LIST, n)
    s.prefill[w, col.IDLE] += s.node[n, eng.LENGTH]
    pull_sweep(s, n)


def put_on_host_alone(s: State, n: int) -> None:
    """Note that node `n` is on the host alone from now on."""
    enlist(s, eng.ON_HOST_LIST, n)
    pull_sweep(s, n)


def evict(s: State, w: int, tokens: int, ask: PolicyFunctions) -> None:
    """Evict whole nodes from the device until `tokens` are freed or nothing is left; copies add to the stall."""
    left, copied = tokens, 0
    while left > 0:
        n = device_victim(s, w, ask)
        if n < 0:
            break
        left -= s.node[n, eng.LENGTH] * s.run[col.PAGE]
        s.prefill[w, col.EVICTED] += s.node[n, eng.LENGTH]
        copied += _leave_device(s, w, n, ask)
    if copied > 0:
        s.prefill[w, eng.STALL] += path_duration(s, col.D2H, copied)
        s.prefill[w, col.WRITTEN_PAGES] += copied
        s.prefill[w, col.D2HS] += 1
        s.prefill[w, col.D2HS_BEYOND] += is_beyond(s, col.DOMAIN_PAYLOAD + col.D2H, copied * s.run[col.PAGE_BYTES])


def _leave_device(s: State, w: int, n: int, ask: PolicyFunctions) -> int:
    """Free the device pages of node `n`; return how many were copied to the host for it."""
    length, copied = s.node[n, eng.LENGTH], 0
    if s.node[n, eng.HOST] == 0 and s.run[eng.TAKES_EVICTED] == 1:
        if s.prefill[w, col.HOST_FREE] < length:
            evict_host(s, w, length, ask)
        if s.prefill[w, col.HOST_FREE] >= length:
            take_host(s, w, length)
            s.node[n, eng.HOST] = 1
            copied = length
    _off_device(s, w, n)
    if s.node[n, eng.HOST] == 1:
        put_on_host_alone(s, n)
    else:
        _drop_below(s, w, n)
        _remove(s, n)
    return int(copied)


def _off_device(s: State, w: int, n: int) -> None:
    length, parent = s.node[n, eng.LENGTH], s.node[n, eng.PARENT]
    unlist(s, n)
    s.node[n, eng.DEVICE] = 0
    s.prefill[w, col.IDLE] -= length
    give_device(s, w, length)
    if parent >= 0:
        s.node[parent, eng.DEVICE_CHILDREN] -= 1


def _drop_below(s: State, w: int, n: int) -> None:
    """Delete what hangs below node `n`, on the host alone."""
    while s.node[n, eng.CHILD] >= 0:
        m = s.node[n, eng.CHILD]
        while s.node[m, eng.CHILD] >= 0:
            m = s.node[m, eng.CHILD]
        drop_from_host(s, w, m)


def evict_host(s: State, w: int, pages: int, ask: PolicyFunctions) -> None:
    """Evict whole nodes from the host until `pages` are freed or nothing is left."""
    left = pages
    while left > 0:
        n = host_victim(s, w, ask)
        if n < 0:
            break
        left -= s.node[n, eng.LENGTH]
        s.prefill[w, col.HOST_EVICTED] += s.node[n, eng.LENGTH]
        drop_from_host(s, w, n)


def drop_from_host(s: State, w: int, n: int) -> None:
    """Delete node `n`, which is on the host alone and has no children."""
    take_host(s, w, -s.node[n, eng.LENGTH])
    _remove(s, n)


def _remove(s: State, n: int) -> None:
    """Delete node `n`; what is above it may have outlived its own time for it (a retention policy of a file)."""
    parent = s.node[n, eng.PARENT]
    delete(s, n)
    if parent >= 0 and s.run[col.RETENTION] == col.FROM_FILE:
        pull_sweep(s, parent)


def take_host(s: State, w: int, pages: int) -> None:
    """Take host pages, or give them back if `pages` is below 0."""
    s.prefill[w, col.HOST_FREE] -= pages
    occupy(s, host_pool(w), pages, s.run[col.NOW])


def take_device(s: State, w: int, pages: int) -> None:
    """Take free device pages."""
    s.prefill[w, col.FREE] -= pages
    occupy(s, host_pool(w) - 1, pages, s.run[col.NOW])


def give_device(s: State, w: int, pages: int) -> None:
    """Give device pages back."""
    take_device(s, w, -pages)


def pull_sweep(s: State, n: int) -> None:
    """Have the checks of the retention policy take place in time for node `n`."""
    ttl = _time_to_live(s, n)
    if s.run[col.RETENTION] == 0 or ttl == col.NEVER:
        return
    check, now = s.run[col.CHECK], s.run[col.NOW]
    tick = max(-(-(s.node[n, eng.WALKED] + ttl) // check), now // check + 1) * check
    if tick < due(s, SWEEP):
        schedule(s, SWEEP, tick)


def _time_to_live(s: State, n: int) -> int:
    """Return how long no walk may pass node `n` before it goes; -1 where that is to be asked at the next check [ps]."""
    return int(s.node[n, eng.NODE_TTL] if s.run[col.RETENTION] == col.FROM_FILE else s.run[col.TTL])


def sweep(s: State, ask: PolicyFunctions) -> None:
    """Delete what no walk has passed for long enough at every worker, and plan the next check."""
    schedule(s, SWEEP, col.NEVER)
    if s.run[col.LEFT] == 0:
        return
    if s.run[col.RETENTION] == col.FROM_FILE:
        _sweep_as_asked(s, ask)
        return
    for w in range(s.prefill.shape[0]):
        while _sweep_list(s, w, eng.ON_HOST_LIST) or _sweep_list(s, w, eng.ON_DEVICE_LIST):
            pass
        for kind in range(2):
            n = s.tree[w, eng.LIST_HEAD + 2 * kind]
            if n >= 0:
                pull_sweep(s, n)


def _sweep_as_asked(s: State, ask: PolicyFunctions) -> None:
    """Ask for the nodes that have not had a check since they may go, then sweep, and plan by the nodes at the ends."""
    for w in range(s.prefill.shape[0]):
        for kind in range(2):
            n = s.tree[w, eng.LIST_HEAD + 2 * kind]
            while n >= 0:
                if s.node[n, eng.NODE_TTL] < 0:
                    s.node[n, eng.NODE_TTL] = picoseconds(s, answer(s, kind, n, ask.ttl))
                n = s.node[n, eng.AFTER]
        while _sweep_list(s, w, eng.ON_HOST_LIST) or _sweep_list(s, w, eng.ON_DEVICE_LIST):
            pass
        for kind in range(2):
            n = s.tree[w, eng.LIST_HEAD + 2 * kind]
            while n >= 0:
                if s.node[n, eng.CHILD] < 0 and s.node[n, eng.HOST_LOCKS] == 0:
                    pull_sweep(s, n)
                n = s.node[n, eng.AFTER]


def _sweep_list(s: State, w: int, kind: int) -> bool:
    """Delete the expired nodes without children of a list; return whether there were any."""
    n, found = s.tree[w, eng.LIST_HEAD + 2 * kind], False
    in_order = s.run[col.RETENTION] != col.FROM_FILE
    while n >= 0:
        is_due = s.node[n, eng.WALKED] + _time_to_live(s, n) <= s.run[col.NOW]
        if in_order and not is_due:  # those after it were walked later
            break
        after = s.node[n, eng.AFTER]
        if is_due and s.node[n, eng.CHILD] < 0 and s.node[n, eng.HOST_LOCKS] == 0:
            found = True
            _expire(s, w, n)
        n = after
    return found


def _expire(s: State, w: int, n: int) -> None:
    length = s.node[n, eng.LENGTH]
    if s.node[n, eng.HOST] == 1:
        s.prefill[w, col.HOST_EXPIRED] += length
        take_host(s, w, -length)
    if s.node[n, eng.DEVICE] == 1:
        s.prefill[w, col.EXPIRED] += length
        _off_device(s, w, n)
    delete(s, n)
