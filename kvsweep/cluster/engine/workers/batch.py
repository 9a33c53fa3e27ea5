"""The batch of a decode or colocated worker, and runs of its steps up to the next change (README §6).

A member that has all its tokens is *through*; it may stay for a step more, stale. STEP counts steps; a member is
through when FINISH_STEP of them are done.
"""

from __future__ import annotations

from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.engine.resources import decoding_resource
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.clock import decode_pool, is_beyond, occupy, rounded, schedule, step_coefficients
from kvsweep.cluster.shared.state import State


def member(s: State, d: int, place: int) -> int:
    """Return the member at `place` of the batch."""
    return int(s.decode[d, eng.N_DECODE + place])


def stored(s: State, d: int, r: int) -> int:
    """Return the tokens that member `r` has stored [token]."""
    return int(s.request[r, col.PROMPT] + generated(s, d, r) - 1)


def generated(s: State, d: int, r: int) -> int:
    """Return the tokens that member `r` has generated [token]."""
    left = max(0, s.request[r, col.FINISH_STEP] - s.decode[d, col.STEP])
    return int(s.request[r, col.OUTPUT] - left)


def join(s: State, d: int, r: int) -> None:
    """Let request `r` join the batch, with the tokens it has."""
    own, request = s.decode[d], s.request[r]
    s.decode[d, eng.N_DECODE + own[col.RUNNING]] = r
    own[col.RUNNING] += 1
    own[col.CONTEXT] += request[col.PROMPT] + request[eng.GENERATED] - 1
    request[col.FINISH_STEP] = own[col.STEP] + request[col.OUTPUT] - request[eng.GENERATED]
    if request[eng.GENERATED] < request[col.OUTPUT]:
        _grow_with(s, d, r, 1)
    else:
        own[eng.N_STALE] += 1


def drop(s: State, d: int, place: int) -> int:
    """Take the member at `place` out of the batch, which keeps its order; return it."""
    own, r = s.decode[d], member(s, d, place)
    own[col.CONTEXT] -= stored(s, d, r)
    s.request[r, eng.GENERATED] = generated(s, d, r)
    if s.request[r, col.FINISH_STEP] > own[col.STEP]:
        _grow_with(s, d, r, -1)
    else:
        own[eng.N_STALE] -= 1
    own[col.RUNNING] -= 1
    for i in range(place, own[col.RUNNING]):
        s.decode[d, eng.N_DECODE + i] = s.decode[d, eng.N_DECODE + i + 1]
    return r


def _grow_with(s: State, d: int, r: int, change: int) -> None:
    """Count `change` members that need a page before the steps of the residue of request `r`."""
    request = s.request[r]
    residue = (request[col.FINISH_STEP] - request[col.PROMPT] - request[col.OUTPUT] + 1) % s.run[col.PAGE]
    s.decode[d, s.run[col.GROWTH] + residue] += change


def pages_needed(s: State, d: int) -> int:
    """Return the pages that the next step of the batch needs."""
    return int(s.decode[d, s.run[col.GROWTH] + s.decode[d, col.STEP] % s.run[col.PAGE]])


def victim(s: State, d: int) -> int:
    """Return the place of the member to be retracted next, -1 where all are through."""
    best, least, longest = -1, 0, 0
    for place in range(s.decode[d, col.RUNNING]):
        r = member(s, d, place)
        if s.request[r, col.FINISH_STEP] <= s.decode[d, col.STEP]:
            continue
        done, prompt = generated(s, d, r), s.request[r, col.PROMPT]
        if best < 0 or done < least or (done == least and prompt >= longest):
            best, least, longest = place, done, prompt
    return best


def planned_tokens(s: State, d: int) -> int:
    """Return the tokens that the batch may still generate, as far as is planned for [token]."""
    found = 0
    for place in range(s.decode[d, col.RUNNING]):
        r = member(s, d, place)
        found += min(s.request[r, col.OUTPUT] - generated(s, d, r), 4096)
    return int(found)


def most_planned(s: State, d: int) -> int:
    """Return the largest prompt with what may be generated after it of the batch [token]."""
    most = 0
    for place in range(s.decode[d, col.RUNNING]):
        r = member(s, d, place)
        most = max(most, s.request[r, col.PROMPT] + min(s.request[r, col.OUTPUT], 4096))
    return int(most)


def start_run(s: State, d: int, begin: int, steps: int) -> None:
    """Plan a run of at most `steps` decode steps that begins at `begin`, up to the next change."""
    own = s.decode[d]
    own[eng.ACTIVE] = eng.DECODING
    own[col.BOUNDARY] = begin
    if own[eng.N_STALE] > 0 or (
        s.run[eng.COLOCATED] == 0 and own[eng.N_WAITING] > 0 and own[col.RUNNING] < own[col.MAX_RUNNING]
    ):
        steps = 1
    for place in range(own[col.RUNNING]):
        if steps > 1:
            steps = min(steps, s.request[member(s, d, place), col.FINISH_STEP] - own[col.STEP])
    schedule(s, decoding_resource(s, d), _planned_end(s, d, steps))


