"""The checker of the engine's core: what must hold after every instant. Slow; for tests and ``--check``."""

from __future__ import annotations

from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.engine.cache.tree import end_of, find
from kvsweep.cluster.engine.workers.batch import generated, member
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.state import State

RULES = (
    "",
    "the device pool of a worker holds what it holds once, within its capacity",
    "the host pool of a worker holds what it holds once, within its capacity",
    "evictable pages are those of device nodes that nothing locks",
    "what is resident is closed towards the root",
    "a tree's lists are in order of the last walk, children first",
    "what a request shares is locked, and what it does not is its own",
    "hit and computed tokens add up to the prompt",
    "a decode worker holds the pages of its requests, within its pool",
    "a decode batch is as its requests are",
)
"""What a broken rule, by its number, says should have held."""


def broken_rule(s: State) -> int:
    """Return the number of a rule that does not hold, 0 if all do."""
    found = _nodes(s)
    w = 0
    while found == 0 and w < s.prefill.shape[0]:
        found = _pools(s, w)
        w += 1
    r = 0
    while found == 0 and r < s.request.shape[0]:
        found = _request(s, r)
        if found != 0:
            s.run[col.SUSPECT] = r
        r += 1
    d = 0
    while found == 0 and d < s.decode.shape[0]:
        found = _batch(s, d)
        d += 1
    return found


def _nodes(s: State) -> int:
    for n in range(s.run[eng.N_NODES]):
        tree = s.node[n, eng.TREE]
        if tree < 0:
            continue
        if s.node[n, eng.LENGTH] < 1 or find(s, tree, s.node[n, eng.NODE_SEGMENT], s.node[n, eng.OFFSET]) != n:
            return 4
        if tree < s.prefill.shape[0]:
            found = _node(s, n)
            if found != 0:
                return found
    return 0


def _node(s: State, n: int) -> int:
    device, host, parent = s.node[n, eng.DEVICE], s.node[n, eng.HOST], s.node[n, eng.PARENT]
    if s.node[n, eng.LOCKS] < 0 or s.node[n, eng.HOST_LOCKS] < 0 or device + host == 0:
        return 4
    if parent >= 0:
        if s.node[n, eng.BEGIN] != end_of(s, parent) or s.node[parent, eng.TREE] != s.node[n, eng.TREE]:
            return 4
        if device > s.node[parent, eng.DEVICE] or s.node[n, eng.LOCKS] > s.node[parent, eng.LOCKS]:
            return 4
        if s.run[eng.TAKES_EVICTED] == 0 and host > s.node[parent, eng.HOST]:
            return 4
    elif s.node[n, eng.BEGIN] != 0:
        return 4
    if s.node[n, eng.LOCKS] > 0 and device == 0:
        return 4
    listed = eng.ON_HOST_LIST if device == 0 else (eng.ON_DEVICE_LIST if s.node[n, eng.LOCKS] == 0 else -1)
    return 0 if s.node[n, eng.LIST] == listed else 5


def _pools(s: State, w: int) -> int:
    own = s.prefill[w]
    device, host, idle = _held(s, w)
    held, host_held = s.real[col.N_REAL + 4 * w], s.real[col.N_REAL + 4 * w + 2]
    if own[col.FREE] < 0 or device + own[col.FREE] != own[col.POOL] or held != device:
        return 1
    if own[col.HOST_FREE] < 0 or host + own[col.HOST_FREE] != own[col.HOST_POOL] or host_held != host:
        return 2
    if idle != own[col.IDLE]:
        return 3
    return 0 if _is_ordered(s, w, eng.ON_DEVICE_LIST) and _is_ordered(s, w, eng.ON_HOST_LIST) else 5


