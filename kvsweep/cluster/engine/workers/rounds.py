"""The round of a prefill or colocated worker: building a prefill batch (README §4)."""

from __future__ import annotations

from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.engine.cache.kv import evict, take_device, unlock
from kvsweep.cluster.engine.cache.l3 import queue_write, waits_until
from kvsweep.cluster.engine.chunks import give_chunk
from kvsweep.cluster.engine.resources import stepping_resource
from kvsweep.cluster.engine.workers.candidate import CAPACITY, NONSENSE, TAKEN, consider, take
from kvsweep.cluster.engine.workers.order import sort_waiting
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.clock import is_beyond, path_duration, pop, prefill_duration, push, schedule
from kvsweep.cluster.shared.policy_functions import PolicyFunctions
from kvsweep.cluster.shared.state import State
from kvsweep.cluster.shared.waiting import end_waiting, note_blocked

NOTHING, BATCH, FAILED = range(3)
"""What a round comes to."""


def form_batch(s: State, w: int, ask: PolicyFunctions) -> int:
    """Build a prefill batch at worker `w`; HELD_BEFORE and OFF (OFF_UP if rounded up) are given."""
    own = s.prefill[w]
    own[eng.STALL] = own[eng.STEP_LOADED] = 0
    own[col.N_STEP] = own[col.STEP_TOKENS] = own[col.STEP_SQUARES] = own[col.STEP_REACH] = 0
    if own[col.PARTIAL] < 0 and (own[col.WAITING] < 0 or own[eng.BATCH_FULL] == 1):
        return NOTHING
    poll(s, w)
    own[eng.REM_INPUT], own[eng.REM_CHUNK] = s.run[eng.MAX_INPUT], own[col.CHUNK]
    if own[col.PARTIAL] >= 0 and not _go_on(s, w):
        return NOTHING
    code = _admit(s, w, ask)
    if code != NOTHING or own[col.N_STEP] == 0:
        return code
    asked = own[col.STEP_TOKENS] + s.run[col.PAGE] * own[col.N_STEP]
    if own[col.FREE] * s.run[col.PAGE] < asked:
        evict(s, w, asked, ask)
    _allocate(s, w)
    return BATCH


def poll(s: State, w: int) -> None:
    """Notice which copies to the host have ended, and release what held loaded nodes."""
    while s.prefill[w, eng.COPIED] >= 0:
        n = pop(s.prefill, w, eng.COPIED, s.node, eng.QUEUE_AFTER)
        unlock(s, w, n)
        if s.run[eng.STORE] == 1:
            queue_write(s, w, n)
    while s.prefill[w, eng.LOADS] >= 0:
        k = pop(s.prefill, w, eng.LOADS, s.chunk, col.CHUNK_NEXT)
        unlock(s, w, s.chunk[k, col.CHUNK_REQUEST])
        give_chunk(s, k)


def _go_on(s: State, w: int) -> bool:
    """Give the partial request its share of the step; False where there is no room for any."""
    own, page, r = s.prefill[w], s.run[col.PAGE], s.prefill[w, col.PARTIAL]
    room = (own[col.FREE] + own[col.IDLE]) * page - own[eng.OFF_UP]
    most = min(own[eng.REM_CHUNK], room)
    left = s.request[r, col.TO_DO]
    tokens = left if left <= most else most // page * page
    if tokens <= 0:
        own[eng.WHY] = col.BY_CAPACITY
        note_blocked(s, w, col.BY_CAPACITY)
        return False
    own[col.PARTIAL] = -1
    take(s, w, r, tokens)
    return True


def _admit(s: State, w: int, ask: PolicyFunctions) -> int:
    """Let the waiting requests into the batch, in order, as far as they go."""
    own = s.prefill[w]
    own[eng.WHY] = col.NOT_BLOCKED
    ranked = s.run[eng.SCHEDULE] == eng.LPM and sort_waiting(s, w)
    before, r = -1, own[col.WAITING]
    while r >= 0 and own[eng.REM_INPUT] > 0 and own[eng.REM_CHUNK] > 0:
        if (own[col.FREE] + own[col.IDLE]) * s.run[col.PAGE] - own[eng.OFF] <= 0:
            break
        if ranked and s.request[r, eng.RANK] < 0:
            break
        if own[col.N_STEP] >= own[col.SLOTS] - own[eng.HELD_BEFORE]:
            own[eng.WHY] = col.BY_SLOTS
            break
        after = s.request[r, col.NEXT_PREFILL]
        if s.run[eng.STORE] == 1 and waits_until(s, r) > s.run[col.NOW]:
            before, r = r, after
            continue
        answer = consider(s, w, r, ask)
        if answer == NONSENSE:
            return FAILED
        if answer != TAKEN:
            own[eng.WHY] = col.BY_CAPACITY if answer == CAPACITY else col.NOT_BLOCKED
            break
        unlink(s, w, col.WAITING, before, after)
        r = after
    note_blocked(s, w, own[eng.WHY])
    return NOTHING


