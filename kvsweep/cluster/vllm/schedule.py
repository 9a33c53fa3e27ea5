"""The scheduler of a vLLM worker: who runs how many tokens in the next step."""

from __future__ import annotations

from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.vllm import columns as c
from kvsweep.cluster.vllm.blocks import grow, hits, hold, idle, release
from kvsweep.cluster.vllm.state import Worker


def join_waiting(w: Worker, r: int) -> None:
    """Put request `r`, which arrives, at the back of the waiting queue."""
    row = w.request[r]
    if w.run[c.WAIT_TAIL] >= 0:
        w.request[w.run[c.WAIT_TAIL], c.NEXT] = r
    else:
        w.run[c.WAIT_HEAD] = r
    w.run[c.WAIT_TAIL] = r
    row[c.NEXT] = -1
    row[c.WAITING] = 1
    w.run[c.N_WAITING] += 1
    _count_blocked(w)
    for cause in range(c.BY_BLOCKS):
        row[c.BLOCKED_FOR + cause] = w.run[c.BLOCKED_TIME + c.BY_SEQUENCES + cause]


def schedule(w: Worker) -> None:
    """Fill `step` and the slot of the next step in flight: running requests first, then waiting ones."""
    _count_blocked(w)
    w.step[:] = 0
    slot = (w.run[c.FLIGHT_HEAD] + w.run[c.N_FLIGHT]) % w.limits[c.STEPS_IN_FLIGHT]
    w.flight_count[slot] = 0
    preempted = _run_on(w, slot)
    blocked = c.BY_BLOCKS if preempted else _admit(w, slot)
    w.run[c.BLOCKED] = blocked if w.run[c.WAIT_HEAD] >= 0 else c.NOT_BLOCKED


def deliver(w: Worker) -> None:
    """End the oldest step in flight: its tokens are known, and who is done leaves its blocks."""
    slot = w.run[c.FLIGHT_HEAD]
    end = w.flight_end[slot]
    for i in range(w.flight_count[slot]):
        row = w.request[w.flight[slot, i]]
        row[c.IN_FLIGHT] -= 1
        row[c.RECEIVED] += 1
        if row[col.FIRST_TOKEN] < 0:
            row[col.PREFILLED] = row[col.JOINED] = row[col.FIRST_TOKEN] = end
        if row[c.RECEIVED] == row[col.OUTPUT]:
            row[col.FINISHED] = end
            _leave(w, w.flight[slot, i])
    w.run[c.FLIGHT_HEAD] = (slot + 1) % w.limits[c.STEPS_IN_FLIGHT]
    w.run[c.N_FLIGHT] -= 1


def _count_blocked(w: Worker) -> None:
    """Add up the time since the last count for the cause that kept requests waiting in it."""
    w.run[c.BLOCKED_TIME + w.run[c.BLOCKED]] += w.run[c.NOW] - w.run[c.BLOCKED_SINCE]
    w.run[c.BLOCKED_SINCE] = w.run[c.NOW]


def _run_on(w: Worker, slot: int) -> bool:
    """Schedule the running requests in order; whether one had to be preempted."""
    preempted = False
    position = 0
    while position < w.run[c.N_RUNNING] and w.step[c.TOKENS] < w.limits[c.TOKEN_BUDGET]:
        r = w.running[position]
        tokens = _wanted(w, r)
        if tokens > 0 and not grow(w, r, tokens):
            victim = w.running[w.run[c.N_RUNNING] - 1]
            w.run[c.N_RUNNING] -= 1
            _preempt(w, victim)
            preempted = True
            continue  # tries the same request again, unless it was its own victim, which ends the loop
        if tokens > 0:
            _dispatch(w, slot, r, tokens)
        position += 1
    return preempted


def _wanted(w: Worker, r: int) -> int:
    """Return the tokens request `r` may run: none if its last one is in flight."""
    row = w.request[r]
    if row[c.IN_FLIGHT] > 0 and row[c.RECEIVED] + row[c.IN_FLIGHT] >= row[col.OUTPUT]:
        return 0
    tokens = row[col.PROMPT] + row[c.RECEIVED] + row[c.IN_FLIGHT] - row[c.COMPUTED]
    return int(min(tokens, w.limits[c.TOKEN_BUDGET] - w.step[c.TOKENS]))


