"""The event loop: events of an instant first, then the work they made eligible (README §3, §4)."""

from __future__ import annotations

from kvsweep.cluster import columns as col
from kvsweep.cluster.audit import broken_rule
from kvsweep.cluster.clock import arrival_resource, schedule
from kvsweep.cluster.decode import end_run, reserve_next, start_run
from kvsweep.cluster.gateway import choose
from kvsweep.cluster.prefill import end_retrieval, end_step, end_write, form_step, join_waiting, start_copies
from kvsweep.cluster.retrieval import Decide, note_arrival
from kvsweep.cluster.state import State
from kvsweep.cluster.tiers import expire, resolve
from kvsweep.cluster.transfer import end_chunk, plan_inbound, release_chunks, send_next


def advance(s: State, instants: int, decide: Decide) -> int:
    """Run for up to `instants` instants; return DONE, or why it went no further.

    PAUSED and GROW (more windows are needed) can go on; STUCK, BROKEN (a checked rule) and NONSENSE (a policy) cannot,
    and ``clock[SUSPECT]`` is a request that shows it.
    """
    for _ in range(instants):
        now = s.when[s.tree[1]]
        if now == col.NEVER:
            return _end(s)
        if now // s.settings[col.WINDOW] >= s.windows.size:
            return col.GROW
        s.clock[col.NOW] = now
        while s.when[s.tree[1]] == now:
            _handle(s, s.tree[1])
        if not _dispatch(s, decide):
            return col.NONSENSE
        if s.settings[col.AUDITED] == 1:
            s.clock[col.BROKEN_RULE] = broken_rule(s)
            if s.clock[col.BROKEN_RULE] != 0:
                return col.BROKEN
    return col.PAUSED


def _end(s: State) -> int:
    for w in range(s.prefill.shape[0]):
        expire(s, w)
    if s.clock[col.LEFT] == 0:
        return col.DONE
    for r in range(s.request.shape[0]):
        if s.request[r, col.FINISHED] < 0 and s.request[r, col.REJECTED] != 1:
            s.clock[col.SUSPECT] = r
            break
    return col.STUCK


def _handle(s: State, resource: int) -> None:
    """Change the state by the event that is due at `resource`."""
    n_prefill, n_decode = s.prefill.shape[0], s.decode.shape[0]
    if resource < n_decode:
        end_chunk(s, resource)
    elif resource < 2 * n_decode:
        end_run(s, resource - n_decode)
    elif resource < 2 * n_decode + n_prefill:
        end_retrieval(s, resource - 2 * n_decode)
    elif resource < 2 * (n_decode + n_prefill):
        end_write(s, resource - 2 * n_decode - n_prefill)
    elif resource < 2 * n_decode + 3 * n_prefill:
        end_step(s, resource - 2 * (n_decode + n_prefill))
    else:
        _arrive(s)


def _arrive(s: State) -> None:
    r = s.clock[col.NEXT_ARRIVAL]
    s.clock[col.NEXT_ARRIVAL] = r + 1
    more = r + 1 < s.request.shape[0]
    schedule(s, arrival_resource(s), s.request[r + 1, col.ARRIVAL] if more else col.NEVER)
    page = s.settings[col.PAGE]
    at_prefill = s.request[r, col.PAGES]
    at_decode = -(-(s.request[r, col.PROMPT] + s.request[r, col.OUTPUT]) // page)
    if s.prefill[:, col.POOL].max() < at_prefill or s.decode[:, col.POOL].max() < at_decode:
        s.request[r, col.REJECTED] = 1
        s.clock[col.LEFT] -= 1
        return
    s.request[r, col.REJECTED] = 0
    w = choose(s, col.PREFILL_SIDE, r, at_prefill)
    d = choose(s, col.DECODE_SIDE, r, at_decode)
    s.request[r, col.AT_PREFILL], s.request[r, col.AT_DECODE] = w, d
    s.prefill[w, col.LOAD] += 1
    s.decode[d, col.LOAD] += 1
    note_arrival(s, w, r)
    resolve(s, w, r)
    join_waiting(s, w, r)


def _dispatch(s: State, decide: Decide) -> bool:
    """Start what is eligible at the workers that were touched, stage by stage; False where a policy failed.

    A stage may touch further workers, for later stages alone.
    """
    i = 0
    while i < s.clock[col.N_DIRTY_DECODE]:
        r = reserve_next(s, s.dirty_decode[i])
        while r >= 0:
            release_chunks(s, r)
            r = reserve_next(s, s.dirty_decode[i])
        i += 1
    for i in range(s.clock[col.N_DIRTY_PREFILL]):
        send_next(s, s.dirty_prefill[i])
    for i in range(s.clock[col.N_DIRTY_DECODE]):
        d = s.dirty_decode[i]
        plan_inbound(s, d)
        start_run(s, d)
        s.decode[d, col.DIRTY] = 0
    s.clock[col.N_DIRTY_DECODE] = 0
    for i in range(s.clock[col.N_DIRTY_PREFILL]):
        w = s.dirty_prefill[i]
        if not form_step(s, w, decide):
            return False
        start_copies(s, w)
        s.prefill[w, col.DIRTY] = 0
    s.clock[col.N_DIRTY_PREFILL] = 0
    return True
