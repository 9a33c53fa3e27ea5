"""KV blocks of a vLLM worker: one free queue, least recently released first, and the contents that can be found."""

from __future__ import annotations

from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.vllm import columns as c
from kvsweep.cluster.vllm.state import Fleet


def hits(f: Fleet, k: int, r: int, limit: int) -> int:
    """Return how many of the first `limit` blocks of request `r` are held by the cache, from the first on."""
    if f.limits[k, c.PREFIX_CACHE] == 0:
        return 0
    base = f.state.request[r, c.BASE]
    count = 0
    while count < limit and _found(f, k, f.place[base + count, c.KEY]) >= 0:
        count += 1
    return count


def idle(f: Fleet, k: int, r: int, count: int) -> int:
    """Return how many of the first `count` blocks of request `r`, all in the cache, nobody holds."""
    base = f.state.request[r, c.BASE]
    total = 0
    for i in range(count):
        total += f.block[k, _found(f, k, f.place[base + i, c.KEY]), c.HOLDERS] == 0
    return total


def hold(f: Fleet, k: int, r: int, count: int) -> None:
    """Give request `r` its first `count` blocks from the cache."""
    base = f.state.request[r, c.BASE]
    for i in range(count):
        block = _found(f, k, f.place[base + i, c.KEY])
        if f.block[k, block, c.HOLDERS] == 0:
            _unlink(f, k, block)
        f.block[k, block, c.HOLDERS] += 1
        f.place[base + i, c.BLOCK] = block
    f.state.request[r, c.HELD] = count


def grow(f: Fleet, k: int, r: int, tokens: int) -> bool:
    """Give request `r` the blocks for `tokens` more, and name those that are full; whether there were enough."""
    row = f.state.request[r]
    size = f.limits[k, c.BLOCK_TOKENS]
    need = (row[c.COMPUTED] + tokens + size - 1) // size
    if need - row[c.HELD] > f.run[k, c.N_FREE]:
        return False
    while row[c.HELD] < need:
        f.place[row[c.BASE] + row[c.HELD], c.BLOCK] = _take(f, k)
        row[c.HELD] += 1
    known = row[col.PROMPT] + row[c.RECEIVED]
    full = min(row[c.COMPUTED] + tokens, known) // size
    # What was full when the request last ran is named already.
    for i in range(max(0, min(row[c.COMPUTED], known) // size - 1), full):
        place = f.place[row[c.BASE] + i]
        _name(f, k, place[c.BLOCK], place[c.KEY])
    return True


def release(f: Fleet, k: int, r: int) -> None:
    """Take all blocks from request `r`, the last first: it is the first to be used anew."""
    row = f.state.request[r]
    end = f.limits[k, c.N_BLOCKS]
    for i in range(row[c.HELD] - 1, -1, -1):
        block = f.place[row[c.BASE] + i, c.BLOCK]
        own = f.block[k, block]
        own[c.HOLDERS] -= 1
        if own[c.HOLDERS] == 0:
            last = f.block[k, end, c.BEFORE]
            f.block[k, last, c.AFTER], own[c.BEFORE] = block, last
            own[c.AFTER], f.block[k, end, c.BEFORE] = end, block
            f.run[k, c.N_FREE] += 1
            f.run[k, c.N_IDLE] += own[c.CONTENT] >= 0
    row[c.HELD] = 0


def _found(f: Fleet, k: int, key: int) -> int:
    """Return the block that holds the content `key`, of several the one named first; -1 for none."""
    block = f.bucket[k, key & (f.bucket.shape[1] - 1), c.FIRST]
    while block >= 0 and f.block[k, block, c.CONTENT] != key:
        block = f.block[k, block, c.CHAIN_AFTER]
    return int(block)


def _take(f: Fleet, k: int) -> int:
    """Return the block free for longest, whose content is forgotten."""
    block = int(f.block[k, f.limits[k, c.N_BLOCKS], c.AFTER])
    _unlink(f, k, block)
    own = f.block[k, block]
    own[c.HOLDERS] = 1
    if own[c.CONTENT] >= 0:
        before, after = own[c.CHAIN_BEFORE], own[c.CHAIN_AFTER]
        ends = f.bucket[k, own[c.CONTENT] & (f.bucket.shape[1] - 1)]
        if before >= 0:
            f.block[k, before, c.CHAIN_AFTER] = after
        else:
            ends[c.FIRST] = after
        if after >= 0:
            f.block[k, after, c.CHAIN_BEFORE] = before
        else:
            ends[c.LAST] = before
        own[c.CONTENT] = -1
        f.run[k, c.EVICTED] += 1
    return block


def _name(f: Fleet, k: int, block: int, key: int) -> None:
    """State that `block` holds the content `key`; a second block of it is found once the first is gone."""
    own = f.block[k, block]
    if own[c.CONTENT] >= 0 or f.limits[k, c.PREFIX_CACHE] == 0:
        return
    own[c.CONTENT] = key
    ends = f.bucket[k, key & (f.bucket.shape[1] - 1)]
    last = ends[c.LAST]
    own[c.CHAIN_BEFORE], own[c.CHAIN_AFTER] = last, -1
    if last >= 0:
        f.block[k, last, c.CHAIN_AFTER] = block
    else:
        ends[c.FIRST] = block
    ends[c.LAST] = block


def _unlink(f: Fleet, k: int, block: int) -> None:
    """Take `block` out of the free queue."""
    own = f.block[k, block]
    before, after = own[c.BEFORE], own[c.AFTER]
    f.block[k, before, c.AFTER], f.block[k, after, c.BEFORE] = after, before
    f.run[k, c.N_FREE] -= 1
    f.run[k, c.N_IDLE] -= own[c.CONTENT] >= 0
