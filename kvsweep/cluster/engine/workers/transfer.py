"""Handoff from prefill to decode workers: a queue for each pair, shared at both ends (README §7)."""

from __future__ import annotations

from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.engine.chunks import give_chunk, take_chunk
from kvsweep.cluster.engine.resources import inbound_resource
from kvsweep.cluster.engine.workers.batch import end_run_early
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
from kvsweep.cluster.shared.completion import leave
from kvsweep.cluster.shared.state import State

UNIT = 256
"""Fractions of a picosecond in which what is left of a chunk counts."""


def queue_chunk(s: State, w: int, r: int) -> None:
    """Queue what request `r` has reached since it last sent; what is complete sends all."""
    request, page, now = s.request[r], s.run[col.PAGE], s.run[col.NOW]
    reached = request[col.PAGES] if request[eng.COMPLETE] == 1 else request[col.POSITION] // page
    d = request[col.AT_DECODE]
    k = take_chunk(s)
    s.chunk[k, col.CHUNK_REQUEST] = r
    s.chunk[k, col.CHUNK_PAGES] = reached - request[col.SENT]
    s.chunk[k, col.CHUNK_IS_LAST] = request[eng.COMPLETE]
    s.chunk[k, eng.CHUNK_AT] = now
    request[col.SENT] = reached
    if request[eng.COMPLETE] == 1:
        request[col.CHUNK_QUEUED] = now
    p = w * s.decode.shape[0] + d
    push(s.pair, p, eng.QUEUE, s.chunk, col.CHUNK_NEXT, k)
    want_start(s, p)


def want_start(s: State, p: int) -> None:
    """Have pair `p` looked at by `start_chunks`, by decode worker, then prefill worker."""
    if s.pair[p, eng.STARTING] == 1:
        return
    s.pair[p, eng.STARTING] = 1
    key = _order(s, p)
    before, after = -1, s.run[eng.STARTS]
    while after >= 0 and _order(s, after) < key:
        before, after = after, s.pair[after, eng.START_AFTER]
    s.pair[p, eng.START_AFTER] = after
    if before < 0:
        s.run[eng.STARTS] = p
    else:
        s.pair[before, eng.START_AFTER] = p