def unlink(s: State, w: int, queue: int, before: int, after: int) -> None:
    """Take the request between `before` and `after`, -1 for none, off a queue of worker `w`."""
    if before < 0:
        s.prefill[w, queue] = after
    else:
        s.request[before, col.NEXT_PREFILL] = after
    if after < 0:
        s.prefill[w, queue + 1] = before


def _allocate(s: State, w: int) -> None:
    """Give the requests of the batch pages for what they took."""
    for place in range(s.prefill[w, col.N_STEP]):
        r = s.prefill[w, s.run[eng.STEP_LIST] + place]
        pages = -(-s.request[r, eng.TAKEN] // s.run[col.PAGE])
        s.request[r, eng.HELD_PAGES] += pages
        take_device(s, w, pages)


def launch(s: State, w: int) -> None:
    """Begin the step that was formed, after the stall of its round."""
    own, now = s.prefill[w], s.run[col.NOW]
    alone = prefill_duration(s, own[col.STEP_TOKENS], own[col.STEP_SQUARES])
    time = _step_duration(s, w, alone)
    own[eng.STEP_TIME] = time
    own[col.BUSY_TIME] += time
    own[col.STEPS] += 1
    own[col.STEPS_BEYOND] += is_beyond(s, col.DOMAIN_STEP, own[col.STEP_TOKENS]) | is_beyond(
        s, col.DOMAIN_REACH, own[col.STEP_REACH]
    )
    _note_starts(s, w, time - alone)
    if own[eng.STALL] > 0:
        own[eng.PHASE] = eng.STALLED
        schedule(s, stepping_resource(s, w), now + own[eng.STALL])
    else:
        own[eng.PHASE] = eng.STEPPING
        schedule(s, stepping_resource(s, w), now + time)


def _step_duration(s: State, w: int, alone: int) -> int:
    """Return the time of a step that takes `alone` without what it loads, layer by layer [ps]."""
    pages, layers = s.prefill[w, eng.STEP_LOADED], s.run[eng.LAYERS]
    if pages == 0:
        return alone
    load = path_duration(s, col.H2D, pages)
    s.prefill[w, col.H2DS] += 1
    s.prefill[w, col.H2DS_BEYOND] += is_beyond(s, col.DOMAIN_PAYLOAD + col.H2D, pages * s.run[col.PAGE_BYTES])
    s.prefill[w, col.RETRIEVED_PAGES] += pages
    return int(max(alone + -(-load // layers), load + -(-alone // layers)))


def _note_starts(s: State, w: int, added: int) -> None:
    """Note when the requests of the batch began that had not, and what they waited for before."""
    own, begin = s.prefill[w], s.run[col.NOW] + s.prefill[w, eng.STALL]
    for place in range(own[col.N_STEP]):
        r = s.prefill[w, s.run[eng.STEP_LIST] + place]
        request = s.request[r]
        if request[col.BEGAN] < 0:
            request[col.BEGAN] = begin
            request[eng.LOADING] = added
            end_waiting(s, w, r)
            if own[eng.WHY] != col.NOT_BLOCKED:
                request[col.SLOTS_BEFORE + own[eng.WHY] - col.BY_SLOTS] += own[eng.STALL]


def set_timer(s: State, w: int) -> None:
    """Have worker `w`, which is idle, look again when the first of its requests stops waiting for its prefetch."""
    if s.run[eng.STORE] == 0:
        return
    time, r = col.NEVER, s.prefill[w, col.WAITING]
    while r >= 0:
        until = waits_until(s, r)
        if until > s.run[col.NOW]:
            time = min(time, until)
        r = s.request[r, col.NEXT_PREFILL]
    schedule(s, stepping_resource(s, w), time)


def join_waiting(s: State, w: int, r: int) -> None:
    """Put request `r` at the end of the waiting queue of `w`."""
    push(s.prefill, w, col.WAITING, s.request, col.NEXT_PREFILL, r)
