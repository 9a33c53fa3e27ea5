"""The loop of a colocated worker, prefill before decode (README §8)."""

from __future__ import annotations

from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.engine.cache.insertion import insert, let_go
from kvsweep.cluster.engine.cache.kv import evict
from kvsweep.cluster.engine.chunks import is_short
from kvsweep.cluster.engine.resources import decoding_resource
from kvsweep.cluster.engine.workers.batch import (
    commit_run,
    drop,
    join,
    member,
    pages_needed,
    planned_tokens,
    start_run,
    stored,
    victim,
)
from kvsweep.cluster.engine.workers.prefill import AT_REST, NEEDS_ROWS, NONSENSE, reach
from kvsweep.cluster.engine.workers.rounds import BATCH, FAILED, form_batch, join_waiting, launch, poll, set_timer
from kvsweep.cluster.policies.gateway.loads import left_decode, left_prefill
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.clock import schedule
from kvsweep.cluster.shared.completion import leave
from kvsweep.cluster.shared.policy_functions import PolicyFunctions
from kvsweep.cluster.shared.state import State

HEADROOM = 20
"""Decode steps for which a retraction makes room."""


def run_colocated_loop(s: State, w: int, ask: PolicyFunctions) -> int:
    """Run the loop of worker `w` until it is busy or has nothing to do."""
    own, batch = s.prefill[w], s.decode[w]
    if own[eng.PHASE] == eng.STEPPING and own[eng.RESULTS_DUE] == 1:
        own[eng.RESULTS_DUE] = 0
        _leave_through(s, w, ask)
    while own[eng.PHASE] == eng.IDLE and (batch[eng.ACTIVE] == eng.RESTING or batch[eng.ACTIVE] == eng.DECODED):
        if is_short(s, 16 * own[col.SLOTS] + 512, 4 * own[col.SLOTS] + 8):
            return NEEDS_ROWS
        moved = _end_step(s, w, ask)
        code = _round(s, w, ask)
        if code == FAILED:
            return NONSENSE
        if code == BATCH:
            launch(s, w)
        elif batch[col.RUNNING] > 0:
            _start_step(s, w, ask)
        if own[eng.PHASE] == eng.STALLED:
            own[eng.RESULTS_DUE] = 1
        elif batch[eng.ACTIVE] != eng.DECODING:
            moved = _leave_through(s, w, ask) or moved
        if _is_idle(s, w) and not moved:
            _rest(s, w)
            set_timer(s, w)
            break
    return AT_REST


def _is_idle(s: State, w: int) -> bool:
    return bool(s.prefill[w, eng.PHASE] == eng.IDLE and s.decode[w, eng.ACTIVE] == eng.RESTING)


def _rest(s: State, w: int) -> None:
    """Begin the last ratio anew where nothing is left to do."""
    if s.decode[w, col.RUNNING] == 0 and s.prefill[w, col.WAITING] < 0 and s.prefill[w, col.PARTIAL] < 0:
        s.real[_ratio(s, w)] = s.real[_ratio(s, w) + 1]


def _round(s: State, w: int, ask: PolicyFunctions) -> int:
    """Build a prefill batch beside what runs; the worker is full where that ended for lack of slots or of room."""
    own, batch = s.prefill[w], s.decode[w]
    own[eng.HELD_BEFORE] = batch[col.RUNNING]
    off = planned_tokens(s, w) * s.real[_ratio(s, w)]
    own[eng.OFF] = int(off)
    own[eng.OFF_UP] = own[eng.OFF] + int(off > own[eng.OFF])
    own[eng.WHY] = col.NOT_BLOCKED
    code = form_batch(s, w, ask)
    if own[eng.WHY] != col.NOT_BLOCKED and own[col.N_STEP] + batch[col.RUNNING] > 0:
        own[eng.BATCH_FULL] = 1
    return code


def _ratio(s: State, w: int) -> int:
    """Return where the ratio of worker `w` stands; it is followed by its start, its least, what a step takes off."""
    return int(s.run[eng.RATIOS] + eng.N_RATIO * w)


def _end_step(s: State, w: int, ask: PolicyFunctions) -> bool:
    """End the step that ended, of either kind; return whether a request left."""
    own, batch, moved = s.prefill[w], s.decode[w], False
    if batch[eng.ACTIVE] == eng.DECODED:
        batch[eng.ACTIVE] = eng.RESTING
        steps = batch[col.RUN]
        stale = batch[eng.N_STALE] > 0
        commit_run(s, w)
        _lower_ratio(s, w, steps)
        if stale:
            moved = _leave_stale(s, w, ask)
        _note_last_tokens(s, w)
    for place in range(own[col.N_STEP]):
        r = s.prefill[w, s.run[eng.STEP_LIST] + place]
        reach(s, w, r, ask)
        if s.request[r, eng.COMPLETE] == 1:
            _join(s, w, r)
    own[col.N_STEP] = 0
    if s.run[eng.OVERLAP] == 0:
        moved = _leave_through(s, w, ask) or moved
    return moved


