"""KV at a prefill worker: what is resident in its device and host pool, pinned, evicted, expired, written back."""

from __future__ import annotations

from kvsweep.cluster.paper.segment_table import entry_at, new_entry
from kvsweep.cluster.policies.eviction import GDSF, LRU, TLRU, victim
from kvsweep.cluster.policies.eviction.gdsf import set_priority
from kvsweep.cluster.policies.eviction.tlru import most
from kvsweep.cluster.policies.retention import last_check
from kvsweep.cluster.policies.retention.from_file import ask_idle, begin_idle, next_check, outlive
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.clock import host_pool, occupy
from kvsweep.cluster.shared.policy_functions import PolicyFunctions
from kvsweep.cluster.shared.state import State


def resolve(s: State, w: int, r: int) -> None:
    """Note the entries of the chain of request `r` at its worker `w`, new ones for segments it has not seen."""
    parent, depth = -1, 0
    for place in range(s.request[r, col.CHAIN], s.request[r, col.CHAIN_END]):
        segment = s.chain[place, col.SEGMENT]
        e = entry_at(s, w, segment)
        if e < 0:
            e = new_entry(s, w, segment)
            s.entry[e, col.LENGTH] = s.chain[place, col.SEGMENT_PAGES]
            s.entry[e, col.PARENT], s.entry[e, col.DEPTH] = parent, depth
        s.chain[place, col.ENTRY] = e
        parent = e
        depth += s.entry[e, col.LENGTH]


def match(s: State, w: int, r: int) -> tuple[int, int]:
    """Return the leading pages of request `r` visible on the device of `w`, and those after them on its host."""
    left = (s.request[r, col.PROMPT] - 1) // s.run[col.PAGE]
    on_device = True
    matched = following = 0
    for place in range(s.request[r, col.CHAIN], s.request[r, col.CHAIN_END]):
        e = entry_at(s, w, s.chain[place, col.SEGMENT])
        if e < 0 or left <= 0:
            break
        length = min(s.entry[e, col.LENGTH], left)
        left -= length
        here = min(s.entry[e, col.DEVICE], length) if on_device else 0
        matched += here
        if on_device and here == length:
            continue
        on_device = False
        on_host = min(s.entry[e, col.HOST], length)
        following += max(0, on_host - here)
        if on_host < length:
            break
    return matched, following


def pages_in_place(s: State, r: int) -> int:
    """Return 1 where the last full page of request `r`, which must be computed, is resident on the device already."""
    first, end = s.request[r, col.CHAIN], s.request[r, col.CHAIN_END]
    if end == first or s.request[r, col.PROMPT] % s.run[col.PAGE] != 0:
        return 0
    e = s.chain[end - 1, col.ENTRY]
    return 1 if s.entry[e, col.DEVICE] == s.entry[e, col.LENGTH] else 0


def idle_pages(s: State, r: int) -> int:
    """Return the idle device pages of the chain of request `r`, which pinning would take from the evictable ones."""
    found = 0
    for place in range(s.request[r, col.CHAIN], s.request[r, col.CHAIN_END]):
        e = s.chain[place, col.ENTRY]
        if s.entry[e, col.PINS] == 0:
            found += s.entry[e, col.DEVICE]
    return found


def pin(s: State, w: int, r: int) -> None:
    """Pin the chain of request `r` and count the admission."""
    for place in range(s.request[r, col.CHAIN], s.request[r, col.CHAIN_END]):
        e = s.chain[place, col.ENTRY]
        s.entry[e, col.USES] += 1
        s.entry[e, col.LONGEST] = max(s.entry[e, col.LONGEST], s.request[r, col.PROMPT])
        s.entry[e, col.PINS] += 1
        if s.entry[e, col.PINS] == 1:
            for tier in range(2):
                resident = s.entry[e, col.DEVICE + tier]
                if resident > 0:
                    s.prefill[w, col.IDLE + tier] -= resident
                    _unlink(s, w, tier, e)


