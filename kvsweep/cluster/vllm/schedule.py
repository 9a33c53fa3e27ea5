"""The scheduler of a vLLM worker: who runs how many tokens in the next step."""

from __future__ import annotations

from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.vllm import columns as c
from kvsweep.cluster.vllm.blocks import grow, hits, hold, idle, release
from kvsweep.cluster.vllm.state import Fleet


def join_waiting(f: Fleet, k: int, r: int) -> None:
    """Put request `r`, which arrives, at the back of the waiting queue."""
    row = f.state.request[r]
    if f.run[k, c.WAIT_TAIL] >= 0:
        f.state.request[f.run[k, c.WAIT_TAIL], c.NEXT] = r
    else:
        f.run[k, c.WAIT_HEAD] = r
    f.run[k, c.WAIT_TAIL] = r
    row[c.NEXT] = -1
    row[c.WAITING] = 1
    f.run[k, c.N_WAITING] += 1
    _count_blocked(f, k)
    for cause in range(c.BY_BLOCKS):
        row[c.BLOCKED_FOR + cause] = f.run[k, c.BLOCKED_TIME + c.BY_SEQUENCES + cause]


def schedule(f: Fleet, k: int) -> None:
    """Fill `step` and the slot of the next step in flight: running requests first, then waiting ones."""
    _count_blocked(f, k)
    f.step[k, :] = 0
    slot = (f.run[k, c.FLIGHT_HEAD] + f.run[k, c.N_FLIGHT]) % f.limits[k, c.STEPS_IN_FLIGHT]
    f.flight_count[k, slot] = 0
    preempted = _run_on(f, k, slot)
    blocked = c.BY_BLOCKS if preempted else _admit(f, k, slot)
    f.run[k, c.BLOCKED] = blocked if f.run[k, c.WAIT_HEAD] >= 0 else c.NOT_BLOCKED


def deliver(f: Fleet, k: int) -> None:
    """End the oldest step in flight: its tokens are known, and who is done leaves its blocks."""
    slot = f.run[k, c.FLIGHT_HEAD]
    end = f.flight_end[k, slot]
    for i in range(f.flight_count[k, slot]):
        row = f.state.request[f.flight[k, slot, i]]
        row[c.IN_FLIGHT] -= 1
        row[c.RECEIVED] += 1
        if row[col.FIRST_TOKEN] < 0:
            row[col.PREFILLED] = row[col.JOINED] = row[col.FIRST_TOKEN] = end
        if row[c.RECEIVED] == row[col.OUTPUT]:
            row[col.FINISHED] = end
            _leave(f, k, f.flight[k, slot, i])
    f.run[k, c.FLIGHT_HEAD] = (slot + 1) % f.limits[k, c.STEPS_IN_FLIGHT]
    f.run[k, c.N_FLIGHT] -= 1


def _count_blocked(f: Fleet, k: int) -> None:
    """Add up the time since the last count for the cause that kept requests waiting in it."""
    f.run[k, c.BLOCKED_TIME + f.run[k, c.BLOCKED]] += f.run[k, c.NOW] - f.run[k, c.BLOCKED_SINCE]
    f.run[k, c.BLOCKED_SINCE] = f.run[k, c.NOW]


def _run_on(f: Fleet, k: int, slot: int) -> bool:
    """Schedule the running requests in order; whether one had to be preempted."""
    preempted = False
    position = 0
    while position < f.run[k, c.N_RUNNING] and f.step[k, c.TOKENS] < f.limits[k, c.TOKEN_BUDGET]:
        r = f.running[k, position]
        tokens = _wanted(f, k, r)
        if tokens > 0 and not grow(f, k, r, tokens):
            victim = f.running[k, f.run[k, c.N_RUNNING] - 1]
            f.run[k, c.N_RUNNING] -= 1
            _preempt(f, k, victim)
            preempted = True
            continue  # tries the same request again, unless it was its own victim, which ends the loop
        if tokens > 0:
            _dispatch(f, k, slot, r, tokens)
        position += 1
    return preempted


def _wanted(f: Fleet, k: int, r: int) -> int:
    """Return the tokens request `r` may run: none if its last one is in flight."""
    row = f.state.request[r]
    if row[c.IN_FLIGHT] > 0 and row[c.RECEIVED] + row[c.IN_FLIGHT] >= row[col.OUTPUT]:
        return 0
    tokens = row[col.PROMPT] + row[c.RECEIVED] + row[c.IN_FLIGHT] - row[c.COMPUTED]
    return int(min(tokens, f.limits[k, c.TOKEN_BUDGET] - f.step[k, c.TOKENS]))


