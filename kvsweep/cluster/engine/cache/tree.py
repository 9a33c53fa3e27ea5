"""Radix trees over the pages of chains, each node a run of pages (README §3.1, §3.2).

A node is found by where it begins: its first page is a page of a segment, and a page has one path to the root. Lists
of nodes are in order of their last walk, children before their parents, so that their first has no children.
"""

from __future__ import annotations

from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.policies.eviction import GDSF
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.clock import prefill_duration
from kvsweep.cluster.shared.state import State


def bucket_of(s: State, tree: int, segment: int, offset: int) -> int:
    """Return the bucket of the node of `tree` that begins at page `offset` of `segment`."""
    return int((segment + tree * 100_003 + offset * 50_021) & (s.bucket.shape[0] - 1))


def find(s: State, tree: int, segment: int, offset: int) -> int:
    """Return the node of `tree` that begins at page `offset` of `segment`, -1 for none."""
    n = s.bucket[bucket_of(s, tree, segment, offset)]
    while n >= 0 and (
        s.node[n, eng.NODE_SEGMENT] != segment or s.node[n, eng.OFFSET] != offset or s.node[n, eng.TREE] != tree
    ):
        n = s.node[n, eng.BUCKET_AFTER]
    return int(n)


def file(s: State, n: int) -> None:
    """Let `find` find node `n`."""
    b = bucket_of(s, s.node[n, eng.TREE], s.node[n, eng.NODE_SEGMENT], s.node[n, eng.OFFSET])
    s.node[n, eng.BUCKET_AFTER] = s.bucket[b]
    s.bucket[b] = n


def unfile(s: State, n: int) -> None:
    """Let `find` find node `n` no more."""
    b = bucket_of(s, s.node[n, eng.TREE], s.node[n, eng.NODE_SEGMENT], s.node[n, eng.OFFSET])
    if s.bucket[b] == n:
        s.bucket[b] = s.node[n, eng.BUCKET_AFTER]
        return
    m = s.bucket[b]
    while s.node[m, eng.BUCKET_AFTER] != n:
        m = s.node[m, eng.BUCKET_AFTER]
    s.node[m, eng.BUCKET_AFTER] = s.node[n, eng.BUCKET_AFTER]


def end_of(s: State, n: int) -> int:
    """Return the pages of the chain up to the end of node `n`, 0 for none."""
    return int(s.node[n, eng.BEGIN] + s.node[n, eng.LENGTH]) if n >= 0 else 0


def walk(s: State, tree: int, r: int, limit: int) -> int:
    """Return the deepest node on the first `limit` pages of request `r`, split where they end in it; -1 for none."""
    place, end = s.request[r, col.CHAIN], s.request[r, col.CHAIN_END]
    offset = depth = 0
    deepest = -1
    while depth < limit and place < end:
        n = find(s, tree, s.chain[place, col.SEGMENT], offset)
        if n < 0:
            break
        common = min(_common(s, n, place, end), limit - depth)
        if common < s.node[n, eng.LENGTH]:
            n = split(s, n, common)
        deepest = n
        depth += common
        offset += common
        while place < end and offset >= s.chain[place, col.SEGMENT_PAGES]:
            offset -= s.chain[place, col.SEGMENT_PAGES]
            place += 1
    return deepest


def _common(s: State, n: int, place: int, end: int) -> int:
    """Return how many pages of node `n` the chain that passes `place` at its begin has."""
    length, at, offset = s.node[n, eng.LENGTH], s.node[n, eng.PLACE], s.node[n, eng.OFFSET]
    if at == place:
        return int(length)
    found = 0
    while place < end and s.chain[at, col.SEGMENT] == s.chain[place, col.SEGMENT]:
        found += s.chain[at, col.SEGMENT_PAGES] - offset
        if found >= length:
            return int(length)
        offset = 0
        place += 1
        at += 1
    return int(found)


def leading(s: State, tree: int, r: int, limit: int) -> int:
    """Return how many of the first `limit` pages of request `r` are in `tree`, changing nothing."""
    return leading_tiers(s, tree, r, limit)[1]