def release(s: State, w: int, r: int) -> None:
    """Take a pin off the chain of request `r`, deepest segment first."""
    for place in range(s.request[r, col.CHAIN_END] - 1, s.request[r, col.CHAIN] - 1, -1):
        e = s.chain[place, col.ENTRY]
        s.entry[e, col.PINS] -= 1
        if s.entry[e, col.PINS] == 0:
            s.entry[e, col.RELEASED] = s.run[col.NOW]
            for tier in range(2):
                resident = s.entry[e, col.DEVICE + tier]
                if resident > 0:
                    s.prefill[w, col.IDLE + tier] += resident
                    if s.run[col.EVICTION] == GDSF:
                        set_priority(s, w, tier, e)
                    if s.run[col.RETENTION] == col.FROM_FILE:
                        begin_idle(s, w, tier, e)
                    _append(s, w, tier, e)


def expire(s: State, w: int, ask: PolicyFunctions) -> None:
    """Drop what the periodic checks up to now would have dropped, at the time of the check."""
    tick = last_check(s)
    if tick < 0:
        return
    if s.run[col.RETENTION] == col.FROM_FILE:
        for tier in range(2):
            if s.prefill[w, col.NEXT_DROP + tier] <= tick:
                ask_idle(s, w, tier, tick, ask)
                _drop_as_asked(s, w, tier, tick)
        return
    ttl, check = s.run[col.TTL], s.run[col.CHECK]
    for tier in range(2):
        while True:
            e = s.prefill[w, col.IDLE_LIST + 2 * tier]
            if e < 0 or s.entry[e, col.RELEASED] + ttl > tick:
                break
            pages = s.entry[e, col.DEVICE + tier]
            s.prefill[w, col.EXPIRED + tier] += pages
            _drop(s, w, tier, e, pages, -(-(s.entry[e, col.RELEASED] + ttl) // check) * check)


def _drop_as_asked(s: State, w: int, tier: int, tick: int) -> None:
    """Drop the entries whose time by a policy from a file had come by `tick`, and find when there is more to do."""
    soonest = col.NEVER
    e = s.prefill[w, col.IDLE_LIST + 2 * tier]
    while e >= 0:  # children come before their parents
        after, at = s.entry[e, col.AFTER + tier], s.entry[e, col.DROP_AT + tier]
        if at < 0:
            soonest = min(soonest, next_check(s, s.entry[e, col.RELEASED]))
        elif s.entry[e, col.CHILDREN + tier] == 0 and at <= tick:
            pages = s.entry[e, col.DEVICE + tier]
            s.prefill[w, col.EXPIRED + tier] += pages
            _drop(s, w, tier, e, pages, at)
            if s.entry[e, col.PARENT] >= 0:
                outlive(s, w, tier, s.entry[e, col.PARENT], at)
        elif s.entry[e, col.CHILDREN + tier] == 0:
            soonest = min(soonest, at)
        e = after
    s.prefill[w, col.NEXT_DROP + tier] = soonest


def make_room(s: State, w: int, tier: int, pages: int, ask: PolicyFunctions) -> None:
    """Evict idle pages of `tier` until `pages` are free; there must be enough of them."""
    while s.prefill[w, col.FREE + tier] < pages:
        is_lru = s.run[col.EVICTION] == LRU
        e = s.prefill[w, col.IDLE_LIST + 2 * tier] if is_lru else victim(s, w, tier, ask)
        given = most(s, tier, e) if s.run[col.EVICTION] == TLRU else s.entry[e, col.DEVICE + tier]
        gone = min(pages - s.prefill[w, col.FREE + tier], given)
        s.prefill[w, col.EVICTED + tier] += gone
        _drop(s, w, tier, e, gone, s.run[col.NOW])
        if s.run[col.RETENTION] == col.FROM_FILE and s.entry[e, col.DEVICE + tier] == 0 and s.entry[e, col.PARENT] >= 0:
            outlive(s, w, tier, s.entry[e, col.PARENT], next_check(s, s.run[col.NOW]))


def show(s: State, w: int, r: int, upto: int) -> int:
    """Make the first `upto` pages of request `r` visible on the device; return how many of them were not."""
    added = 0
    for place in range(s.request[r, col.CHAIN], s.request[r, col.CHAIN_END]):
        if upto <= 0:
            break
        e = s.chain[place, col.ENTRY]
        pages = min(upto, s.entry[e, col.LENGTH])
        added += _grow(s, col.DEVICE_TIER, e, pages)
        upto -= s.entry[e, col.LENGTH]
    return int(added)


def claim_host(s: State, w: int, r: int, ask: PolicyFunctions) -> int:
    """Reserve host pages for the write-back of request `r`; return how many there are to copy.

    Sets WRITE_BEGIN and WRITE_END [page of the chain].
    """
    if s.run[col.THRESHOLD] == col.NEVER:
        return 0
    expire(s, w, ask)
    begin = end = depth = 0
    for place in range(s.request[r, col.CHAIN], s.request[r, col.CHAIN_END]):
        e = s.chain[place, col.ENTRY]
        if s.entry[e, col.USES] < s.run[col.THRESHOLD]:
            break
        if begin == end:
            begin = depth + s.entry[e, col.CLAIMED]
        depth += s.entry[e, col.LENGTH]
        end = depth
    pages = min(end - begin, s.prefill[w, col.HOST_FREE] + s.prefill[w, col.HOST_IDLE])
    if pages <= 0:
        return 0
    make_room(s, w, col.HOST_TIER, pages, ask)
    s.prefill[w, col.HOST_FREE] -= pages
    occupy(s, host_pool(w), pages, s.run[col.NOW])
    s.request[r, col.WRITE_BEGIN] = begin
    s.request[r, col.WRITE_END] = begin + pages
    _mark_written(s, r, col.CLAIMED)
    return int(pages)


def show_written(s: State, r: int) -> None:
    """Make the pages that the write-back of request `r` copied visible on the host."""
    _mark_written(s, r, col.HOST)


def _mark_written(s: State, r: int, column: int) -> None:
    depth, end = 0, s.request[r, col.WRITE_END]
    for place in range(s.request[r, col.CHAIN], s.request[r, col.CHAIN_END]):
        e = s.chain[place, col.ENTRY]
        length = s.entry[e, col.LENGTH]
        pages = min(end - depth, length)
        if pages <= 0:
            break
        if column == col.CLAIMED:
            s.entry[e, col.CLAIMED] = max(s.entry[e, col.CLAIMED], pages)
        elif depth + length > s.request[r, col.WRITE_BEGIN]:
            _grow(s, col.HOST_TIER, e, pages)
        depth += length


def _grow(s: State, tier: int, e: int, pages: int) -> int:
    """Make at least `pages` of a pinned entry resident; return how many were not."""
    before = s.entry[e, col.DEVICE + tier]
    if pages <= before:
        return 0
    s.entry[e, col.DEVICE + tier] = pages
    if before == 0:
        s.entry[e, col.BORN + tier] = s.run[col.NOW]
        if s.entry[e, col.PARENT] >= 0:
            s.entry[s.entry[e, col.PARENT], col.CHILDREN + tier] += 1
    return int(pages - before)


def _drop(s: State, w: int, tier: int, e: int, pages: int, time: int) -> None:
    """Drop the last `pages` of an idle entry at `time` [ps]."""
    s.entry[e, col.DEVICE + tier] -= pages
    left = s.entry[e, col.DEVICE + tier]
    if tier == col.HOST_TIER:
        s.entry[e, col.CLAIMED] = left
    s.prefill[w, col.FREE + tier] += pages
    s.prefill[w, col.IDLE + tier] -= pages
    occupy(s, 2 * w + tier, -pages, time)
    if left == 0:
        _unlink(s, w, tier, e)
        if s.entry[e, col.PARENT] >= 0:
            s.entry[s.entry[e, col.PARENT], col.CHILDREN + tier] -= 1


def _append(s: State, w: int, tier: int, e: int) -> None:
    last = s.prefill[w, col.IDLE_LIST + 2 * tier + 1]
    s.entry[e, col.BEFORE + tier] = last
    s.entry[e, col.AFTER + tier] = -1
    if last < 0:
        s.prefill[w, col.IDLE_LIST + 2 * tier] = e
    else:
        s.entry[last, col.AFTER + tier] = e
    s.prefill[w, col.IDLE_LIST + 2 * tier + 1] = e


def _unlink(s: State, w: int, tier: int, e: int) -> None:
    before, after = s.entry[e, col.BEFORE + tier], s.entry[e, col.AFTER + tier]
    if before < 0:
        s.prefill[w, col.IDLE_LIST + 2 * tier] = after
    else:
        s.entry[before, col.AFTER + tier] = after
    if after < 0:
        s.prefill[w, col.IDLE_LIST + 2 * tier + 1] = before
    else:
        s.entry[after, col.BEFORE + tier] = before