def _admit(w: Worker, slot: int) -> int:
    """Schedule waiting requests in order, until one does not fit; return why those left were not admitted."""
    size = w.limits[c.BLOCK_TOKENS]
    while w.run[c.WAIT_HEAD] >= 0:
        if w.run[c.N_RUNNING] >= w.limits[c.MAX_SEQUENCES]:
            return c.BY_SEQUENCES
        if w.step[c.TOKENS] >= w.limits[c.TOKEN_BUDGET]:
            return c.BY_BUDGET
        r = w.run[c.WAIT_HEAD]
        row = w.request[r]
        known = row[col.PROMPT] + row[c.RECEIVED]
        found = hits(w, r, (known - 1) // size)
        tokens = min(known - found * size, w.limits[c.TOKEN_BUDGET] - w.step[c.TOKENS])
        room = known if w.limits[c.RESERVE_FULL] else found * size + tokens
        need = (room + size - 1) // size - found + idle(w, r, found)
        if need > w.run[c.N_FREE] - w.limits[c.WATERMARK]:
            return c.BY_BLOCKS
        _unqueue(w, r)
        hold(w, r, found)
        row[c.COMPUTED] = found * size
        grow(w, r, tokens)
        _note_admission(w, r, found * size)
        w.running[w.run[c.N_RUNNING]] = r
        w.run[c.N_RUNNING] += 1
        _dispatch(w, slot, r, tokens)
    return c.NOT_BLOCKED


def _note_admission(w: Worker, r: int, hit: int) -> None:
    """Note when request `r` was admitted, what it waited for, and what it found."""
    row = w.request[r]
    if row[col.ADMITTED] >= 0:
        row[c.RECOVERED] += hit
        row[c.PREEMPTED_FOR] += w.run[c.NOW] - row[c.PREEMPTED_AT]
        return
    row[col.ADMITTED], row[c.HIT] = w.run[c.NOW], hit
    row[col.BEGAN] = max(w.run[c.NOW], w.run[c.GPU_FREE])
    for cause in range(c.BY_BLOCKS):
        row[c.BLOCKED_FOR + cause] = w.run[c.BLOCKED_TIME + c.BY_SEQUENCES + cause] - row[c.BLOCKED_FOR + cause]


def _dispatch(w: Worker, slot: int, r: int, tokens: int) -> None:
    """Add `tokens` of request `r` to the step; it samples if they are the last known ones."""
    row = w.request[r]
    before = row[c.COMPUTED]
    w.step[c.TOKENS] += tokens
    w.step[c.ROWS] += 1
    if tokens == 1:
        w.step[c.DECODES] += 1
        w.step[c.CONTEXT] += before
        w.step[c.LONGEST] = max(w.step[c.LONGEST], before)
    else:
        w.step[c.CHUNK] += tokens
        w.step[c.PRIOR] += before
        w.step[c.PAIRS] += tokens * (2 * before + tokens)
    row[c.COMPUTED] += tokens
    if row[c.COMPUTED] == row[col.PROMPT] + row[c.RECEIVED] + row[c.IN_FLIGHT]:
        row[c.IN_FLIGHT] += 1
        w.flight[slot, w.flight_count[slot]] = r
        w.flight_count[slot] += 1


def _preempt(w: Worker, r: int) -> None:
    """Take all blocks from request `r`, and put it at the front of the waiting queue."""
    release(w, r)
    row = w.request[r]
    row[c.COMPUTED] = 0
    row[c.PREEMPTIONS] += 1
    row[c.PREEMPTED_AT] = w.run[c.NOW]
    row[c.WAITING] = 1
    row[c.NEXT] = w.run[c.WAIT_HEAD]
    w.run[c.WAIT_HEAD] = r
    if w.run[c.WAIT_TAIL] < 0:
        w.run[c.WAIT_TAIL] = r
    w.run[c.N_WAITING] += 1


def _leave(w: Worker, r: int) -> None:
    """Let request `r` go, wherever it is."""
    if w.request[r, c.WAITING]:
        _unqueue(w, r)
        return
    release(w, r)
    position = 0
    while w.running[position] != r:
        position += 1
    w.run[c.N_RUNNING] -= 1
    for i in range(position, w.run[c.N_RUNNING]):
        w.running[i] = w.running[i + 1]


def _unqueue(w: Worker, r: int) -> None:
    """Take request `r` out of the waiting queue."""
    before = -1
    here = w.run[c.WAIT_HEAD]
    while here != r:
        before, here = here, w.request[here, c.NEXT]
    after = w.request[r, c.NEXT]
    if before >= 0:
        w.request[before, c.NEXT] = after
    else:
        w.run[c.WAIT_HEAD] = after
    if after < 0:
        w.run[c.WAIT_TAIL] = before
    w.request[r, c.NEXT] = -1
    w.request[r, c.WAITING] = 0
    w.run[c.N_WAITING] -= 1
