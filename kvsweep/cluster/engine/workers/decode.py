"""The loop of a decode worker (README §6)."""

from __future__ import annotations

from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.engine.resources import decoding_resource
from kvsweep.cluster.engine.workers.batch import (
    commit_run,
    drop,
    hold,
    join,
    member,
    most_planned,
    pages_needed,
    start_run,
    stored,
    victim,
)
from kvsweep.cluster.engine.workers.prefill import join_bootstrap
from kvsweep.cluster.engine.workers.transfer import settle
from kvsweep.cluster.policies.gateway.loads import left_decode
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.clock import path_duration, pop, push, schedule, touch_prefill
from kvsweep.cluster.shared.state import State


def run_loop(s: State, d: int) -> None:
    """Run the loop of worker `d` until it is busy or has nothing to do."""
    own = s.decode[d]
    if own[eng.ACTIVE] == eng.DECODED:
        own[eng.ACTIVE] = eng.RESTING
        end_step(s, d)
    elif own[eng.ACTIVE] == eng.PREBUILT_DONE:
        own[eng.ACTIVE] = eng.RESTING
        _end_prebuilt(s, d)
    while own[eng.ACTIVE] == eng.RESTING:
        own[eng.D_STALL] = 0
        moved = _resume(s, d)
        moved = _preallocate(s, d) or moved
        moved = _receive(s, d) or moved
        if own[col.JOINING] >= 0 and own[col.RUNNING] < own[col.MAX_RUNNING]:
            _start_prebuilt(s, d)
        elif own[col.RUNNING] > 0:
            _start_step(s, d)
        if own[eng.ACTIVE] == eng.RESTING and own[eng.D_STALL] > 0:
            own[eng.ACTIVE] = eng.STALLING
            schedule(s, decoding_resource(s, d), s.run[col.NOW] + own[eng.D_STALL])
        if not moved:
            break


def end_phase(s: State, d: int) -> None:
    """Note that what worker `d` was busy with has ended; its loop does the rest."""
    own = s.decode[d]
    schedule(s, decoding_resource(s, d), col.NEVER)
    if own[eng.ACTIVE] == eng.DECODING:
        own[eng.ACTIVE] = eng.DECODED
    elif own[eng.ACTIVE] == eng.PREBUILDING:
        own[eng.ACTIVE] = eng.PREBUILT_DONE
    else:
        own[eng.ACTIVE] = eng.RESTING


def end_step(s: State, d: int) -> None:
    """Give each member its token; who was through leaves."""
    commit_run(s, d)
    now, step = s.run[col.NOW], s.decode[d, col.STEP]
    place = 0
    while place < s.decode[d, col.RUNNING]:
        r = member(s, d, place)
        through = s.request[r, col.FINISH_STEP] <= step
        if through and s.request[r, eng.LAST_TOKEN] < 0:
            s.request[r, eng.LAST_TOKEN] = now
            left_decode(s, r)
            settle(s, r)
            through = s.run[eng.OVERLAP] == 0
        if through:
            _leave(s, d, place)
        else:
            place += 1


def _leave(s: State, d: int, place: int) -> None:
    r = drop(s, d, place)
    hold(s, d, -_pages(s, s.request[r, col.PROMPT] + s.request[r, col.OUTPUT] - 1), s.run[col.NOW])


def _leave_through(s: State, d: int) -> None:
    """Let the members that are through leave."""
    place = 0
    while place < s.decode[d, col.RUNNING]:
        if s.request[member(s, d, place), col.FINISH_STEP] <= s.decode[d, col.STEP]:
            _leave(s, d, place)
        else:
            place += 1