def leading_tiers(s: State, tree: int, r: int, limit: int) -> tuple[int, int]:
    """Return how many of the first `limit` pages of request `r` are on the device, and in `tree`; nothing changes."""
    place, end = s.request[r, col.CHAIN], s.request[r, col.CHAIN_END]
    offset = depth = device = 0
    while depth < limit and place < end:
        n = find(s, tree, s.chain[place, col.SEGMENT], offset)
        if n < 0:
            break
        common = min(_common(s, n, place, end), limit - depth)
        depth += common
        if s.node[n, eng.DEVICE] == 1:
            device = depth
        if common < s.node[n, eng.LENGTH]:
            break
        offset += common
        while place < end and offset >= s.chain[place, col.SEGMENT_PAGES]:
            offset -= s.chain[place, col.SEGMENT_PAGES]
            place += 1
    return int(device), int(depth)


def split(s: State, n: int, pages: int) -> int:
    """Return a new parent of node `n` that takes its first `pages`; `n` keeps the rest, and its name."""
    front = _fresh(s)
    for column in range(eng.N_NODE):
        s.node[front, column] = s.node[n, column]
    s.node[front, eng.LENGTH] = pages
    s.node[front, eng.CHILD] = n
    s.node[front, eng.DEVICE_CHILDREN] = s.node[n, eng.DEVICE]
    _replace_child(s, n, front)
    unfile(s, n)
    s.node[n, eng.PARENT] = front
    s.node[n, eng.CHILD_AFTER] = s.node[n, eng.CHILD_BEFORE] = -1
    s.node[n, eng.BEGIN] += pages
    s.node[n, eng.LENGTH] -= pages
    _move_on(s, n, pages)
    file(s, front)
    file(s, n)
    if s.node[n, eng.LIST] >= 0:
        _link_after(s, s.node[n, eng.LIST], n, front)
    return front


def _move_on(s: State, n: int, pages: int) -> None:
    place, offset = s.node[n, eng.PLACE], s.node[n, eng.OFFSET] + pages
    while offset >= s.chain[place, col.SEGMENT_PAGES]:
        offset -= s.chain[place, col.SEGMENT_PAGES]
        place += 1
    s.node[n, eng.PLACE], s.node[n, eng.OFFSET] = place, offset
    s.node[n, eng.NODE_SEGMENT] = s.chain[place, col.SEGMENT]


def _replace_child(s: State, n: int, front: int) -> None:
    before, after, parent = s.node[n, eng.CHILD_BEFORE], s.node[n, eng.CHILD_AFTER], s.node[n, eng.PARENT]
    if before >= 0:
        s.node[before, eng.CHILD_AFTER] = front
    elif parent >= 0:
        s.node[parent, eng.CHILD] = front
    if after >= 0:
        s.node[after, eng.CHILD_BEFORE] = front


def grow(s: State, tree: int, r: int, parent: int, end: int) -> int:
    """Return a new node of the pages of request `r` from the end of `parent` to `end`, on no tier yet."""
    n = _fresh(s)
    for column in range(eng.N_NODE):
        s.node[n, column] = 0
    begin = end_of(s, parent)
    s.node[n, eng.TREE], s.node[n, eng.CHAIN_OF] = tree, r
    s.node[n, eng.BEGIN], s.node[n, eng.LENGTH] = begin, end - begin
    if parent >= 0 and s.node[parent, eng.CHAIN_OF] == r:
        s.node[n, eng.PLACE], s.node[n, eng.OFFSET] = s.node[parent, eng.PLACE], s.node[parent, eng.OFFSET]
        _move_on(s, n, s.node[parent, eng.LENGTH])
    else:
        s.node[n, eng.PLACE] = s.request[r, col.CHAIN]
        _move_on(s, n, begin)
    for column in (eng.CHILD, eng.CHILD_AFTER, eng.CHILD_BEFORE, eng.LIST, eng.QUEUE_AFTER):
        s.node[n, column] = -1
    s.node[n, eng.PARENT] = parent
    if parent >= 0:
        first = s.node[parent, eng.CHILD]
        s.node[n, eng.CHILD_AFTER] = first
        if first >= 0:
            s.node[first, eng.CHILD_BEFORE] = n
        s.node[parent, eng.CHILD] = n
    s.node[n, eng.WALK] = s.node[n, eng.MADE] = s.tree[tree, eng.WALKS]
    s.node[n, eng.NODE_LONGEST] = max(s.request[r, col.PROMPT], end * s.run[col.PAGE])
    s.node[n, eng.MADE_AT] = s.run[col.NOW]
    s.node[n, eng.WALKED] = s.run[col.NOW]
    file(s, n)
    return n


