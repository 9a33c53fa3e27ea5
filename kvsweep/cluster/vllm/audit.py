"""The checker of vLLM workers: what must hold after every instant. Slow; for tests and ``--check``."""

from __future__ import annotations

from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.vllm import columns as c
from kvsweep.cluster.vllm.state import Fleet, Worker, worker_at

RULES = (
    "",
    "blocks held and blocks free add up to the worker's, and each holder is a running request",
    "the free queue has every block that nobody holds, once",
    "a named block can be found, in the order of naming, and no other block is",
    "a running request holds the blocks of the tokens it computed, which are no more than it has",
    "a waiting request holds nothing, and is where the gateway put it",
    "hit and computed tokens add up to the prompt",
    "steps in flight end in order, each with its samples, within the worker's limits",
    "the gateway's loads are the requests in progress",
)
"""What a broken rule, by its number, says should have held."""


def broken_rule(f: Fleet) -> int:
    """Return the number of a rule that does not hold, 0 if all do."""
    for k in range(f.state.prefill.shape[0]):
        w = worker_at(f, k)
        found = _blocks(f, w)
        if found == 0:
            found = _queue(w)
        if found == 0:
            found = _names(w)
        if found == 0:
            found = _requests(f, w, k)
        if found == 0:
            found = _flight(w)
        if found != 0:
            return found
    return 0


def _blocks(f: Fleet, w: Worker) -> int:
    held = holders = idle = 0
    for block in range(w.limits[c.N_BLOCKS]):
        own = w.block[block]
        if own[c.HOLDERS] < 0:
            return 1
        held += own[c.HOLDERS] > 0
        holders += own[c.HOLDERS]
        idle += own[c.HOLDERS] == 0 and own[c.CONTENT] >= 0
    of_requests = 0
    for position in range(w.run[c.N_RUNNING]):
        of_requests += w.request[w.running[position], c.HELD]
    if held + w.run[c.N_FREE] != w.limits[c.N_BLOCKS] or holders != of_requests or idle != w.run[c.N_IDLE]:
        return 1
    return 0


def _queue(w: Worker) -> int:
    end = w.limits[c.N_BLOCKS]
    here, count = w.block[end, c.AFTER], 0
    while here != end and count <= end:
        after = w.block[here, c.AFTER]
        if w.block[here, c.HOLDERS] != 0 or w.block[after, c.BEFORE] != here:
            return 2
        here, count = after, count + 1
    return 0 if count == w.run[c.N_FREE] else 2


def _names(w: Worker) -> int:
    named = chained = 0
    for block in range(w.limits[c.N_BLOCKS]):
        named += w.block[block, c.CONTENT] >= 0
    for place in range(w.bucket.shape[0]):
        here, before = w.bucket[place, c.FIRST], -1
        while here >= 0 and chained <= named:
            own = w.block[here]
            if own[c.CHAIN_BEFORE] != before or own[c.CONTENT] & (w.bucket.shape[0] - 1) != place:
                return 3
            before, here, chained = here, own[c.CHAIN_AFTER], chained + 1
        if w.bucket[place, c.LAST] != before:
            return 3
    return 0 if chained == named else 3


def _requests(f: Fleet, w: Worker, k: int) -> int:
    size, in_progress, waiting = w.limits[c.BLOCK_TOKENS], 0, 0
    for r in range(w.request.shape[0]):
        row = w.request[r]
        if row[col.AT_PREFILL] != k or row[col.FINISHED] >= 0:
            continue
        f.state.run[col.SUSPECT] = r
        in_progress += 1
        known = row[col.PROMPT] + row[c.RECEIVED]
        if row[c.WAITING] == 1:
            waiting += 1
            if row[c.HELD] != 0 or row[c.COMPUTED] != 0:
                return 5
        elif row[c.HELD] != -(-row[c.COMPUTED] // size) or row[c.COMPUTED] > known + row[c.IN_FLIGHT]:
            return 4
        if row[col.ADMITTED] >= 0 and not 0 <= row[c.HIT] < row[col.PROMPT]:
            return 6
    if waiting != w.run[c.N_WAITING] or in_progress != waiting + w.run[c.N_RUNNING]:
        return 5
    return 0 if in_progress == f.state.prefill[k, col.LOAD] else 8


def _flight(w: Worker) -> int:
    before, sampled, in_flight = w.run[c.NOW], 0, 0
    depth = w.limits[c.STEPS_IN_FLIGHT]
    if w.run[c.N_FLIGHT] > depth or w.run[c.N_RUNNING] > w.limits[c.MAX_SEQUENCES]:
        return 7
    for i in range(w.run[c.N_FLIGHT]):
        slot = (w.run[c.FLIGHT_HEAD] + i) % depth
        if w.flight_end[slot] <= before:
            return 7
        before = w.flight_end[slot]
        sampled += w.flight_count[slot]
    for position in range(w.run[c.N_RUNNING]):
        in_flight += w.request[w.running[position], c.IN_FLIGHT]
    here = w.run[c.WAIT_HEAD]
    while here >= 0:
        in_flight += w.request[here, c.IN_FLIGHT]
        here = w.request[here, c.NEXT]
    return 0 if sampled == in_flight and w.step[c.TOKENS] <= w.limits[c.TOKEN_BUDGET] else 7