def _planned_end(s: State, d: int, most: int) -> int:
    """Set the number of steps of the run, at most `most`, and return its end [ps]."""
    own, page, growth = s.decode[d], s.run[col.PAGE], s.run[col.GROWTH]
    n, context, residue = own[col.RUNNING], own[col.CONTEXT], own[col.STEP] % page
    base, slope = step_coefficients(s, d, n)
    free = _free_pages(s, d) - own[growth + residue]
    pages, least, clipped, planned = _head(s, d)
    reserved = s.run[eng.RESERVE] * (n + own[eng.N_TRANSFER] + own[eng.N_WAITING])
    end = own[col.BOUNDARY] + rounded(base + slope * context)
    steps = 1
    while steps < most:
        context += n
        residue = residue + 1 if residue + 1 < page else 0  # no division, which would take longer than all else
        needed = own[growth + residue]
        if needed > free:
            break
        if 0 <= pages <= free:
            total = context + n
            if max(least, clipped - total) <= free * page - max(reserved, planned - total):
                break
        free -= needed
        end += rounded(base + slope * context)
        steps += 1
    own[col.RUN] = steps
    return int(end)


def _free_pages(s: State, d: int) -> int:
    if s.run[eng.COLOCATED] == 1:
        return int(s.prefill[d, col.FREE])
    return int(s.decode[d, col.POOL] - s.decode[d, col.HELD])


def _head(s: State, d: int) -> tuple[int, int, int, int]:
    """Return the pages that who waits for room needs (-1 for nobody), its tokens, and what the batch is to need."""
    own, reserve = s.decode[d], s.run[eng.RESERVE]
    if s.run[eng.COLOCATED] == 1:
        return -1, 0, 0, 0
    r = own[eng.RETRACTED]
    if r >= 0:
        tokens = s.request[r, col.PROMPT] + s.request[r, eng.GENERATED]
        return int(-(-(tokens - 1) // s.run[col.PAGE])), int(tokens + reserve), 0, most_planned(s, d)
    r = own[col.RESERVING]
    if r < 0 or own[col.RUNNING] + own[eng.N_TRANSFER] + own[eng.N_WAITING] >= own[eng.ROWS]:
        return -1, 0, 0, 0
    prompt = s.request[r, col.PROMPT]
    clipped = int(prompt + min(s.request[r, col.OUTPUT], 4096))
    return int(s.request[r, col.PAGES]), int(prompt + reserve), clipped, most_planned(s, d)


def end_run_early(s: State, d: int) -> None:
    """Let the run of steps end at the first boundary from now on, as something may change there."""
    own, now = s.decode[d], s.run[col.NOW]
    if own[eng.ACTIVE] != eng.DECODING or own[col.RUN] <= 1:
        return
    end, context, steps, n = own[col.BOUNDARY], own[col.CONTEXT], 0, own[col.RUNNING]
    base, slope = step_coefficients(s, d, n)
    # The loop of a boundary of this very instant has run where the instant has events a second time.
    while end < now or (end == now and s.run[eng.AGAIN] == 1) or steps == 0:
        end += rounded(base + slope * context)
        context += n
        steps += 1
    own[col.RUN] = steps
    schedule(s, decoding_resource(s, d), end)


def commit_run(s: State, d: int) -> None:
    """Do the steps that were planned; who is through, and who leaves, is not looked at."""
    own, page, n = s.decode[d], s.run[col.PAGE], s.decode[d, col.RUNNING]
    fresh, time, context, steps = n - own[eng.N_STALE], own[col.BOUNDARY], own[col.CONTEXT], own[col.RUN]
    base, slope = step_coefficients(s, d, n)
    growth, residue = s.run[col.GROWTH], own[col.STEP] % page
    window = time // s.run[col.WINDOW]
    turn, delivered = (window + 1) * s.run[col.WINDOW], 0
    for _ in range(steps):
        grown = own[growth + residue]
        if grown > 0:
            hold(s, d, grown, time)
        residue = residue + 1 if residue + 1 < page else 0
        time += rounded(base + slope * context)
        context += fresh
        while time >= turn:
            s.windows[window] += delivered
            window, turn, delivered = window + 1, turn + s.run[col.WINDOW], 0
        delivered += fresh
    s.windows[window] += delivered
    own[col.DECODE_STEPS_BEYOND] += _steps_beyond(s, n, own[col.CONTEXT], fresh, steps)
    own[col.CONTEXT] = context
    own[col.STEP] += steps
    own[col.BUSY_TIME] += time - own[col.BOUNDARY]
    own[eng.LAST_END] = time
    own[col.DECODE_STEPS] += own[col.RUN]
    own[col.RUN] = 0
    for place in range(n):
        r = member(s, d, place)
        if s.request[r, col.FINISH_STEP] == own[col.STEP]:
            own[eng.N_STALE] += 1
            _grow_with(s, d, r, -1)


def _steps_beyond(s: State, n: int, context: int, fresh: int, steps: int) -> int:
    """Return how many of `steps` steps from `context` on, `fresh` more each, were outside of what was measured."""
    if is_beyond(s, col.DOMAIN_BATCH, n) == 1:
        return steps
    low, high = s.run[col.DOMAIN + 2 * col.DOMAIN_CONTEXT], s.run[col.DOMAIN + 2 * col.DOMAIN_CONTEXT + 1]
    if fresh == 0:
        return steps * is_beyond(s, col.DOMAIN_CONTEXT, context)
    below = min(steps, max(0, -(-(low - context) // fresh)))
    within = min(steps, max(0, (high - context) // fresh + 1))
    return int(steps - max(0, within - below))


def hold(s: State, d: int, pages: int, time: int) -> None:
    """Take pages for the batch from `time` [ps] on; fewer give them back."""
    if s.run[eng.COLOCATED] == 1:
        s.prefill[d, col.FREE] -= pages
        occupy(s, 2 * d, pages, time)
    else:
        s.decode[d, col.HELD] += pages
        occupy(s, decode_pool(s, d), pages, time)
