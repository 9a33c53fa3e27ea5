"""Prefill workers: admission, retrieval, steps, write-back (README §5, §6)."""

from __future__ import annotations

from kvsweep.cluster.paper.tiers import (
    claim_host,
    expire,
    idle_pages,
    make_room,
    match,
    pages_in_place,
    pin,
    release,
    show,
    show_written,
)
from kvsweep.cluster.policies.gateway.loads import left_prefill, prefilled
from kvsweep.cluster.policies.retrieval import retrieved_pages
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.clock import (
    d2h_resource,
    due,
    h2d_resource,
    host_pool,
    is_beyond,
    occupy,
    path_duration,
    pop,
    prefill_duration,
    prefill_resource,
    push,
    schedule,
    touch_decode,
    touch_prefill,
)
from kvsweep.cluster.shared.policy_functions import PolicyFunctions
from kvsweep.cluster.shared.prefill_step import execute
from kvsweep.cluster.shared.state import State
from kvsweep.cluster.shared.waiting import begin_waiting, end_waiting, note_blocked

ADMITTED, REFUSED, NONSENSE = range(3)


def form_step(s: State, w: int, ask: PolicyFunctions) -> bool:
    """Start a prefill step at worker `w` if it is idle and somebody can compute; False where a policy failed."""
    own, resource = s.prefill[w], prefill_resource(s, w)
    if due(s, resource) != col.NEVER:
        return True
    own[col.N_STEP] = own[col.STEP_TOKENS] = own[col.STEP_SQUARES] = own[col.STEP_REACH] = 0
    budget = own[col.CHUNK]
    partial = own[col.PARTIAL]
    own[col.PARTIAL] = -1
    if partial >= 0:
        budget = _take(s, w, partial, budget)
    while budget > 0 and s.prefill[w, col.READIED] >= 0:
        budget = _take(s, w, pop(s.prefill, w, col.READIED, s.request, col.NEXT_PREFILL), budget)
    why = col.NOT_BLOCKED
    while budget > 0 and s.prefill[w, col.WAITING] >= 0:
        r = s.prefill[w, col.WAITING]
        if own[col.USED_SLOTS] >= own[col.SLOTS]:
            why = col.BY_SLOTS
            break
        answer = _admit(s, w, r, ask)
        if answer == NONSENSE:
            return False
        if answer == REFUSED:
            why = col.BY_CAPACITY
            break
        if s.request[r, col.RETRIEVED] == 0:
            budget = _take(s, w, r, budget)
    note_blocked(s, w, why)
    if own[col.N_STEP] > 0:
        duration = prefill_duration(s, own[col.STEP_TOKENS], own[col.STEP_SQUARES])
        own[col.BUSY_TIME] += duration
        own[col.STEPS] += 1
        own[col.STEPS_BEYOND] += is_beyond(s, col.DOMAIN_STEP, own[col.STEP_TOKENS]) | is_beyond(
            s, col.DOMAIN_REACH, own[col.STEP_REACH]
        )
        schedule(s, resource, s.run[col.NOW] + duration)
    return True


def join_waiting(s: State, w: int, r: int) -> None:
    """Put request `r`, which arrives now, in the waiting queue of `w`."""
    begin_waiting(s, w, r)
    push(s.prefill, w, col.WAITING, s.request, col.NEXT_PREFILL, r)
    touch_prefill(s, w)


def end_step(s: State, w: int, ask: PolicyFunctions) -> None:
    """End the prefill step of `w`: its KV becomes visible, its chunks may be sent."""
    own, now = s.prefill[w], s.run[col.NOW]
    schedule(s, prefill_resource(s, w), col.NEVER)
    for place in range(own[col.N_STEP]):
        r = s.prefill[w, col.N_PREFILL + place]
        request = s.request[r]
        _reach(s, w, r, request[col.NEXT_POSITION])
        if request[col.TO_DO] == 0:
            request[col.PREFILLED] = now
            prefilled(s, r)
            _write_back(s, w, r, ask)
        _queue_chunk(s, w, r)
        if request[col.FIRST_STEP_END] < 0:
            request[col.FIRST_STEP_END] = now
            d = request[col.AT_DECODE]
            push(s.decode, d, col.RESERVING, s.request, col.NEXT_DECODE, r)
            touch_decode(s, d)
    own[col.N_STEP] = 0
    touch_prefill(s, w)


