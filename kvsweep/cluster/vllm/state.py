"""What a run of vLLM workers is made of: integer arrays for the core, built from requests and limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.state import Ints, State, winner_tree
from kvsweep.cluster.vllm import columns as c
from kvsweep.cluster.vllm.limits import Limits
from kvsweep.cluster.vllm.steptime import StepTimes
from kvsweep.trace.model import expand_runs, offsets_of


class Fleet(NamedTuple):
    """All workers of a run, what gives requests to them, and the times of their steps."""

    state: State
    """Requests, gateway, clock and windows, as all cores have them; a worker is a row of `prefill` and of `decode`."""
    limits: Ints
    """(worker, column)."""
    run: Ints
    """(worker, column)."""
    place: Ints
    """(place, column) contents of the full blocks of all requests, and the blocks that hold them."""
    running: Ints
    """(worker, place in the order of admission)."""
    block: Ints
    """(worker, block, column)."""
    bucket: Ints
    """(worker, hash of a content, column) ends of the chains of named blocks."""
    step: Ints
    """(worker, column)."""
    flight_end: Ints
    """(worker, step in flight)."""
    flight_count: Ints
    """(worker, step in flight)."""
    flight: Ints
    """(worker, step in flight, request that samples in it)."""
    log: Ints
    """(step, column) steps of all workers; without rows none is kept."""
    times: StepTimes

    @staticmethod
    def fixed() -> tuple[str, ...]:
        """Return the tables whose number of columns is a constant of the core's code (`jit.reference`)."""
        return "limits", "run", "place", "block", "bucket", "step", "log"


def blocks_of(tokens: Ints, size: int, usable: int) -> tuple[Ints, Ints]:
    """Return full blocks of `size` tokens, and blocks at all, of requests of `tokens`; 0 if more than `usable`."""
    fits = -(-tokens // size) <= usable
    return np.where(fits, tokens // size, 0), np.where(fits, -(-tokens // size), 0)


def request_rows(arrival: Ints, prompt: Ints, output: Ints, size: int) -> Ints:
    """Return requests in order of `arrival` [ps] as the core takes them, for blocks of `size` tokens; (n, column)."""
    request = np.full((len(arrival), c.N_REQUEST), -1, np.int64)
    request[:, col.ARRIVAL], request[:, col.PROMPT], request[:, col.OUTPUT] = arrival, prompt, output
    request[:, col.FULL], request[:, col.PAGES] = prompt // size, -(-prompt // size)
    for column in (
        c.COMPUTED, c.RECEIVED, c.IN_FLIGHT, c.HELD, c.WAITING, c.PREEMPTIONS, c.RECOVERED, c.PREEMPTED_FOR,
    ):  # fmt: skip
        request[:, column] = 0
    return request


def new_fleet(request: Ints, keys: Ints, limits: Sequence[Limits], times: StepTimes) -> Fleet:
    """Return workers of these `limits` before the first arrival, requests dealt to them in turn.

    `keys` are the contents, from 0, of the full blocks of the requests that fit, one after the other.
    """
    n, size = len(limits), limits[0].block_tokens
    usable = max(each.n_blocks for each in limits) - 1
    depth = max(each.steps_in_flight for each in limits)
    sequences = max(each.max_sequences for each in limits)
    run = np.zeros((n, c.N_WORKER), np.int64)
    run[:, [c.WAIT_HEAD, c.WAIT_TAIL]] = -1
    run[:, c.N_FREE] = [each.n_blocks - 1 for each in limits]
    state = _shared_state(request, size, n)
    for k, each in enumerate(limits):
        state.prefill[k, col.POOL] = each.n_blocks - 1
    pools = state.prefill[:, col.POOL]
    state.run[col.LEAST_POOL], state.run[col.MOST_POOL] = pools.min(), pools.max()
    return Fleet(
        state=state,
        limits=np.array([_limits_row(each, len(times.graphs)) for each in limits], np.int64),
        run=run,
        place=_places(request, keys, size, usable),
        running=np.zeros((n, sequences), np.int64),
        block=_blocks(limits, usable),
        bucket=np.full((n, 1 << (usable - 1).bit_length(), c.N_BUCKET), -1, np.int64),
        step=np.zeros((n, c.N_STEP), np.int64),
        flight_end=np.zeros((n, depth), np.int64),
        flight_count=np.zeros((n, depth), np.int64),
        flight=np.zeros((n, depth, sequences), np.int64),
        log=np.zeros((0, c.N_LOG_COLUMNS), np.int64),
        times=times,
    )


def _shared_state(request: Ints, size: int, n: int) -> State:
    """Return what all cores have, for `n` workers; the gateway deals in turn, and one window holds all."""
    run = np.zeros(c.N_FLEET, np.int64)
    run[col.PAGE], run[col.WINDOW] = size, col.NEVER
    run[col.OCCUPANCY_END], run[col.SUSPECT] = col.NEVER, -1
    run[col.LEFT] = len(request)
    run[col.N_RESOURCES] = n + 1
    due = winner_tree(n + 1, int(request[0, col.ARRIVAL]))
    run[col.LEAVES] = len(due) // 3
    unused = np.full((1, 1), -1, np.int64)
    return State(
        run=run,
        real=np.zeros(col.N_REAL + 2 * 3 * n),
        request=request,
        prefill=np.zeros((n, col.N_PREFILL), np.int64),
        decode=np.zeros((n, col.N_DECODE), np.int64),
        lists=np.full(n, -1, np.int64),
        chain=unused,
        entry_of=unused.astype(np.int32),
        entry=unused,
        chunk=unused,
        windows=np.zeros(1, np.int64),
        node=unused,
        bucket=unused[0],
        tree=unused,
        pair=unused,
        due=due,
    )


def _limits_row(limits: Limits, n_graphs: int) -> tuple[int, ...]:
    return (
        limits.n_blocks - 1, limits.block_tokens, limits.token_budget, limits.max_sequences, int(limits.reserve_full),
        limits.steps_in_flight, int(limits.prefix_cache), limits.watermark_blocks, 0, n_graphs,
    )  # fmt: skip


def _places(request: Ints, keys: Ints, size: int, usable: int) -> Ints:
    """Return the places of all blocks with their contents, and note where those of each request begin."""
    full, blocks = blocks_of(request[:, col.PROMPT] + request[:, col.OUTPUT], size, usable)
    request[:, c.BASE] = offsets_of(blocks)[:-1]
    place = np.full((int(blocks.sum()), c.N_PLACE), -1, np.int64)
    place[expand_runs(request[:, c.BASE], full), c.KEY] = keys
    return place


def _blocks(limits: Sequence[Limits], usable: int) -> NDArray[np.int64]:
    block = np.full((len(limits), usable + 1, c.N_BLOCK), -1, np.int64)
    block[:, :, c.HOLDERS] = 0
    for k, each in enumerate(limits):
        ring = np.arange(each.n_blocks)
        block[k, : each.n_blocks, c.AFTER] = (ring + 1) % each.n_blocks
        block[k, : each.n_blocks, c.BEFORE] = (ring - 1) % each.n_blocks
    return block
