"""The event loop: events of an instant first, then the work they made eligible (README §3, §4)."""

from __future__ import annotations

from kvsweep.cluster.paper.decode import end_run, reserve_next, start_run
from kvsweep.cluster.paper.prefill import end_retrieval, end_step, end_write, form_step, join_waiting, start_copies
from kvsweep.cluster.paper.tiers import expire, match, resolve
from kvsweep.cluster.paper.transfer import end_chunk, plan_inbound, release_chunks, send_next
from kvsweep.cluster.policies.gateway import choose, looks_at_caches
from kvsweep.cluster.policies.gateway.loads import routed
from kvsweep.cluster.policies.retrieval import note_arrival
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.arrivals import take
from kvsweep.cluster.shared.clock import due, earliest
from kvsweep.cluster.shared.completion import end, reject
from kvsweep.cluster.shared.policy_functions import PolicyFunctions
from kvsweep.cluster.shared.state import State


def advance(s: State, instants: int, ask: PolicyFunctions) -> int:
    """Run for up to `instants` instants; return DONE, or why it went no further.

    PAUSED and GROW (more windows are needed) can go on; STUCK and NONSENSE (a policy) cannot, and ``run[SUSPECT]`` is a
    request that shows it.
    """
    for _ in range(instants):
        now = due(s, earliest(s))
        if now == col.NEVER:
            return _end(s, ask)
        if now // s.run[col.WINDOW] >= s.windows.size:
            return col.GROW
        s.run[col.NOW] = now
        while due(s, earliest(s)) == now:
            _handle(s, earliest(s), ask)
        if not _dispatch(s, ask) or s.run[col.FAULT] != 0:
            return col.NONSENSE
    return col.PAUSED


def _end(s: State, ask: PolicyFunctions) -> int:
    for w in range(s.prefill.shape[0]):
        expire(s, w, ask)
    if s.run[col.FAULT] != 0:
        return col.NONSENSE
    return end(s)


def _handle(s: State, resource: int, ask: PolicyFunctions) -> None:
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
        end_step(s, resource - 2 * (n_decode + n_prefill), ask)
    else:
        _arrive(s, ask)


def _arrive(s: State, ask: PolicyFunctions) -> None:
    r = take(s)
    page = s.run[col.PAGE]
    at_prefill = s.request[r, col.PAGES]
    at_decode = -(-(s.request[r, col.PROMPT] + s.request[r, col.OUTPUT]) // page)
    if at_prefill > s.run[col.MOST_POOL] or at_decode > s.run[col.MOST_POOL_DECODE]:
        reject(s, r)
        return
    s.request[r, col.REJECTED] = 0
    if looks_at_caches(s):
        _match_everywhere(s, r, ask)
    w = choose(s, col.PREFILL_SIDE, r, at_prefill, ask)
    d = choose(s, col.DECODE_SIDE, r, at_decode, ask)
    routed(s, r, w, d)
    note_arrival(s, w, r)
    resolve(s, w, r)
    join_waiting(s, w, r)


def _match_everywhere(s: State, r: int, ask: PolicyFunctions) -> None:
    for w in range(s.prefill.shape[0]):
        expire(s, w, ask)
        s.prefill[w, col.ON_DEVICE], s.prefill[w, col.ON_HOST] = match(s, w, r)


def _dispatch(s: State, ask: PolicyFunctions) -> bool:
    """Start what is eligible at the workers that were touched, stage by stage; False where a policy failed.

    A stage may touch further workers, for later stages alone.
    """
    first, first_decode = s.run[col.TOUCHED], s.run[col.TOUCHED_DECODE]
    for place in range(first_decode, first_decode + s.run[col.N_TOUCHED_DECODE]):
        r = reserve_next(s, s.lists[place])
        while r >= 0:
            release_chunks(s, r)
            r = reserve_next(s, s.lists[place])
    for place in range(first, first + s.run[col.N_TOUCHED]):
        send_next(s, s.lists[place])
    for place in range(first_decode, first_decode + s.run[col.N_TOUCHED_DECODE]):
        d = s.lists[place]
        s.decode[d, col.DIRTY] = 0
        plan_inbound(s, d)
        start_run(s, d)
    s.run[col.N_TOUCHED_DECODE] = 0
    for place in range(first, first + s.run[col.N_TOUCHED]):
        w = s.lists[place]
        s.prefill[w, col.DIRTY] = 0
        if not form_step(s, w, ask):
            return False
        start_copies(s, w)
    s.run[col.N_TOUCHED] = 0
    return True