def _order(s: State, p: int) -> int:
    n = s.decode.shape[0]
    return int(p % n * s.prefill.shape[0] + p // n)


def start_chunks(s: State) -> None:
    """Start the chunks that can, of the pairs that were to be looked at."""
    while s.run[eng.STARTS] >= 0:
        p = s.run[eng.STARTS]
        s.run[eng.STARTS] = s.pair[p, eng.START_AFTER]
        s.pair[p, eng.STARTING] = 0
        if s.run[col.SHARING] == col.SHARE_FIFO:
            d = p % s.decode.shape[0]
            if s.decode[d, col.N_INBOUND] > 0:
                continue
            p = first_queued(s, d)
        if p >= 0 and s.pair[p, eng.ACTIVE_CHUNK] < 0 and s.pair[p, eng.QUEUE] >= 0:
            _start(s, p)


def first_queued(s: State, d: int) -> int:
    """Return the pair whose first chunk for decode worker `d` was queued first, -1 for none."""
    best, n = -1, s.decode.shape[0]
    for w in range(s.prefill.shape[0]):
        k = s.pair[w * n + d, eng.QUEUE]
        if k >= 0 and (best < 0 or s.chunk[k, eng.CHUNK_AT] < s.chunk[s.pair[best, eng.QUEUE], eng.CHUNK_AT]):
            best = w * n + d
    return int(best)


def _start(s: State, p: int) -> None:
    w, d = p // s.decode.shape[0], p % s.decode.shape[0]
    k = pop(s.pair, p, eng.QUEUE, s.chunk, col.CHUNK_NEXT)
    r, pages = s.chunk[k, col.CHUNK_REQUEST], s.chunk[k, col.CHUNK_PAGES]
    alone = path_duration(s, col.HANDOFF, pages)
    s.pair[p, eng.ACTIVE_CHUNK], s.pair[p, eng.LEFT] = k, UNIT * alone
    s.pair[p, eng.SINCE], s.pair[p, eng.K] = s.run[col.NOW], 1
    s.decode[d, s.run[col.INBOUND] + s.decode[d, col.N_INBOUND]] = w
    s.decode[d, col.N_INBOUND] += 1
    s.prefill[w, s.run[eng.SOURCES] + s.prefill[w, eng.N_OUT]] = d
    s.prefill[w, eng.N_OUT] += 1
    s.prefill[w, col.SENT_PAGES] += pages
    s.decode[d, col.CHUNKS] += 1
    s.decode[d, col.CHUNKS_BEYOND] += is_beyond(s, col.DOMAIN_PAYLOAD + col.HANDOFF, pages * s.run[col.PAGE_BYTES])
    if s.chunk[k, col.CHUNK_IS_LAST] == 1:
        s.request[r, col.CHUNK_BEGAN], s.request[r, col.CHUNK_ALONE] = s.run[col.NOW], alone
    _share_anew(s, w, d)


def end_chunk(s: State, d: int) -> None:
    """End the chunk that is due at decode worker `d`, of the least source; one at a time."""
    now, n = s.run[col.NOW], s.decode.shape[0]
    first = -1
    for place in range(s.decode[d, col.N_INBOUND]):
        w = s.decode[d, s.run[col.INBOUND] + place]
        if _end_of(s, w * n + d) <= now and (first < 0 or w < s.decode[d, s.run[col.INBOUND] + first]):
            first = place
    w = s.decode[d, s.run[col.INBOUND] + first]
    p = w * n + d
    k = s.pair[p, eng.ACTIVE_CHUNK]
    s.pair[p, eng.ACTIVE_CHUNK] = -1
    s.decode[d, col.N_INBOUND] -= 1
    s.decode[d, s.run[col.INBOUND] + first] = s.decode[d, s.run[col.INBOUND] + s.decode[d, col.N_INBOUND]]
    place = s.run[eng.SOURCES]
    while s.prefill[w, place] != d:
        place += 1
    s.prefill[w, eng.N_OUT] -= 1
    s.prefill[w, place] = s.prefill[w, s.run[eng.SOURCES] + s.prefill[w, eng.N_OUT]]
    s.decode[d, col.RECEIVED_PAGES] += s.chunk[k, col.CHUNK_PAGES]
    touch_prefill(s, w)
    touch_decode(s, d)
    if s.pair[p, eng.QUEUE] >= 0 or s.run[col.SHARING] == col.SHARE_FIFO:
        want_start(s, p)
    if s.chunk[k, col.CHUNK_IS_LAST] == 1:
        s.request[s.chunk[k, col.CHUNK_REQUEST], col.HANDED] = now
        s.decode[d, eng.N_ARRIVED] += 1
        end_run_early(s, d)
    give_chunk(s, k)
    _share_anew(s, w, d)


def _share_anew(s: State, w: int, d: int) -> None:
    """Bring the shares of the chunks into `d` and out of `w` up to date, and their ends."""
    n = s.decode.shape[0]
    for place in range(s.decode[d, col.N_INBOUND]):
        _set_share(s, s.decode[d, s.run[col.INBOUND] + place] * n + d)
    _plan(s, d)
    for place in range(s.prefill[w, eng.N_OUT]):
        other = s.prefill[w, s.run[eng.SOURCES] + place]
        if other != d and _set_share(s, w * n + other):
            _plan(s, other)


def _set_share(s: State, p: int) -> bool:
    """Bring the share of the chunk of pair `p` up to date; return whether it changed."""
    w, d = p // s.decode.shape[0], p % s.decode.shape[0]
    k = 1 if s.run[col.SHARING] == col.SHARE_NONE else max(s.decode[d, col.N_INBOUND], s.prefill[w, eng.N_OUT])
    if k == s.pair[p, eng.K]:
        return False
    now = s.run[col.NOW]
    s.pair[p, eng.LEFT] -= scaled(now - s.pair[p, eng.SINCE], UNIT, s.pair[p, eng.K])
    s.pair[p, eng.SINCE], s.pair[p, eng.K] = now, k
    return True


def _end_of(s: State, p: int) -> int:
    return int(s.pair[p, eng.SINCE] + max(0, -scaled(-s.pair[p, eng.LEFT], s.pair[p, eng.K], UNIT)))


def _plan(s: State, d: int) -> None:
    """Schedule the next end of a chunk at decode worker `d`."""
    time = col.NEVER
    for place in range(s.decode[d, col.N_INBOUND]):
        time = min(time, _end_of(s, s.decode[d, s.run[col.INBOUND] + place] * s.decode.shape[0] + d))
    schedule(s, inbound_resource(s, d), time)


def settle(s: State, r: int) -> None:
    """Note first token and end of request `r` at the client once all they follow from is known."""
    request = s.request[r]
    if request[eng.FIRST_AT_DECODE] < 0 or (s.run[eng.JOIN] == 1 and request[eng.ANSWERED] < 0):
        return
    if request[col.FIRST_TOKEN] < 0:
        request[col.FIRST_TOKEN] = request[eng.FIRST_AT_DECODE]
        if s.run[eng.JOIN] == 1:
            request[col.FIRST_TOKEN] = max(request[eng.FIRST_AT_DECODE], request[eng.ANSWERED])
    if request[eng.LAST_TOKEN] >= 0 and request[col.FINISHED] < 0:
        request[col.FINISHED] = max(request[eng.LAST_TOKEN], request[col.FIRST_TOKEN])
        leave(s, r)
        if s.run[col.LEFT] == 0:
            s.run[col.OCCUPANCY_END] = min(s.run[col.OCCUPANCY_END], s.run[col.NOW])
