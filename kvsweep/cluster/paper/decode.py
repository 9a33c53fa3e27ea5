"""Decode workers: reservations, continuous batching, steps skipped up to the next change (README §7, §9)."""

from __future__ import annotations

from kvsweep.cluster.policies.gateway.loads import left_decode
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.clock import (
    decode_duration,
    decode_pool,
    decode_resource,
    is_beyond,
    occupy,
    pop,
    schedule,
    touch_decode,
)
from kvsweep.cluster.shared.completion import leave
from kvsweep.cluster.shared.state import State


def reserve_next(s: State, d: int) -> int:
    """Reserve room for the first request that waits for it; return it, or -1 where none waits or none fits."""
    r = s.decode[d, col.RESERVING]
    if r < 0:
        return -1
    own, page = s.decode[d], s.run[col.PAGE]
    room = -(-(s.request[r, col.PROMPT] + s.request[r, col.OUTPUT]) // page)
    if own[col.PROMISED] + room > own[col.POOL]:
        return -1
    pop(s.decode, d, col.RESERVING, s.request, col.NEXT_DECODE)
    own[col.PROMISED] += room
    _hold(s, d, s.request[r, col.PAGES], s.run[col.NOW])
    s.request[r, col.RESERVED] = s.run[col.NOW]
    return int(r)


def start_run(s: State, d: int) -> None:
    """At a step boundary, let waiting requests join and plan the steps up to the next finish."""
    own, now = s.decode[d], s.run[col.NOW]
    if own[col.RUN] > 0:
        return
    fresh = own[col.RUNNING]
    while own[col.RUNNING] < own[col.MAX_RUNNING] and s.decode[d, col.JOINING] >= 0:
        _join(s, d, pop(s.decode, d, col.JOINING, s.request, col.NEXT_DECODE))
    n = own[col.RUNNING]
    if n == 0:
        return
    own[col.BOUNDARY] = now
    end = now + decode_duration(s, d, n, own[col.CONTEXT])
    for place in range(fresh, n):
        s.request[s.decode[d, col.N_DECODE + place], col.FIRST_TOKEN] = end
    steps = s.request[s.decode[d, col.N_DECODE], col.FINISH_STEP]
    for place in range(1, n):
        steps = min(steps, s.request[s.decode[d, col.N_DECODE + place], col.FINISH_STEP])
    own[col.RUN] = steps - own[col.STEP]
    context = own[col.CONTEXT]
    for _ in range(1, own[col.RUN]):
        context += n
        end += decode_duration(s, d, n, context)
    schedule(s, decode_resource(s, d), end)


def end_run_early(s: State, d: int) -> None:
    """Let the run of steps end at the first boundary from now on, as a request would join there."""
    own, now = s.decode[d], s.run[col.NOW]
    if own[col.RUN] <= 1 or own[col.RUNNING] >= own[col.MAX_RUNNING]:
        return
    end, context, steps = own[col.BOUNDARY], own[col.CONTEXT], 0
    while end < now or steps == 0:
        end += decode_duration(s, d, own[col.RUNNING], context)
        context += own[col.RUNNING]
        steps += 1
    own[col.RUN] = steps
    schedule(s, decode_resource(s, d), end)


def end_run(s: State, d: int) -> None:
    """Commit the steps that were planned, finish the requests that are through."""
    own, n, page = s.decode[d], s.decode[d, col.RUNNING], s.run[col.PAGE]
    time = own[col.BOUNDARY]
    batch_beyond = is_beyond(s, col.DOMAIN_BATCH, n)
    for _ in range(own[col.RUN]):
        grown = s.decode[d, s.run[col.GROWTH] + own[col.STEP] % page]
        if grown > 0:
            _hold(s, d, grown, time)
        own[col.DECODE_STEPS_BEYOND] += batch_beyond | is_beyond(s, col.DOMAIN_CONTEXT, own[col.CONTEXT])
        time += decode_duration(s, d, n, own[col.CONTEXT])
        s.windows[time // s.run[col.WINDOW]] += n
        own[col.CONTEXT] += n
        own[col.STEP] += 1
    own[col.BUSY_TIME] += time - own[col.BOUNDARY]
    own[col.DECODE_STEPS] += own[col.RUN]
    own[col.RUN] = 0
    schedule(s, decode_resource(s, d), col.NEVER)
    kept = 0
    for place in range(n):
        r = s.decode[d, col.N_DECODE + place]
        if s.request[r, col.FINISH_STEP] == own[col.STEP]:
            _finish(s, d, r)
        else:
            s.decode[d, col.N_DECODE + kept] = r
            kept += 1
    own[col.RUNNING] = kept
    touch_decode(s, d)


def _join(s: State, d: int, r: int) -> None:
    own, request = s.decode[d], s.request[r]
    s.decode[d, col.N_DECODE + own[col.RUNNING]] = r
    own[col.RUNNING] += 1
    own[col.CONTEXT] += request[col.PROMPT]
    request[col.JOINED] = s.run[col.NOW]
    request[col.FINISH_STEP] = own[col.STEP] + request[col.OUTPUT]
    s.decode[d, s.run[col.GROWTH] + _residue(s, d, r)] += 1


def _finish(s: State, d: int, r: int) -> None:
    own, request, page = s.decode[d], s.request[r], s.run[col.PAGE]
    tokens = request[col.PROMPT] + request[col.OUTPUT]
    own[col.CONTEXT] -= tokens
    s.decode[d, s.run[col.GROWTH] + _residue(s, d, r)] -= 1
    own[col.PROMISED] -= -(-tokens // page)
    _hold(s, d, -tokens // page, s.run[col.NOW])
    left_decode(s, r)
    request[col.FINISHED] = s.run[col.NOW]
    leave(s, r)
    if s.run[col.LEFT] == 0:
        # Where all arrive at once; what is dropped from now on must not weigh on the mean.
        s.run[col.OCCUPANCY_END] = min(s.run[col.OCCUPANCY_END], s.run[col.NOW])


def _residue(s: State, d: int, r: int) -> int:
    """Return the residue of the steps before which request `r` fills its last page."""
    page = s.run[col.PAGE]
    began = s.request[r, col.FINISH_STEP] - s.request[r, col.OUTPUT]
    return int((began - s.request[r, col.PROMPT]) % page)


def _hold(s: State, d: int, pages: int, time: int) -> None:
    s.decode[d, col.HELD] += pages
    occupy(s, decode_pool(s, d), pages, time)
