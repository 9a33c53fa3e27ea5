"""KV blocks of a vLLM worker: one free queue, least recently released first, and the contents that can be found."""

from __future__ import annotations

from kvsweep.cluster.vllm import columns as c
from kvsweep.cluster.vllm.state import Worker


def hits(w: Worker, r: int, limit: int) -> int:
    """Return how many of the first `limit` blocks of request `r` are held by the cache, from the first on."""
    if w.limits[c.PREFIX_CACHE] == 0:
        return 0
    base = w.request[r, c.BASE]
    count = 0
    while count < limit and w.first_of[w.keys[base + count]] >= 0:
        count += 1
    return count


def idle(w: Worker, r: int, count: int) -> int:
    """Return how many of the first `count` blocks of request `r`, all in the cache, nobody holds."""
    base = w.request[r, c.BASE]
    total = 0
    for i in range(count):
        total += w.holders[w.first_of[w.keys[base + i]]] == 0
    return total


def hold(w: Worker, r: int, count: int) -> None:
    """Give request `r` its first `count` blocks from the cache."""
    base = w.request[r, c.BASE]
    for i in range(count):
        block = w.first_of[w.keys[base + i]]
        if w.holders[block] == 0:
            _unlink(w, block)
        w.holders[block] += 1
        w.table[base + i] = block
    w.request[r, c.HELD] = count


def grow(w: Worker, r: int, tokens: int) -> bool:
    """Give request `r` the blocks for `tokens` more, and name those that are full; whether there were enough."""
    row = w.request[r]
    size = w.limits[c.BLOCK_TOKENS]
    need = (row[c.COMPUTED] + tokens + size - 1) // size
    if need - row[c.HELD] > w.run[c.N_FREE]:
        return False
    while row[c.HELD] < need:
        w.table[row[c.BASE] + row[c.HELD]] = _take(w)
        row[c.HELD] += 1
    known = row[c.PROMPT] + row[c.RECEIVED]
    full = min(row[c.COMPUTED] + tokens, known) // size
    # What was full when the request last ran is named already.
    for i in range(max(0, min(row[c.COMPUTED], known) // size - 1), full):
        _name(w, w.table[row[c.BASE] + i], w.keys[row[c.BASE] + i])
    return True


def release(w: Worker, r: int) -> None:
    """Take all blocks from request `r`, the last first: it is the first to be used anew."""
    row = w.request[r]
    end = w.limits[c.N_BLOCKS]
    for i in range(row[c.HELD] - 1, -1, -1):
        block = w.table[row[c.BASE] + i]
        w.holders[block] -= 1
        if w.holders[block] == 0:
            last = w.before[end]
            w.after[last], w.before[block] = block, last
            w.after[block], w.before[end] = end, block
            w.run[c.N_FREE] += 1
    row[c.HELD] = 0


def _take(w: Worker) -> int:
    """Return the block free for longest, whose content is forgotten."""
    block = int(w.after[w.limits[c.N_BLOCKS]])
    _unlink(w, block)
    w.holders[block] = 1
    key = w.key_of[block]
    if key >= 0:
        before, after = w.same_before[block], w.same_after[block]
        if before >= 0:
            w.same_after[before] = after
        else:
            w.first_of[key] = after
        if after >= 0:
            w.same_before[after] = before
        else:
            w.last_of[key] = before
        w.key_of[block] = -1
    return block


def _name(w: Worker, block: int, key: int) -> None:
    """State that `block` holds the content `key`; a second block of it is found once the first is gone."""
    if w.key_of[block] >= 0:
        return
    w.key_of[block] = key
    last = w.last_of[key]
    w.same_before[block], w.same_after[block] = last, -1
    if last >= 0:
        w.same_after[last] = block
    else:
        w.first_of[key] = block
    w.last_of[key] = block


def _unlink(w: Worker, block: int) -> None:
    before, after = w.before[block], w.after[block]
    w.after[before], w.before[after] = after, before
    w.run[c.N_FREE] -= 1
