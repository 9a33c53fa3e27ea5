"""The event loop: steps that end and arrivals of an instant, then the passes of the schedulers they touched."""

from __future__ import annotations

from kvsweep.cluster.policies.gateway import choose, looks_at_caches
from kvsweep.cluster.policies.gateway.loads import left_decode, left_prefill, prefilled, routed
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.arrivals import take
from kvsweep.cluster.shared.clock import due, earliest, occupy, touch_prefill
from kvsweep.cluster.shared.clock import schedule as schedule_event
from kvsweep.cluster.shared.completion import end, leave, reject
from kvsweep.cluster.shared.policy_functions import PolicyFunctions
from kvsweep.cluster.vllm import columns as c
from kvsweep.cluster.vllm.blocks import hits
from kvsweep.cluster.vllm.schedule import deliver, join_waiting, schedule
from kvsweep.cluster.vllm.state import Fleet
from kvsweep.cluster.vllm.steptime import extrapolated, step_picoseconds


def advance(f: Fleet, instants: int, ask: PolicyFunctions) -> int:
    """Run for up to `instants` instants; return DONE, or why it went no further.

    PAUSED and GROW (more windows, or lines of the log) can go on; STUCK and NONSENSE (a policy) cannot, and
    ``run[SUSPECT]`` is a request that shows it.
    """
    s = f.state
    for _ in range(instants):
        now = due(s, earliest(s))
        if now == col.NEVER:
            return end(s)
        if now // s.run[col.WINDOW] >= s.windows.size or _log_is_short(f):
            return col.GROW
        s.run[col.NOW] = now
        while due(s, earliest(s)) == now:
            resource = earliest(s)
            if resource < s.prefill.shape[0]:
                _end_step(f, resource)
            else:
                _arrive(f, ask)
        if s.run[col.FAULT] != 0:
            return col.NONSENSE
        first = s.run[col.TOUCHED]
        for place in range(first, first + s.run[col.N_TOUCHED]):
            _run_passes(f, s.lists[place])
        s.run[col.N_TOUCHED] = 0
    return col.PAUSED


def _log_is_short(f: Fleet) -> bool:
    """Return whether a log that is kept might not hold the steps of an instant."""
    rows = f.log.shape[0]
    return bool(rows > 0 and rows - f.state.run[c.N_LOG] < f.flight_end.size)


def _end_step(f: Fleet, k: int) -> None:
    """End the oldest step of worker `k`; what it frees is seen by whatever arrives now."""
    s, now = f.state, f.state.run[col.NOW]
    f.run[k, c.NOW] = now
    slot = f.run[k, c.FLIGHT_HEAD]
    deliver(f, k)
    s.windows[now // s.run[col.WINDOW]] += f.flight_count[k, slot]
    for i in range(f.flight_count[k, slot]):
        r = f.flight[k, slot, i]
        if s.request[r, c.RECEIVED] == 1:
            prefilled(s, r)
        if s.request[r, col.FINISHED] >= 0:
            _finish(f, r)
    _set_next(f, k)
    touch_prefill(s, k)


def _finish(f: Fleet, r: int) -> None:
    s = f.state
    left_prefill(s, r)
    left_decode(s, r)
    leave(s, r)


def _arrive(f: Fleet, ask: PolicyFunctions) -> None:
    """Give the request that arrives to a worker, or reject it."""
    s = f.state
    r = take(s)
    page = s.run[col.PAGE]
    room = -(-(s.request[r, col.PROMPT] + s.request[r, col.OUTPUT]) // page)
    if room > s.run[col.MOST_POOL]:
        reject(s, r)
        return
    s.request[r, col.REJECTED] = 0
    if looks_at_caches(s):
        for k in range(s.prefill.shape[0]):
            s.prefill[k, col.ON_DEVICE] = hits(f, k, r, (s.request[r, col.PROMPT] - 1) // page)
    k = choose(s, col.PREFILL_SIDE, r, room, ask)
    routed(s, r, k, k)
    f.run[k, c.NOW] = s.run[col.NOW]
    join_waiting(f, k, r)
    if f.run[k, c.N_FLIGHT] == 0:
        touch_prefill(s, k)


def _run_passes(f: Fleet, k: int) -> None:
    """Schedule and launch steps of worker `k`, as many as are to run and may be in flight."""
    s = f.state
    s.prefill[k, col.DIRTY] = 0
    schedule(f, k)
    while f.step[k, c.TOKENS] > 0:
        _launch(f, k)
        if f.run[k, c.N_FLIGHT] == f.limits[k, c.STEPS_IN_FLIGHT]:
            break
        schedule(f, k)
    _set_next(f, k)


def _set_next(f: Fleet, k: int) -> None:
    """Have the oldest step in flight of worker `k` be its next event, and count what its blocks hold."""
    s = f.state
    schedule_event(s, k, f.flight_end[k, f.run[k, c.FLIGHT_HEAD]] if f.run[k, c.N_FLIGHT] > 0 else col.NEVER)
    held = f.limits[k, c.N_BLOCKS] - f.run[k, c.N_FREE] + f.run[k, c.N_IDLE]
    occupy(s, 2 * k, held - int(s.real[col.N_REAL + 4 * k]), s.run[col.NOW])


def _launch(f: Fleet, k: int) -> None:
    """Put the scheduled step behind those in flight."""
    s = f.state
    graphs = f.times.graphs[f.limits[k, c.GRAPHS_BEGIN] : f.limits[k, c.GRAPHS_END]]
    slot = (f.run[k, c.FLIGHT_HEAD] + f.run[k, c.N_FLIGHT]) % f.limits[k, c.STEPS_IN_FLIGHT]
    start = max(f.run[k, c.NOW], f.run[k, c.GPU_FREE])
    duration = step_picoseconds(f.times, graphs, f.step[k])
    # A step that ends beyond the clock is never due: the run is refused.
    end = start + duration if start < col.NEVER and duration < col.NEVER - start else col.NEVER + 1
    beyond = extrapolated(f.times, f.step[k])
    f.flight_end[k, slot] = end
    f.run[k, c.GPU_FREE] = end
    f.run[k, c.N_FLIGHT] += 1
    own = s.prefill[k]
    own[col.STEPS] += 1
    own[col.STEPS_BEYOND] += beyond
    own[col.BUSY_TIME] += end - start
    own[col.EVICTED] = f.run[k, c.EVICTED]
    if f.log.shape[0] > 0:
        line, step = f.log[s.run[c.N_LOG]], f.step[k]
        line[c.START], line[c.END] = start, end
        line[c.LOG_TOKENS], line[c.LOG_CHUNK], line[c.LOG_ROWS] = step[c.TOKENS], step[c.CHUNK], step[c.ROWS]
        line[c.LOG_RUNNING], line[c.LOG_WAITING] = f.run[k, c.N_RUNNING], f.run[k, c.N_WAITING]
        line[c.LOG_FREE], line[c.LOG_EXTRAPOLATED] = f.run[k, c.N_FREE], beyond
        s.run[c.N_LOG] += 1