def _held(s: State, w: int) -> tuple[int, int, int]:
    """Return the pages worker `w` holds on device and host, and those of them that can be evicted from the device."""
    device = host = idle = 0
    for n in range(s.run[eng.N_NODES]):
        if s.node[n, eng.TREE] == w:
            device += s.node[n, eng.DEVICE] * s.node[n, eng.LENGTH]
            host += s.node[n, eng.HOST] * s.node[n, eng.LENGTH]
            if s.node[n, eng.DEVICE] == 1 and s.node[n, eng.LOCKS] == 0:
                idle += s.node[n, eng.LENGTH]
    for r in range(s.request.shape[0]):
        if s.request[r, col.AT_PREFILL] == w:
            if s.run[eng.COLOCATED] == 0 or s.request[r, eng.COMPLETE] == 0:
                device += s.request[r, eng.HELD_PAGES]
            host += max(0, s.request[r, eng.FETCH_SPACE])
    if s.run[eng.COLOCATED] == 1:
        for place in range(s.decode[w, col.RUNNING]):
            r = member(s, w, place)
            tokens = s.request[r, col.PROMPT] + generated(s, w, r) - 1
            device += -(-tokens // s.run[col.PAGE]) - s.request[r, eng.COVERED]
    return int(device), int(host), int(idle)


def _is_ordered(s: State, w: int, kind: int) -> bool:
    n = s.tree[w, eng.LIST_HEAD + 2 * kind]
    while n >= 0:
        after = s.node[n, eng.AFTER]
        if after >= 0:
            later, number = s.node[after, eng.WALK], s.node[n, eng.WALK]
            if later < number or (later == number and s.node[after, eng.BEGIN] >= s.node[n, eng.BEGIN]):
                return False
        n = after
    return True


def _request(s: State, r: int) -> int:
    request, page = s.request[r], s.run[col.PAGE]
    if request[col.ADMITTED] < 0:
        return 0
    if (request[col.MATCHED] + request[col.RETRIEVED]) * page >= request[col.PROMPT] or request[col.TO_DO] < 0:
        return 7
    if request[eng.ANSWERED] >= 0:
        return 0 if request[col.TO_DO] == 0 and request[eng.HELD_PAGES] == 0 else 6
    if s.run[eng.COLOCATED] == 1:
        return _sharer(s, r)
    if _sharer(s, r) != 0:
        return 6
    reached = -(-request[col.NEXT_POSITION] // page)
    if request[col.GAP_BEGIN] >= 0 and request[col.NEXT_POSITION] <= request[col.GAP_BEGIN]:
        reached += (request[col.GAP_END] - request[col.GAP_BEGIN]) // page
    return 0 if request[eng.HELD_PAGES] == reached - request[eng.COVERED] else 6


def _sharer(s: State, r: int) -> int:
    n = s.request[r, eng.LOCKED]
    if n < 0:
        return 0 if s.request[r, eng.COVERED] == 0 or s.request[r, eng.LAST_TOKEN] >= 0 else 6
    return 0 if end_of(s, n) == s.request[r, eng.COVERED] and s.node[n, eng.LOCKS] >= 1 else 6


def _batch(s: State, d: int) -> int:
    own, page = s.decode[d], s.run[col.PAGE]
    context = stale = held = 0
    for place in range(own[col.RUNNING]):
        r = member(s, d, place)
        stored = s.request[r, col.PROMPT] + generated(s, d, r) - 1
        context += stored
        held += -(-stored // page)
        stale += int(s.request[r, col.FINISH_STEP] <= own[col.STEP])
    if context != own[col.CONTEXT] or stale != own[eng.N_STALE] or own[col.RUNNING] > own[col.MAX_RUNNING]:
        return 9
    if s.run[eng.COLOCATED] == 1:
        return 0
    for place in range(own[eng.N_FRESH]):
        r = member(s, d, own[col.RUNNING] + place)
        held += -(-(s.request[r, col.PROMPT] + max(0, s.request[r, eng.GENERATED] - 1)) // page)
    for queue in (col.JOINING, eng.TRANSFER):
        r = s.decode[d, queue]
        while r >= 0:
            held += -(-(s.request[r, col.PROMPT] + max(0, s.request[r, eng.GENERATED] - 1)) // page)
            r = s.request[r, col.NEXT_DECODE]
    return 0 if held == own[col.HELD] <= own[col.POOL] else 8
