"""Sets of pages of chains, closed towards the root, of limited size: L3 and what the gateway remembers (README §10).

A set is a tree of its own; each node holds pages of one number, and a lock is a pin.
"""

from __future__ import annotations

from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.engine.cache.tree import delete, end_of, enlist, grow, mark, walk
from kvsweep.cluster.shared.state import State


def routed_set(s: State, w: int) -> int:
    """Return the tree of the pages of the prompts that were routed to worker `w`."""
    return int(s.prefill.shape[0] + w)


def store(s: State) -> int:
    """Return the tree of L3."""
    return int(2 * s.prefill.shape[0])


def touch(s: State, tree: int, r: int, pages: int) -> int:
    """Mark those of the first `pages` pages of request `r` that are in the set; return the deepest node of them."""
    deepest = walk(s, tree, r, pages)
    mark(s, tree, r, deepest, pages)
    return deepest


def add(s: State, tree: int, r: int, pages: int) -> None:
    """Add the first `pages` pages of request `r`, as far as room can be made for them."""
    deepest = touch(s, tree, r, pages)
    have = end_of(s, deepest)
    missing = pages - have
    if missing <= 0:
        return
    _make_room(s, tree, missing)
    added = min(missing, s.tree[tree, eng.CAPACITY] - s.tree[tree, eng.SIZE])
    if added > 0:
        n = grow(s, tree, r, deepest, have + added)
        enlist(s, eng.ON_DEVICE_LIST, n)
        s.tree[tree, eng.SIZE] += added


def pin(s: State, n: int, change: int) -> None:
    """Add `change` pins to node `n` and all above it."""
    while n >= 0:
        s.node[n, eng.LOCKS] += change
        n = s.node[n, eng.PARENT]


def _make_room(s: State, tree: int, pages: int) -> None:
    """Drop the pages of least number, deepest first, that are neither pinned nor of the walk that asks."""
    left = pages - (s.tree[tree, eng.CAPACITY] - s.tree[tree, eng.SIZE])
    n = s.tree[tree, eng.LIST_HEAD]
    while left > 0 and n >= 0 and s.node[n, eng.WALK] < s.tree[tree, eng.WALKS]:
        after = s.node[n, eng.AFTER]
        if s.node[n, eng.LOCKS] == 0:
            gone = min(left, s.node[n, eng.LENGTH])
            left -= gone
            s.tree[tree, eng.SIZE] -= gone
            if gone == s.node[n, eng.LENGTH]:
                delete(s, n)
            else:
                s.node[n, eng.LENGTH] -= gone
        n = after