def _pages(s: State, tokens: int) -> int:
    return int(-(-tokens // s.run[col.PAGE]))


def _allocatable(s: State, d: int) -> int:
    """Return the tokens that may be promised [token]."""
    own = s.decode[d]
    count = own[col.RUNNING] + own[eng.N_TRANSFER] + own[eng.N_WAITING]
    kept = s.run[eng.RESERVE] * count
    if own[col.RUNNING] > 0:
        kept = max(kept, most_planned(s, d) - own[col.CONTEXT] - own[col.RUNNING])
    return int((own[col.POOL] - own[col.HELD]) * s.run[col.PAGE] - kept)


def _resume(s: State, d: int) -> bool:
    """Bring retracted requests back, in order; return whether there were any."""
    own, moved = s.decode[d], False
    while own[eng.RETRACTED] >= 0:
        r = own[eng.RETRACTED]
        tokens = s.request[r, col.PROMPT] + s.request[r, eng.GENERATED]
        pages = _pages(s, tokens - 1)
        fits = tokens + s.run[eng.RESERVE] <= _allocatable(s, d) and pages <= own[col.POOL] - own[col.HELD]
        if own[col.HELD] > 0 and not fits:
            break
        pop(s.decode, d, eng.RETRACTED, s.request, col.NEXT_DECODE)
        hold(s, d, pages, s.run[col.NOW])
        push(s.decode, d, col.JOINING, s.request, col.NEXT_DECODE, r)
        own[eng.N_WAITING] += 1
        own[eng.D_STALL] += path_duration(s, col.H2D, pages)
        moved = True
    return moved


def _preallocate(s: State, d: int) -> bool:
    """Give requests the pages of their prompts, in order, as far as there is room; return whether any got them."""
    own, moved = s.decode[d], False
    if own[eng.RETRACTED] >= 0 or own[col.RESERVING] < 0:
        return False
    room, total, reserve = _allocatable(s, d), own[col.CONTEXT] + own[col.RUNNING], s.run[eng.RESERVE]
    while own[col.RESERVING] >= 0:
        r = own[col.RESERVING]
        if own[col.RUNNING] + own[eng.N_TRANSFER] + own[eng.N_WAITING] >= own[eng.ROWS]:
            break
        prompt, output = s.request[r, col.PROMPT], s.request[r, col.OUTPUT]
        if max(prompt + reserve, prompt + min(output, 4096) - total) > room:
            break
        if s.request[r, col.PAGES] > own[col.POOL] - own[col.HELD]:
            break
        room -= prompt + reserve
        pop(s.decode, d, col.RESERVING, s.request, col.NEXT_DECODE)
        hold(s, d, s.request[r, col.PAGES], s.run[col.NOW])
        push(s.decode, d, eng.TRANSFER, s.request, col.NEXT_DECODE, r)
        own[eng.N_TRANSFER] += 1
        s.request[r, col.RESERVED] = s.run[col.NOW]
        join_bootstrap(s, s.request[r, col.AT_PREFILL], r)
        touch_prefill(s, s.request[r, col.AT_PREFILL])
        moved = True
    return moved


def _receive(s: State, d: int) -> bool:
    """Move the requests whose last chunk has arrived to the waiting queue; return whether there were any."""
    own = s.decode[d]
    if own[eng.N_ARRIVED] == 0:
        return False
    before, r = -1, own[eng.TRANSFER]
    while r >= 0 and own[eng.N_ARRIVED] > 0:
        after = s.request[r, col.NEXT_DECODE]
        if s.request[r, col.HANDED] < 0:
            before = r
        else:
            if before < 0:
                own[eng.TRANSFER] = after
            else:
                s.request[before, col.NEXT_DECODE] = after
            if after < 0:
                own[eng.TRANSFER_TAIL] = before
            push(s.decode, d, col.JOINING, s.request, col.NEXT_DECODE, r)
            own[eng.N_ARRIVED] -= 1
            own[eng.N_TRANSFER] -= 1
            own[eng.N_WAITING] += 1
        r = after
    return True


def _start_prebuilt(s: State, d: int) -> None:
    """Begin a prebuilt round of the first that wait."""
    own, begin = s.decode[d], s.run[col.NOW] + s.decode[d, eng.D_STALL]
    taken = min(own[eng.N_WAITING], own[col.MAX_RUNNING] - own[col.RUNNING])
    _leave_through(s, d)
    for place in range(taken):
        r = pop(s.decode, d, col.JOINING, s.request, col.NEXT_DECODE)
        own[eng.N_WAITING] -= 1
        if s.request[r, col.JOINED] < 0:
            s.request[r, col.JOINED] = begin
        s.decode[d, eng.N_DECODE + own[col.RUNNING] + place] = r
    own[eng.N_FRESH] = taken
    own[eng.ACTIVE] = eng.PREBUILDING
    schedule(s, decoding_resource(s, d), begin + s.run[eng.PREBUILT])


def _end_prebuilt(s: State, d: int) -> None:
    own, now = s.decode[d], s.run[col.NOW]
    first, fresh = eng.N_DECODE + own[col.RUNNING], own[eng.N_FRESH]
    own[eng.N_FRESH] = 0
    for place in range(fresh):
        r = s.decode[d, first + place]
        request = s.request[r]
        if request[eng.GENERATED] == 0:
            request[eng.GENERATED] = 1
            request[eng.FIRST_AT_DECODE] = now
            s.windows[now // s.run[col.WINDOW]] += 1
            if request[col.OUTPUT] == 1:
                request[eng.LAST_TOKEN] = now
                left_decode(s, r)
                hold(s, d, -request[col.PAGES], now)
            settle(s, r)
        if request[eng.LAST_TOKEN] < 0:
            join(s, d, r)


def _start_step(s: State, d: int) -> None:
    """Begin decode steps, after retracting who finds no room."""
    own = s.decode[d]
    while pages_needed(s, d) > own[col.POOL] - own[col.HELD]:
        place = victim(s, d)
        pages = _pages(s, stored(s, d, member(s, d, place)))
        r = drop(s, d, place)
        hold(s, d, -pages, s.run[col.NOW])
        push(s.decode, d, eng.RETRACTED, s.request, col.NEXT_DECODE, r)
        own[eng.RETRACTIONS] += 1
        own[eng.D_STALL] += path_duration(s, col.D2H, pages)
    if own[col.RUNNING] > 0:
        start_run(s, d, s.run[col.NOW] + own[eng.D_STALL], 1 << 40)
