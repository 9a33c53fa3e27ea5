"""The loop of a prefill worker (README §5)."""

from __future__ import annotations

from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.engine.cache.insertion import insert, let_go
from kvsweep.cluster.engine.cache.kv import host_lock
from kvsweep.cluster.engine.chunks import is_short
from kvsweep.cluster.engine.resources import stepping_resource
from kvsweep.cluster.engine.workers.rounds import (
    BATCH,
    FAILED,
    form_batch,
    join_waiting,
    launch,
    set_timer,
    unlink,
)
from kvsweep.cluster.engine.workers.transfer import queue_chunk, settle
from kvsweep.cluster.policies.gateway.loads import left_prefill, prefilled
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.clock import push, schedule
from kvsweep.cluster.shared.policy_functions import PolicyFunctions
from kvsweep.cluster.shared.state import State
from kvsweep.cluster.shared.waiting import begin_waiting

AT_REST, NEEDS_ROWS, NONSENSE = range(3)
"""What a loop comes to."""


def run_loop(s: State, w: int, ask: PolicyFunctions) -> int:
    """Run the loop of worker `w` until it is busy or has nothing to do."""
    own = s.prefill[w]
    if own[eng.PHASE] == eng.STEPPING and own[eng.RESULTS_DUE] == 1:
        own[eng.RESULTS_DUE] = 0
        _process_results(s, w, ask)
    moved = True
    while moved and own[eng.PHASE] == eng.IDLE:
        if is_short(s, 10 * own[col.SLOTS] + 512, 4 * own[col.SLOTS] + 8):
            return NEEDS_ROWS
        _insert_step(s, w, ask)
        moved = s.run[eng.OVERLAP] == 0 and _process_results(s, w, ask)
        moved = _bootstrap(s, w) or moved
        own[eng.HELD_BEFORE] = own[col.USED_SLOTS]
        own[eng.OFF] = own[eng.OFF_UP] = 0
        code = form_batch(s, w, ask)
        if code == FAILED:
            return NONSENSE
        if code == BATCH:
            launch(s, w)
        if own[eng.PHASE] == eng.STALLED:
            own[eng.RESULTS_DUE] = s.run[eng.OVERLAP]
        elif s.run[eng.OVERLAP] == 1:
            moved = _process_results(s, w, ask) or moved
    if own[eng.PHASE] == eng.IDLE:
        set_timer(s, w)
    return AT_REST


def end_phase(s: State, w: int) -> None:
    """End what worker `w` is busy with: its stall, or its step."""
    own, resource = s.prefill[w], stepping_resource(s, w)
    if own[eng.PHASE] == eng.STALLED:
        own[eng.PHASE] = eng.STEPPING
        schedule(s, resource, s.run[col.NOW] + own[eng.STEP_TIME])
        return
    schedule(s, resource, col.NEVER)
    if own[eng.PHASE] == eng.STEPPING:
        own[eng.PHASE] = eng.IDLE
        for place in range(own[col.N_STEP]):
            r = s.prefill[w, s.run[eng.STEP_LIST] + place]
            if s.request[r, eng.GAP_NODE] >= 0:  # before any request of the step inserts its pages, which may evict
                host_lock(s, s.request[r, eng.GAP_NODE], s.request[r, eng.GAP_DEPTH], -1)
                s.request[r, eng.GAP_NODE] = -1
            if s.request[r, col.TO_DO] == 0 and s.request[r, col.PREFILLED] < 0:
                s.request[r, col.PREFILLED] = s.run[col.NOW]
                prefilled(s, r)


def join_bootstrap(s: State, w: int, r: int) -> None:
    """Note that request `r`, which waits at worker `w`, has got its destination; they stay in order of arrival."""
    request = s.request
    begin_waiting(s, w, r)
    head, tail = s.prefill[w, eng.BOOTING], s.prefill[w, eng.BOOTING_TAIL]
    if head < 0 or request[tail, eng.SORT_KEY] < request[r, eng.SORT_KEY]:
        push(s.prefill, w, eng.BOOTING, request, col.NEXT_PREFILL, r)
        return
    if request[head, eng.SORT_KEY] > request[r, eng.SORT_KEY]:
        request[r, col.NEXT_PREFILL] = head
        s.prefill[w, eng.BOOTING] = r
        return
    before = head
    while request[request[before, col.NEXT_PREFILL], eng.SORT_KEY] < request[r, eng.SORT_KEY]:
        before = request[before, col.NEXT_PREFILL]
    request[r, col.NEXT_PREFILL] = request[before, col.NEXT_PREFILL]
    request[before, col.NEXT_PREFILL] = r


def reach(s: State, w: int, r: int, ask: PolicyFunctions) -> None:
    """Bring request `r` to where its step got it and insert its pages."""
    request = s.request[r]
    end = request[col.NEXT_POSITION]
    request[col.POSITION] = request[col.GAP_END] if end == request[col.GAP_BEGIN] else end
    if request[col.TO_DO] == 0:
        request[eng.COMPLETE] = 1
    insert(s, w, r, request[col.POSITION] // s.run[col.PAGE], int(request[col.TO_DO] == 0), ask)


def _insert_step(s: State, w: int, ask: PolicyFunctions) -> None:
    own = s.prefill[w]
    for place in range(own[col.N_STEP]):
        r = s.prefill[w, s.run[eng.STEP_LIST] + place]
        reach(s, w, r, ask)
        s.prefill[w, s.run[eng.DONE_LIST] + place] = r
    own[eng.N_DONE] = own[col.N_STEP]
    own[col.N_STEP] = 0


def _bootstrap(s: State, w: int) -> bool:
    """Move requests with a destination to the waiting queue; return whether there were any."""
    own, moved = s.prefill[w], False
    while own[eng.BOOTING] >= 0 and own[eng.BETWEEN] < 2 * own[col.SLOTS]:
        r = own[eng.BOOTING]
        own[eng.BOOTING] = s.request[r, col.NEXT_PREFILL]
        own[eng.BETWEEN] += 1
        join_waiting(s, w, r)
        moved = True
    return moved


def _process_results(s: State, w: int, ask: PolicyFunctions) -> bool:
    """Send what the step that ended has reached, and end what has arrived; return whether requests moved."""
    own = s.prefill[w]
    moved = False
    for place in range(own[eng.N_DONE]):
        r = s.prefill[w, s.run[eng.DONE_LIST] + place]
        queue_chunk(s, w, r)
        if s.request[r, eng.COMPLETE] == 1:
            push(s.prefill, w, eng.INFLIGHT, s.request, col.NEXT_PREFILL, r)
            moved = True
    own[eng.N_DONE] = 0
    return _end_arrived(s, w, ask) or moved


def _end_arrived(s: State, w: int, ask: PolicyFunctions) -> bool:
    """End the in-flight stage of the requests whose last chunk has arrived; return whether there were any."""
    own, moved = s.prefill[w], False
    before, r = -1, own[eng.INFLIGHT]
    while r >= 0:
        after = s.request[r, col.NEXT_PREFILL]
        if s.request[r, col.HANDED] < 0:
            before = r
        else:
            unlink(s, w, eng.INFLIGHT, before, after)
            insert(s, w, r, s.request[r, col.FULL], 1, ask)
            let_go(s, w, r)
            own[col.USED_SLOTS] -= 1
            own[eng.BETWEEN] -= 1
            left_prefill(s, r)
            s.request[r, eng.ANSWERED] = s.run[col.NOW]
            settle(s, r)
            moved = True
        r = after
    return moved
