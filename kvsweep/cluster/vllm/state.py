"""What a vLLM worker's run is made of: integer arrays for the core, built from requests and limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsweep.cluster.vllm import columns as c
from kvsweep.errors import InputError

LOG_STEPS = 1 << 14
"""Steps the log holds at first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Configuration of a worker, in the engine's terms; `n_blocks` is what the engine reports, null block included."""

    n_blocks: int
    block_tokens: int = 16
    token_budget: int = 2048
    max_sequences: int = 256
    reserve_full: bool = True
    steps_in_flight: int = 2
    prefix_cache: bool = True
    watermark_blocks: int = 0


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request: arrival [s], tokens of prompt and answer, and the contents of its full blocks.

    Equal numbers in `keys` are equal contents after equal prefixes; answers have blocks of their own.
    """

    arrival: float
    prompt_tokens: int
    output_tokens: int
    keys: Sequence[int]


class Worker(NamedTuple):
    """State of a worker; see `columns` for the columns."""

    limits: NDArray[np.int64]
    run: NDArray[np.int64]
    request: NDArray[np.int64]
    keys: NDArray[np.int64]
    table: NDArray[np.int64]
    running: NDArray[np.int64]
    holders: NDArray[np.int64]
    """Holders of a block."""
    key_of: NDArray[np.int64]
    """Content of a block, -1 for none that others may find."""
    after: NDArray[np.int64]
    """Next block of the free queue; the last entry is the queue's head and tail."""
    before: NDArray[np.int64]
    same_after: NDArray[np.int64]
    """Next block of the same content, in the order of naming."""
    same_before: NDArray[np.int64]
    first_of: NDArray[np.int64]
    """First block that holds a content, -1 for none."""
    last_of: NDArray[np.int64]
    step: NDArray[np.int64]
    flight_end: NDArray[np.int64]
    flight_count: NDArray[np.int64]
    flight: NDArray[np.int64]
    """(steps in flight, requests that sample in them)."""
    log: NDArray[np.int64]


def new_worker(requests: Sequence[Arrival], limits: Limits) -> Worker:
    """Return a worker that has all of `requests` before it, in order of arrival; raises InputError for misfits."""
    usable = limits.n_blocks - 1
    size = limits.block_tokens
    order = sorted(range(len(requests)), key=lambda i: requests[i].arrival)
    if order != list(range(len(requests))):
        raise InputError("requests are not in order of arrival; allowed: arrivals that do not decrease")
    request = np.zeros((len(requests), c.N_REQUEST), np.int64)
    total = 0
    for row, each in zip(request, requests, strict=True):
        tokens = each.prompt_tokens + each.output_tokens
        if -(-tokens // size) > usable:
            raise InputError(
                f"a request of {tokens} tokens needs {-(-tokens // size)} blocks, and the worker has {usable}; "
                "allowed: requests that fit"
            )
        if len(each.keys) != tokens // size:
            raise InputError(
                f"a request of {tokens} tokens has {len(each.keys)} block contents; "
                f"allowed: {tokens // size}, one for each full block of {size}"
            )
        row[c.ARRIVAL] = round(each.arrival * 1e12)
        row[c.PROMPT], row[c.OUTPUT], row[c.BASE] = each.prompt_tokens, each.output_tokens, total
        total += -(-tokens // size)
    request[:, [c.SCHEDULED, c.FIRST_TOKEN, c.FINISH, c.HIT, c.NEXT]] = -1
    keys = np.full(total, -1, np.int64)
    for row, each in zip(request, requests, strict=True):
        keys[row[c.BASE] : row[c.BASE] + len(each.keys)] = each.keys
    return _assembled(limits, request, keys, usable)


def _assembled(limits: Limits, request: NDArray[np.int64], keys: NDArray[np.int64], usable: int) -> Worker:
    n_keys = int(keys.max(initial=0)) + 1
    run = np.zeros(c.N_RUN, np.int64)
    run[[c.WAIT_HEAD, c.WAIT_TAIL]] = -1
    run[c.N_FREE] = usable
    ring = np.arange(usable + 1, dtype=np.int64)
    given = (
        usable, limits.block_tokens, limits.token_budget, limits.max_sequences, int(limits.reserve_full),
        limits.steps_in_flight, int(limits.prefix_cache), limits.watermark_blocks,
    )  # fmt: skip
    none = np.full(usable, -1, np.int64)
    depth = limits.steps_in_flight
    return Worker(
        limits=np.array(given, np.int64),
        run=run,
        request=request,
        keys=keys,
        table=np.full(len(keys), -1, np.int64),
        running=np.zeros(max(limits.max_sequences, 1), np.int64),
        holders=np.zeros(usable, np.int64),
        key_of=none.copy(),
        after=(ring + 1) % (usable + 1),
        before=(ring - 1) % (usable + 1),
        same_after=none.copy(),
        same_before=none.copy(),
        first_of=np.full(n_keys, -1, np.int64),
        last_of=np.full(n_keys, -1, np.int64),
        step=np.zeros(c.N_STEP, np.int64),
        flight_end=np.zeros(depth, np.int64),
        flight_count=np.zeros(depth, np.int64),
        flight=np.zeros((depth, max(limits.max_sequences, 1)), np.int64),
        log=np.zeros((LOG_STEPS, c.N_LOG_COLUMNS), np.int64),
    )