def start_copies(s: State, w: int) -> None:
    """Start the next retrieval and the next write-back of `w` where the path is idle."""
    now = s.run[col.NOW]
    r = s.prefill[w, col.RETRIEVING]
    if r >= 0 and due(s, h2d_resource(s, w)) == col.NEVER:
        pages = s.request[r, col.RETRIEVED]
        s.request[r, col.H2D_BEGAN] = now
        s.prefill[w, col.H2DS] += 1
        s.prefill[w, col.H2DS_BEYOND] += is_beyond(s, col.DOMAIN_PAYLOAD + col.H2D, pages * s.run[col.PAGE_BYTES])
        schedule(s, h2d_resource(s, w), now + path_duration(s, col.H2D, pages))
    r = s.prefill[w, col.WRITING]
    if r >= 0 and due(s, d2h_resource(s, w)) == col.NEVER:
        pages = s.request[r, col.WRITE_END] - s.request[r, col.WRITE_BEGIN]
        s.prefill[w, col.D2HS] += 1
        s.prefill[w, col.D2HS_BEYOND] += is_beyond(s, col.DOMAIN_PAYLOAD + col.D2H, pages * s.run[col.PAGE_BYTES])
        schedule(s, d2h_resource(s, w), now + path_duration(s, col.D2H, pages))


def end_retrieval(s: State, w: int) -> None:
    """End the retrieval of `w`: the request is ready to compute."""
    schedule(s, h2d_resource(s, w), col.NEVER)
    r = pop(s.prefill, w, col.RETRIEVING, s.request, col.NEXT_PREFILL)
    s.request[r, col.READY] = s.run[col.NOW]
    s.prefill[w, col.RETRIEVED_PAGES] += s.request[r, col.RETRIEVED]
    _reach(s, w, r, s.request[r, col.POSITION])
    push(s.prefill, w, col.READIED, s.request, col.NEXT_PREFILL, r)
    touch_prefill(s, w)


def end_write(s: State, w: int) -> None:
    """End the write-back of `w`: its pages are visible on the host."""
    schedule(s, d2h_resource(s, w), col.NEVER)
    r = pop(s.prefill, w, col.WRITING, s.request, col.NEXT_WRITE)
    s.prefill[w, col.WRITTEN_PAGES] += s.request[r, col.WRITE_END] - s.request[r, col.WRITE_BEGIN]
    show_written(s, r)
    let_go(s, w, r)
    touch_prefill(s, w)


def leave(s: State, w: int, r: int) -> None:
    """Free the slot and the rest of request `r`, whose handoff ended."""
    s.prefill[w, col.USED_SLOTS] -= 1
    left_prefill(s, r)
    _free_private(s, w, r, s.request[r, col.PRIVATE])
    let_go(s, w, r)
    touch_prefill(s, w)


def let_go(s: State, w: int, r: int) -> None:
    """End one of the holds on the chain of request `r`: its handoff, or its write-back."""
    s.request[r, col.HOLDS] -= 1
    if s.request[r, col.HOLDS] == 0:
        release(s, w, r)


