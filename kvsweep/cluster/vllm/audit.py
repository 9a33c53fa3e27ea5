"""The checker of vLLM workers: what must hold after every instant. Slow; for tests and ``--check``."""

from __future__ import annotations

from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.vllm import columns as c
from kvsweep.cluster.vllm.state import Fleet

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
        found = _blocks(f, k)
        if found == 0:
            found = _queue(f, k)
        if found == 0:
            found = _names(f, k)
        if found == 0:
            found = _requests(f, k)
        if found == 0:
            found = _flight(f, k)
        if found != 0:
            return found
    return 0


def _blocks(f: Fleet, k: int) -> int:
    held = holders = idle = 0
    for block in range(f.limits[k, c.N_BLOCKS]):
        own = f.block[k, block]
        if own[c.HOLDERS] < 0:
            return 1
        held += own[c.HOLDERS] > 0
        holders += own[c.HOLDERS]
        idle += own[c.HOLDERS] == 0 and own[c.CONTENT] >= 0
    of_requests = 0
    for position in range(f.run[k, c.N_RUNNING]):
        of_requests += f.state.request[f.running[k, position], c.HELD]
    if held + f.run[k, c.N_FREE] != f.limits[k, c.N_BLOCKS] or holders != of_requests or idle != f.run[k, c.N_IDLE]:
        return 1
    return 0


def _queue(f: Fleet, k: int) -> int:
    end = f.limits[k, c.N_BLOCKS]
    here, count = f.block[k, end, c.AFTER], 0
    while here != end and count <= end:
        after = f.block[k, here, c.AFTER]
        if f.block[k, here, c.HOLDERS] != 0 or f.block[k, after, c.BEFORE] != here:
            return 2
        here, count = after, count + 1
    return 0 if count == f.run[k, c.N_FREE] else 2


def _names(f: Fleet, k: int) -> int:
    named = chained = 0
    for block in range(f.limits[k, c.N_BLOCKS]):
        named += f.block[k, block, c.CONTENT] >= 0
    for place in range(f.bucket.shape[1]):
        here, before = f.bucket[k, place, c.FIRST], -1
        while here >= 0 and chained <= named:
            own = f.block[k, here]
            if own[c.CHAIN_BEFORE] != before or own[c.CONTENT] & (f.bucket.shape[1] - 1) != place:
                return 3
            before, here, chained = here, own[c.CHAIN_AFTER], chained + 1
        if f.bucket[k, place, c.LAST] != before:
            return 3
    return 0 if chained == named else 3


def _requests(f: Fleet, k: int) -> int:
    size, in_progress, waiting = f.limits[k, c.BLOCK_TOKENS], 0, 0
    for r in range(f.state.request.shape[0]):
        row = f.state.request[r]
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
    if waiting != f.run[k, c.N_WAITING] or in_progress != waiting + f.run[k, c.N_RUNNING]:
        return 5
    return 0 if in_progress == f.state.prefill[k, col.LOAD] else 8


def _flight(f: Fleet, k: int) -> int:
    before, sampled, in_flight = f.run[k, c.NOW], 0, 0
    depth = f.limits[k, c.STEPS_IN_FLIGHT]
    if f.run[k, c.N_FLIGHT] > depth or f.run[k, c.N_RUNNING] > f.limits[k, c.MAX_SEQUENCES]:
        return 7
    for i in range(f.run[k, c.N_FLIGHT]):
        slot = (f.run[k, c.FLIGHT_HEAD] + i) % depth
        if f.flight_end[k, slot] <= before:
            return 7
        before = f.flight_end[k, slot]
        sampled += f.flight_count[k, slot]
    for position in range(f.run[k, c.N_RUNNING]):
        in_flight += f.state.request[f.running[k, position], c.IN_FLIGHT]
    here = f.run[k, c.WAIT_HEAD]
    while here >= 0:
        in_flight += f.state.request[here, c.IN_FLIGHT]
        here = f.state.request[here, c.NEXT]
    return 0 if sampled == in_flight and f.step[k, c.TOKENS] <= f.limits[k, c.TOKEN_BUDGET] else 7