def _admit(f: Fleet, k: int, slot: int) -> int:
    """Schedule waiting requests in order, until one does not fit; return why those left were not admitted."""
    size = f.limits[k, c.BLOCK_TOKENS]
    while f.run[k, c.WAIT_HEAD] >= 0:
        if f.run[k, c.N_RUNNING] >= f.limits[k, c.MAX_SEQUENCES]:
            return c.BY_SEQUENCES
        if f.step[k, c.TOKENS] >= f.limits[k, c.TOKEN_BUDGET]:
            return c.BY_BUDGET
        r = f.run[k, c.WAIT_HEAD]
        row = f.state.request[r]
        known = row[col.PROMPT] + row[c.RECEIVED]
        found = hits(f, k, r, (known - 1) // size)
        tokens = min(known - found * size, f.limits[k, c.TOKEN_BUDGET] - f.step[k, c.TOKENS])
        room = known if f.limits[k, c.RESERVE_FULL] else found * size + tokens
        need = (room + size - 1) // size - found + idle(f, k, r, found)
        if need > f.run[k, c.N_FREE] - f.limits[k, c.WATERMARK]:
            return c.BY_BLOCKS
        _unqueue(f, k, r)
        hold(f, k, r, found)
        row[c.COMPUTED] = found * size
        grow(f, k, r, tokens)
        _note_admission(f, k, r, found * size)
        f.running[k, f.run[k, c.N_RUNNING]] = r
        f.run[k, c.N_RUNNING] += 1
        _dispatch(f, k, slot, r, tokens)
    return c.NOT_BLOCKED


def _note_admission(f: Fleet, k: int, r: int, hit: int) -> None:
    """Note when request `r` was admitted, what it waited for, and what it found."""
    row = f.state.request[r]
    if row[col.ADMITTED] >= 0:
        row[c.RECOVERED] += hit
        row[c.PREEMPTED_FOR] += f.run[k, c.NOW] - row[c.PREEMPTED_AT]
        return
    row[col.ADMITTED], row[c.HIT] = f.run[k, c.NOW], hit
    row[col.BEGAN] = max(f.run[k, c.NOW], f.run[k, c.GPU_FREE])
    for cause in range(c.BY_BLOCKS):
        row[c.BLOCKED_FOR + cause] = f.run[k, c.BLOCKED_TIME + c.BY_SEQUENCES + cause] - row[c.BLOCKED_FOR + cause]


def _dispatch(f: Fleet, k: int, slot: int, r: int, tokens: int) -> None:
    """Add `tokens` of request `r` to the step; it samples if they are the last known ones."""
    row = f.state.request[r]
    before = row[c.COMPUTED]
    f.step[k, c.TOKENS] += tokens
    f.step[k, c.ROWS] += 1
    if tokens == 1:
        f.step[k, c.DECODES] += 1
        f.step[k, c.CONTEXT] += before
        f.step[k, c.LONGEST] = max(f.step[k, c.LONGEST], before)
    else:
        f.step[k, c.CHUNK] += tokens
        f.step[k, c.PRIOR] += before
        f.step[k, c.PAIRS] += tokens * (2 * before + tokens)
    row[c.COMPUTED] += tokens
    if row[c.COMPUTED] == row[col.PROMPT] + row[c.RECEIVED] + row[c.IN_FLIGHT]:
        row[c.IN_FLIGHT] += 1
        f.flight[k, slot, f.flight_count[k, slot]] = r
        f.flight_count[k, slot] += 1


def _preempt(f: Fleet, k: int, r: int) -> None:
    """Take all blocks from request `r`, and put it at the front of the waiting queue."""
    release(f, k, r)
    row = f.state.request[r]
    row[c.COMPUTED] = 0
    row[c.PREEMPTIONS] += 1
    row[c.PREEMPTED_AT] = f.run[k, c.NOW]
    row[c.WAITING] = 1
    row[c.NEXT] = f.run[k, c.WAIT_HEAD]
    f.run[k, c.WAIT_HEAD] = r
    if f.run[k, c.WAIT_TAIL] < 0:
        f.run[k, c.WAIT_TAIL] = r
    f.run[k, c.N_WAITING] += 1


def _leave(f: Fleet, k: int, r: int) -> None:
    """Let request `r` go, wherever it is."""
    if f.state.request[r, c.WAITING]:
        _unqueue(f, k, r)
        return
    release(f, k, r)
    position = 0
    while f.running[k, position] != r:
        position += 1
    f.run[k, c.N_RUNNING] -= 1
    for i in range(position, f.run[k, c.N_RUNNING]):
        f.running[k, i] = f.running[k, i + 1]


def _unqueue(f: Fleet, k: int, r: int) -> None:
    """Take request `r` out of the waiting queue."""
    before = -1
    here = f.run[k, c.WAIT_HEAD]
    while here != r:
        before, here = here, f.state.request[here, c.NEXT]
    after = f.state.request[r, c.NEXT]
    if before >= 0:
        f.state.request[before, c.NEXT] = after
    else:
        f.run[k, c.WAIT_HEAD] = after
    if after < 0:
        f.run[k, c.WAIT_TAIL] = before
    f.state.request[r, c.NEXT] = -1
    f.state.request[r, c.WAITING] = 0
    f.run[k, c.N_WAITING] -= 1