def _admit(s: State, w: int, r: int, ask: PolicyFunctions) -> int:
    own, request = s.prefill[w], s.request[r]
    expire(s, w, ask)
    matched, following = match(s, w, r)
    retrieved = retrieved_pages(s, w, r, (matched, following, request[col.PAGES]), ask)
    if retrieved < 0:
        s.run[col.SUSPECT] = r
        return NONSENSE
    in_place = pages_in_place(s, r)
    need = request[col.PAGES] - matched - in_place
    if need > own[col.FREE] + own[col.IDLE] - idle_pages(s, r):
        return REFUSED
    pop(s.prefill, w, col.WAITING, s.request, col.NEXT_PREFILL)
    pin(s, w, r)
    make_room(s, w, col.DEVICE_TIER, need, ask)
    own[col.FREE] -= need
    occupy(s, host_pool(w) - 1, need, s.run[col.NOW])
    own[col.USED_SLOTS] += 1
    page = s.run[col.PAGE]
    begin = matched + (following - retrieved if s.run[col.FRONT] == 1 else 0)
    request[col.MATCHED], request[col.RETRIEVED] = matched, retrieved
    request[col.POSITION] = matched * page
    request[col.GAP_BEGIN], request[col.GAP_END] = begin * page, (begin + retrieved) * page
    request[col.TO_DO] = request[col.PROMPT] - (matched + retrieved) * page
    request[col.SENT], request[col.PRIVATE], request[col.IN_PLACE], request[col.HOLDS] = 0, need, in_place, 1
    request[col.ADMITTED] = s.run[col.NOW]
    end_waiting(s, w, r)
    if retrieved > 0:
        push(s.prefill, w, col.RETRIEVING, s.request, col.NEXT_PREFILL, r)
    else:
        request[col.READY] = s.run[col.NOW]
    return ADMITTED


def _take(s: State, w: int, r: int, budget: int) -> int:
    """Give request `r` its share of the step being formed; return the budget that is left [token]."""
    own, request, page = s.prefill[w], s.request[r], s.run[col.PAGE]
    tokens = request[col.TO_DO]
    if -(-tokens // page) * page > budget:
        tokens = budget
        own[col.PARTIAL] = r
    execute(s, w, r, tokens)
    if request[col.BEGAN] < 0:
        request[col.BEGAN] = s.run[col.NOW]
    own[col.N_PREFILL + own[col.N_STEP]] = r
    own[col.N_STEP] += 1
    return int(budget - -(-tokens // page) * page)


def _reach(s: State, w: int, r: int, position: int) -> None:
    """Bring request `r` to `position` [token], over what is retrieved there, and make its full pages visible."""
    request, page = s.request[r], s.run[col.PAGE]
    before = request[col.POSITION] // page
    request[col.POSITION] = request[col.GAP_END] if position == request[col.GAP_BEGIN] else position
    pages = request[col.POSITION] // page
    added = show(s, w, r, pages)
    in_place = request[col.IN_PLACE] if before < pages == request[col.FULL] else 0
    request[col.PRIVATE] -= added
    _free_private(s, w, r, pages - before - added - in_place)


def _free_private(s: State, w: int, r: int, pages: int) -> None:
    s.request[r, col.PRIVATE] -= pages
    s.prefill[w, col.FREE] += pages
    occupy(s, host_pool(w) - 1, -pages, s.run[col.NOW])


def _write_back(s: State, w: int, r: int, ask: PolicyFunctions) -> None:
    if claim_host(s, w, r, ask) > 0:
        s.request[r, col.HOLDS] += 1
        push(s.prefill, w, col.WRITING, s.request, col.NEXT_WRITE, r)


def _queue_chunk(s: State, w: int, r: int) -> None:
    """Make a chunk of what request `r` computed and matched since the last one."""
    request, page = s.request[r], s.run[col.PAGE]
    k = s.run[col.N_CHUNKS]
    s.run[col.N_CHUNKS] += 1
    s.chunk[k, col.CHUNK_REQUEST] = r
    s.chunk[k, col.CHUNK_PAGES] = -(-request[col.POSITION] // page) - -(-request[col.SENT] // page)
    s.chunk[k, col.CHUNK_IS_LAST] = int(request[col.PREFILLED] >= 0)
    request[col.SENT] = request[col.POSITION]
    if request[col.RESERVED] >= 0:
        push(s.prefill, w, col.SOURCE, s.chunk, col.CHUNK_NEXT, k)
        request[col.CHUNK_QUEUED] = s.run[col.NOW]
    else:
        push(s.request, r, col.CHUNK_HEAD, s.chunk, col.CHUNK_NEXT, k)