def delete(s: State, n: int) -> None:
    """Take node `n`, which has no children, from its tree."""
    unfile(s, n)
    before, after, parent = s.node[n, eng.CHILD_BEFORE], s.node[n, eng.CHILD_AFTER], s.node[n, eng.PARENT]
    if before >= 0:
        s.node[before, eng.CHILD_AFTER] = after
    elif parent >= 0:
        s.node[parent, eng.CHILD] = after
    if after >= 0:
        s.node[after, eng.CHILD_BEFORE] = before
    if s.node[n, eng.LIST] >= 0:
        unlist(s, n)
    s.node[n, eng.BUCKET_AFTER] = s.run[eng.FREE_NODE]
    s.node[n, eng.TREE] = -1
    s.run[eng.FREE_NODE] = n


def _fresh(s: State) -> int:
    n = s.run[eng.FREE_NODE]
    if n >= 0:
        s.run[eng.FREE_NODE] = s.node[n, eng.BUCKET_AFTER]
        return int(n)
    s.run[eng.N_NODES] += 1
    return int(s.run[eng.N_NODES] - 1)


def unlist(s: State, n: int) -> None:
    """Take node `n` off its list."""
    tree, head = s.node[n, eng.TREE], eng.LIST_HEAD + 2 * s.node[n, eng.LIST]
    before, after = s.node[n, eng.BEFORE], s.node[n, eng.AFTER]
    if before < 0:
        s.tree[tree, head] = after
    else:
        s.node[before, eng.AFTER] = after
    if after < 0:
        s.tree[tree, head + 1] = before
    else:
        s.node[after, eng.BEFORE] = before
    s.node[n, eng.LIST] = -1


def enlist(s: State, kind: int, n: int) -> None:
    """Put node `n` in its place on list `kind` of its tree, by last walk, children before their parents."""
    s.node[n, eng.NODE_TTL] = -1
    if s.run[col.EVICTION] == GDSF:
        _set_priority(s, kind, n)
    number, begin = s.node[n, eng.WALK], s.node[n, eng.BEGIN]
    before = s.tree[s.node[n, eng.TREE], eng.LIST_TAIL + 2 * kind]
    while before >= 0 and (
        s.node[before, eng.WALK] > number or (s.node[before, eng.WALK] == number and s.node[before, eng.BEGIN] < begin)
    ):
        before = s.node[before, eng.BEFORE]
    _link_after(s, kind, before, n)


def _set_priority(s: State, kind: int, n: int) -> None:
    """Fix what node `n` is worth while it may go: age + hits x time to compute one of its pages."""
    w, pages = s.node[n, eng.TREE], s.node[n, eng.LENGTH]
    if w < s.prefill.shape[0]:
        begin, end = s.node[n, eng.BEGIN] * s.run[col.PAGE], end_of(s, n) * s.run[col.PAGE]
        worth = max(1, prefill_duration(s, end - begin, end * end - begin * begin) // pages)
        age = s.prefill[w, col.AGE + kind]
        s.node[n, eng.PRIORITY] = age + min(s.node[n, eng.HITS], (col.NEVER - 1 - age) // worth) * worth


def _link_after(s: State, kind: int, before: int, n: int) -> None:
    tree, head = s.node[n, eng.TREE], eng.LIST_HEAD + 2 * kind
    after = s.node[before, eng.AFTER] if before >= 0 else s.tree[tree, head]
    s.node[n, eng.BEFORE], s.node[n, eng.AFTER], s.node[n, eng.LIST] = before, after, kind
    if before < 0:
        s.tree[tree, head] = n
    else:
        s.node[before, eng.AFTER] = n
    if after < 0:
        s.tree[tree, head + 1] = n
    else:
        s.node[after, eng.BEFORE] = n


def mark(s: State, tree: int, r: int, n: int, pages: int) -> None:
    """Give node `n` and all above it the number of a new walk, of `pages` of request `r`."""
    s.tree[tree, eng.WALKS] += 1
    number, now = s.tree[tree, eng.WALKS], s.run[col.NOW]
    tokens = max(s.request[r, col.PROMPT], pages * s.run[col.PAGE])
    while n >= 0:
        s.node[n, eng.NODE_LONGEST] = max(s.node[n, eng.NODE_LONGEST], tokens)
        s.node[n, eng.WALK], s.node[n, eng.WALKED] = number, now
        kind = s.node[n, eng.LIST]
        if kind >= 0 and s.tree[tree, eng.LIST_TAIL + 2 * kind] != n:
            unlist(s, n)
            _link_after(s, kind, s.tree[tree, eng.LIST_TAIL + 2 * kind], n)
        n = s.node[n, eng.PARENT]
