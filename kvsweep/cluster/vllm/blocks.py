"""KV blocks of a vLLM worker: one free queue, least recently released first, and the contents that can be found."""

from __future__ import annotations

from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.vllm import columns as c
from kvsweep.cluster.vllm.state import Worker


def hits(w: Worker, r: int, limit: int) -> int:
    """Return how many of the first `limit` blocks of request `r` are held by the cache, from the first on."""
    if w.limits[c.PREFIX_CACHE] == 0:
        return 0
    base = w.request[r, c.BASE]
    count = 0
    while count < limit and _found(w, w.place[base + count, c.KEY]) >= 0:
        count += 1
    return count


def idle(w: Worker, r: int, count: int) -> int:
    """Return how many of the first `count` blocks of request `r`, all in the cache, nobody holds."""
    base = w.request[r, c.BASE]
    total = 0
    for i in range(count):
        total += w.block[_found(w, w.place[base + i, c.KEY]), c.HOLDERS] == 0
    return total


def hold(w: Worker, r: int, count: int) -> None:
    """Give request `r` its first `count` blocks from the cache."""
    base = w.request[r, c.BASE]
    for i in range(count):
        block = _found(w, w.place[base + i, c.KEY])
        if w.block[block, c.HOLDERS] == 0:
            _unlink(w, block)
        w.block[block, c.HOLDERS] += 1
        w.place[base + i, c.BLOCK] = block
    w.request[r, c.HELD] = count


def grow(w: Worker, r: int, tokens: int) -> bool:
    """Give request `r` the blocks for `tokens` more, and name those that are full; whether there were enough."""
    row = w.request[r]
    size = w.limits[c.BLOCK_TOKENS]
    need = (row[c.COMPUTED] + tokens + size - 1) // size
    if need - row[c.HELD] > w.run[c.N_FREE]:
        return False
    while row[c.HELD] < need:
        w.place[row[c.BASE] + row[c.HELD], c.BLOCK] = _take(w)
        row[c.HELD] += 1
    known = row[col.PROMPT] + row[c.RECEIVED]
    full = min(row[c.COMPUTED] + tokens, known) // size
    # What was full when the request last ran is named already.
    for i in range(max(0, min(row[c.COMPUTED], known) // size - 1), full):
        place = w.place[row[c.BASE] + i]
        _name(w, place[c.BLOCK], place[c.KEY])
    return True


def release(w: Worker, r: int) -> None:
    """Take all blocks from request `r`, the last first: it is the first to be used anew."""
    row = w.request[r]
    end = w.limits[c.N_BLOCKS]
    for i in range(row[c.HELD] - 1, -1, -1):
        block = w.place[row[c.BASE] + i, c.BLOCK]
        own = w.block[block]
        own[c.HOLDERS] -= 1
        if own[c.HOLDERS] == 0:
            last = w.block[end, c.BEFORE]
            w.block[last, c.AFTER], own[c.BEFORE] = block, last
            own[c.AFTER], w.block[end, c.BEFORE] = end, block
            w.run[c.N_FREE] += 1
            w.run[c.N_IDLE] += own[c.CONTENT] >= 0
    row[c.HELD] = 0


def _found(w: Worker, key: int) -> int:
    """Return the block that holds the content `key`, of several the one named first; -1 for none."""
    block = w.bucket[key & (w.bucket.shape[0] - 1), c.FIRST]
    while block >= 0 and w.block[block, c.CONTENT] != key:
        block = w.block[block, c.CHAIN_AFTER]
    return int(block)


def _take(w: Worker) -> int:
    """Return the block free for longest, whose content is forgotten."""
    block = int(w.block[w.limits[c.N_BLOCKS], c.AFTER])
    _unlink(w, block)
    own = w.block[block]
    own[c.HOLDERS] = 1
    if own[c.CONTENT] >= 0:
        before, after = own[c.CHAIN_BEFORE], own[c.CHAIN_AFTER]
        ends = w.bucket[own[c.CONTENT] & (w.bucket.shape[0] - 1)]
        if before >= 0:
            w.block[before, c.CHAIN_AFTER] = after
        else:
            ends[c.FIRST] = after
        if after >= 0:
            w.block[after, c.CHAIN_BEFORE] = before
        else:
            ends[c.LAST] = before
        own[c.CONTENT] = -1
        w.run[c.EVICTED] += 1
    return block


def _name(w: Worker, block: int, key: int) -> None:
    """State that `block` holds the content `key`; a second block of it is found once the first is gone."""
    own = w.block[block]
    if own[c.CONTENT] >= 0 or w.limits[c.PREFIX_CACHE] == 0:
        return
    own[c.CONTENT] = key
    ends = w.bucket[key & (w.bucket.shape[0] - 1)]
    last = ends[c.LAST]
    own[c.CHAIN_BEFORE], own[c.CHAIN_AFTER] = last, -1
    if last >= 0:
        w.block[last, c.CHAIN_AFTER] = block
    else:
        ends[c.FIRST] = block
    ends[c.LAST] = block


def _unlink(w: Worker, block: int) -> None:
    """Take `block` out of the free queue."""
    own = w.block[block]
    before, after = own[c.BEFORE], own[c.AFTER]
    w.block[before, c.AFTER], w.block[after, c.BEFORE] = after, before
    w.run[c.N_FREE] -= 1
    w.run[c.N_IDLE] -= own[c.CONTENT] >= 0
