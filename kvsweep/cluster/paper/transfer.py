"""Handoff from prefill to decode workers: FIFO at the source, shared or in turn at the destination (README §8)."""

from __future__ import annotations

from kvsweep.cluster.paper.decode import end_run_early
from kvsweep.cluster.paper.prefill import leave
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.clock import (
    is_beyond,
    path_duration,
    pop,
    push,
    scaled,
    schedule,
    touch_decode,
    touch_prefill,
)
from kvsweep.cluster.shared.state import State

UNIT = 256
"""Fractions of a picosecond in which virtual time counts."""
LATE = 1 << 60
"""Virtual time at which it begins anew, after 75 minutes without a pause [1/256 ps]."""


def release_chunks(s: State, r: int) -> None:
    """Move the chunks that waited for the reservation of request `r` to the queue of its source."""
    w = s.request[r, col.AT_PREFILL]
    while s.request[r, col.CHUNK_HEAD] >= 0:
        k = pop(s.request, r, col.CHUNK_HEAD, s.chunk, col.CHUNK_NEXT)
        push(s.prefill, w, col.SOURCE, s.chunk, col.CHUNK_NEXT, k)
    s.request[r, col.CHUNK_QUEUED] = s.run[col.NOW]
    touch_prefill(s, w)


def send_next(s: State, w: int) -> None:
    """Start the next chunk of source `w` if it sends none."""
    if s.prefill[w, col.SENDING] >= 0 or s.prefill[w, col.SOURCE] < 0:
        return
    k = pop(s.prefill, w, col.SOURCE, s.chunk, col.CHUNK_NEXT)
    r, pages = s.chunk[k, col.CHUNK_REQUEST], s.chunk[k, col.CHUNK_PAGES]
    d = s.request[r, col.AT_DECODE]
    alone = path_duration(s, col.HANDOFF, pages)
    _bring_up(s, d)
    s.prefill[w, col.SENDING] = k
    begin = s.decode[d, col.VIRTUAL]
    if s.run[col.SHARING] == col.SHARE_FIFO:
        begin = max(begin, s.decode[d, col.LAST_TAG])
    s.decode[d, col.LAST_TAG] = s.prefill[w, col.SEND_TAG] = begin + UNIT * alone
    s.prefill[w, col.SENT_PAGES] += pages
    s.decode[d, s.run[col.INBOUND] + s.decode[d, col.N_INBOUND]] = w
    s.decode[d, col.N_INBOUND] += 1
    s.decode[d, col.CHUNKS] += 1
    s.decode[d, col.CHUNKS_BEYOND] += is_beyond(s, col.DOMAIN_PAYLOAD + col.HANDOFF, pages * s.run[col.PAGE_BYTES])
    if s.chunk[k, col.CHUNK_IS_LAST] == 1:
        s.request[r, col.CHUNK_BEGAN] = s.run[col.NOW]
        s.request[r, col.CHUNK_ALONE] = alone
    touch_decode(s, d)


def end_chunk(s: State, d: int) -> None:
    """End the chunk that is due at decode worker `d`; with the last of a request, end its handoff."""
    _bring_up(s, d)
    place = _first(s, d)
    w = s.decode[d, s.run[col.INBOUND] + place]
    s.decode[d, col.N_INBOUND] -= 1
    s.decode[d, s.run[col.INBOUND] + place] = s.decode[d, s.run[col.INBOUND] + s.decode[d, col.N_INBOUND]]
    if s.decode[d, col.N_INBOUND] == 0:
        s.decode[d, col.VIRTUAL] = s.decode[d, col.LAST_TAG] = 0
    k = s.prefill[w, col.SENDING]
    s.prefill[w, col.SENDING] = -1
    s.decode[d, col.RECEIVED_PAGES] += s.chunk[k, col.CHUNK_PAGES]
    touch_prefill(s, w)
    touch_decode(s, d)
    plan_inbound(s, d)
    if s.chunk[k, col.CHUNK_IS_LAST] == 1:
        r = s.chunk[k, col.CHUNK_REQUEST]
        s.request[r, col.HANDED] = s.run[col.NOW]
        leave(s, w, r)
        push(s.decode, d, col.JOINING, s.request, col.NEXT_DECODE, r)
        end_run_early(s, d)


def plan_inbound(s: State, d: int) -> None:
    """Schedule the next end of a chunk at decode worker `d`."""
    if s.decode[d, col.N_INBOUND] == 0:
        schedule(s, d, col.NEVER)
        return
    tag = s.prefill[s.decode[d, s.run[col.INBOUND] + _first(s, d)], col.SEND_TAG]
    left = max(0, tag - s.decode[d, col.VIRTUAL])
    schedule(s, d, s.decode[d, col.VIRTUAL_AT] - scaled(-left, _sharing(s, d), UNIT))


def _first(s: State, d: int) -> int:
    """Return the place of the chunk with the least tag, the least source on a tie."""
    best = 0
    for place in range(1, s.decode[d, col.N_INBOUND]):
        w, first = s.decode[d, s.run[col.INBOUND] + place], s.decode[d, s.run[col.INBOUND] + best]
        tag, least = s.prefill[w, col.SEND_TAG], s.prefill[first, col.SEND_TAG]
        if tag < least or (tag == least and w < first):
            best = place
    return best


def _bring_up(s: State, d: int) -> None:
    """Bring the virtual time of decode worker `d` up to now."""
    if s.decode[d, col.N_INBOUND] > 0:
        s.decode[d, col.VIRTUAL] += scaled(s.run[col.NOW] - s.decode[d, col.VIRTUAL_AT], UNIT, _sharing(s, d))
        if s.decode[d, col.VIRTUAL] > LATE:
            _begin_anew(s, d)
    s.decode[d, col.VIRTUAL_AT] = s.run[col.NOW]


def _begin_anew(s: State, d: int) -> None:
    """Count the virtual time of decode worker `d` from now on: only differences matter."""
    passed = s.decode[d, col.VIRTUAL]
    s.decode[d, col.VIRTUAL] = 0
    s.decode[d, col.LAST_TAG] -= passed
    for place in range(s.decode[d, col.N_INBOUND]):
        s.prefill[s.decode[d, s.run[col.INBOUND] + place], col.SEND_TAG] -= passed


def _sharing(s: State, d: int) -> int:
    return int(s.decode[d, col.N_INBOUND]) if s.run[col.SHARING] == col.SHARE_EQUALLY else 1