def _join(s: State, w: int, r: int) -> None:
    """Give request `r`, which is complete, its next token and let it join the batch."""
    request, now = s.request[r], s.run[col.NOW]
    request[eng.GENERATED] += 1
    s.windows[now // s.run[col.WINDOW]] += 1
    if request[col.FIRST_TOKEN] < 0:
        request[col.FIRST_TOKEN] = request[col.JOINED] = now
    join(s, w, r)
    if request[eng.GENERATED] == request[col.OUTPUT]:
        _finish(s, r)


def _note_last_tokens(s: State, w: int) -> None:
    for place in range(s.decode[w, col.RUNNING]):
        r = member(s, w, place)
        if s.request[r, col.FINISH_STEP] <= s.decode[w, col.STEP] and s.request[r, col.FINISHED] < 0:
            _finish(s, r)


def _finish(s: State, r: int) -> None:
    s.request[r, eng.LAST_TOKEN] = s.request[r, col.FINISHED] = s.run[col.NOW]
    left_prefill(s, r)
    left_decode(s, r)
    leave(s, r)
    if s.run[col.LEFT] == 0:
        s.run[col.OCCUPANCY_END] = min(s.run[col.OCCUPANCY_END], s.run[col.NOW])


def _leave_stale(s: State, w: int, ask: PolicyFunctions) -> bool:
    """Let the members leave that were through before the step that ended; return whether there were any."""
    return _leave_from(s, w, s.decode[w, col.STEP] - 1, ask)


def _leave_through(s: State, w: int, ask: PolicyFunctions) -> bool:
    """Let the members that are through leave; return whether there were any."""
    return _leave_from(s, w, s.decode[w, col.STEP], ask)


def _leave_from(s: State, w: int, step: int, ask: PolicyFunctions) -> bool:
    place, found = 0, False
    while s.decode[w, eng.N_STALE] > 0 and place < s.decode[w, col.RUNNING]:
        r = member(s, w, place)
        if s.request[r, col.FINISH_STEP] > step:
            place += 1
            continue
        tokens = stored(s, w, r)
        drop(s, w, place)
        s.request[r, eng.HELD_PAGES] = -(-tokens // s.run[col.PAGE]) - s.request[r, eng.COVERED]
        insert(s, w, r, tokens // s.run[col.PAGE], 1, ask)
        let_go(s, w, r)
        s.prefill[w, eng.BATCH_FULL] = 0
        found = True
    return found


def _start_step(s: State, w: int, ask: PolicyFunctions) -> None:
    """Begin decode steps, after evicting and retracting for their pages; none where the last one finds no page."""
    own, batch = s.prefill[w], s.decode[w]
    batch[eng.LOWERED] = 1
    if pages_needed(s, w) > own[col.FREE]:
        poll(s, w)
        evict(s, w, pages_needed(s, w) * s.run[col.PAGE], ask)
        _make_room(s, w, ask)
        if pages_needed(s, w) > own[col.FREE]:
            _stall(s, w)
            return
    steps = 1 << 40
    if own[col.PARTIAL] >= 0 or (own[col.WAITING] >= 0 and own[eng.BATCH_FULL] == 0):
        steps = 1
    start_run(s, w, s.run[col.NOW] + own[eng.STALL], steps)


def _stall(s: State, w: int) -> None:
    """Be busy for the stall, where there is one without a step after it."""
    if s.prefill[w, eng.STALL] > 0:
        s.decode[w, eng.ACTIVE] = eng.STALLING
        schedule(s, decoding_resource(s, w), s.run[col.NOW] + s.prefill[w, eng.STALL])


def _make_room(s: State, w: int, ask: PolicyFunctions) -> None:
    own, batch = s.prefill[w], s.decode[w]
    retracted = False
    while pages_needed(s, w) > own[col.FREE] and batch[col.RUNNING] - batch[eng.N_STALE] > 1:
        _retract(s, w, victim(s, w))
        retracted = True
        if pages_needed(s, w) > own[col.FREE]:
            evict(s, w, pages_needed(s, w) * s.run[col.PAGE], ask)
    if pages_needed(s, w) > own[col.FREE] and own[col.PARTIAL] >= 0:
        _give_up(s, w, own[col.PARTIAL])
        own[col.PARTIAL] = -1
        evict(s, w, pages_needed(s, w) * s.run[col.PAGE], ask)
    if retracted:
        _raise_ratio(s, w)


def _retract(s: State, w: int, place: int) -> None:
    tokens = stored(s, w, member(s, w, place))
    r = drop(s, w, place)
    request = s.request[r]
    request[eng.HELD_PAGES] = -(-tokens // s.run[col.PAGE]) - request[eng.COVERED]
    let_go(s, w, r)
    request[eng.TOKENS] = request[col.PROMPT] + request[eng.GENERATED]
    request[eng.COVERED] = request[eng.COMPLETE] = 0
    join_waiting(s, w, r)
    s.prefill[w, eng.BATCH_FULL] = 0
    s.decode[w, eng.RETRACTIONS] += 1


def _give_up(s: State, w: int, r: int) -> None:
    """Put the partial request `r` back at the head of the waiting queue."""
    let_go(s, w, r)
    s.request[r, eng.COVERED] = 0
    first = s.prefill[w, col.WAITING]
    s.request[r, col.NEXT_PREFILL] = first
    s.prefill[w, col.WAITING] = r
    if first < 0:
        s.prefill[w, col.WAITING_TAIL] = r


def _raise_ratio(s: State, w: int) -> None:
    done = planned = 0
    n = s.decode[w, col.RUNNING]
    for place in range(n):
        r = member(s, w, place)
        done += stored(s, w, r) + 1 - s.request[r, col.PROMPT]
        planned += s.request[r, col.OUTPUT]
    s.real[_ratio(s, w)] = min(1.0, (done + HEADROOM * n) / (planned + 1))
    s.decode[w, eng.LOWERED] = 0


def _lower_ratio(s: State, w: int, steps: int) -> None:
    """Take off the ratio what `steps` steps do, but for a first one that retracted."""
    at = _ratio(s, w)
    for _ in range(steps - (1 - s.decode[w, eng.LOWERED])):
        if s.real[at] == s.real[at + 2]:
            break
        s.real[at] = max(s.real[at] - s.real[at + 3], s.real[at + 2])
