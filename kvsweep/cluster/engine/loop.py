"""The event loop: events of an instant first, then the loops of the workers they touched (README §1)."""

from __future__ import annotations

from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.engine.arrival import arrive
from kvsweep.cluster.engine.cache.insertion import end_copy
from kvsweep.cluster.engine.cache.kv import sweep
from kvsweep.cluster.engine.cache.l3 import end_read, end_write
from kvsweep.cluster.engine.chunks import is_short
from kvsweep.cluster.engine.resources import SWEEP
from kvsweep.cluster.engine.workers.colocated import run_colocated_loop
from kvsweep.cluster.engine.workers.decode import end_phase as end_decode_phase
from kvsweep.cluster.engine.workers.decode import run_loop as run_decode_loop
from kvsweep.cluster.engine.workers.prefill import AT_REST, NEEDS_ROWS, NONSENSE
from kvsweep.cluster.engine.workers.prefill import end_phase as end_prefill_phase
from kvsweep.cluster.engine.workers.prefill import run_loop as run_prefill_loop
from kvsweep.cluster.engine.workers.transfer import end_chunk, start_chunks
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.clock import due, earliest, touch_decode, touch_prefill
from kvsweep.cluster.shared.completion import end
from kvsweep.cluster.shared.policy_functions import PolicyFunctions
from kvsweep.cluster.shared.state import State


def advance(s: State, instants: int, ask: PolicyFunctions) -> int:
    """Run for up to `instants` instants; return DONE, or why it went no further.

    PAUSED and GROW (more windows, nodes or chunks are needed) can go on; STUCK and NONSENSE (a policy) cannot, and
    ``run[SUSPECT]`` is a request that shows it.
    """
    for _ in range(instants):
        now = due(s, earliest(s))
        if s.run[eng.UNFINISHED] == 0:
            if now == col.NEVER:
                return end(s)
            if now // s.run[col.WINDOW] >= s.windows.size:
                return col.GROW
            s.run[eng.AGAIN] = int(now == s.run[col.NOW])
            s.run[col.NOW] = now
        code = _events(s, ask)
        if code == col.PAUSED:
            code = _loops(s, ask)
        if code != col.PAUSED:
            return code
    return col.PAUSED


def _events(s: State, ask: PolicyFunctions) -> int:
    """Let all events of this instant happen; GROW where that takes more rows."""
    now = s.run[col.NOW]
    while due(s, earliest(s)) == now:
        if is_short(s, 8, 8):
            s.run[eng.UNFINISHED] = 1
            return col.GROW
        _handle(s, earliest(s), ask)
    return col.PAUSED


def _handle(s: State, resource: int, ask: PolicyFunctions) -> None:
    """Change the state by the event that is due at `resource`."""
    n_prefill, n_decode = s.prefill.shape[0], s.decode.shape[0]
    if resource == SWEEP:
        sweep(s, ask)
        return
    resource -= 1
    if resource < n_decode:
        end_chunk(s, resource)
    elif resource < 2 * n_decode:
        d = resource - n_decode
        end_decode_phase(s, d)
        if s.run[eng.COLOCATED] == 1:
            touch_prefill(s, d)
        else:
            touch_decode(s, d)
    elif resource < 2 * n_decode + 4 * n_prefill:
        kind, w = (resource - 2 * n_decode) // n_prefill, (resource - 2 * n_decode) % n_prefill
        if kind == 0:
            end_read(s, w)
        elif kind == 1:
            end_write(s, w)
        elif kind == 2:
            end_copy(s, w)
        elif kind == 3:
            end_prefill_phase(s, w)
        touch_prefill(s, w)
    else:
        arrive(s, ask)


def _loops(s: State, ask: PolicyFunctions) -> int:
    """Run the loops of the workers that were touched, then start the chunks that were queued."""
    s.run[eng.UNFINISHED] = 0
    first, first_decode = s.run[col.TOUCHED], s.run[col.TOUCHED_DECODE]
    for place in range(first_decode, first_decode + s.run[col.N_TOUCHED_DECODE]):
        d = s.lists[place]
        s.decode[d, col.DIRTY] = 0
        run_decode_loop(s, d)
    s.run[col.N_TOUCHED_DECODE] = 0
    done, code = 0, AT_REST
    while done < s.run[col.N_TOUCHED] and code == AT_REST:
        w = s.lists[first + done]
        code = run_colocated_loop(s, w, ask) if s.run[eng.COLOCATED] == 1 else run_prefill_loop(s, w, ask)
        if code == AT_REST:
            s.prefill[w, col.DIRTY] = 0
            done += 1
    _forget_touched(s, done)
    if code == NEEDS_ROWS:
        s.run[eng.UNFINISHED] = 1
        return col.GROW
    if code == NONSENSE or s.run[col.FAULT] != 0:
        return col.NONSENSE
    start_chunks(s)
    return col.PAUSED


def _forget_touched(s: State, done: int) -> None:
    """Leave in the list of touched prefill workers those after the first `done`."""
    first, left = s.run[col.TOUCHED], s.run[col.N_TOUCHED] - done
    for place in range(first, first + left):
        s.lists[place] = s.lists[place + done]
    s.run[col.N_TOUCHED] = left
