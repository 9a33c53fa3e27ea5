"""Changes of a trace: other rates, times off their grid, other block sizes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kvsweep.errors import InputError
from kvsweep.trace.model import Ints, Note, Trace, dense, expand_runs, offsets_of

_ON_GRID = 0.95
"""Share of the gaps that must be whole multiples of the smallest one for times to count as gridded [1]."""
_JITTER = 0.01
"""How far a gap may be off a multiple of the grid [grid]."""


def scale_time(trace: Trace, factor: float) -> Trace:
    """Return the trace with all times between arrivals `factor` times as long; think times stay, they are people's."""
    return replace(trace, arrival=trace.arrival * factor)


def scale_to_rate(trace: Trace, rate: float) -> Trace:
    """Return the trace with intervals scaled so that requests arrive at `rate` on average [1/s].

    As `stats` counts: requests over the time from the first arrival to the last.
    """
    if trace.duration == 0.0:
        raise InputError("the requests all arrive at once; allowed for a rate: a trace that lasts some time")
    return scale_time(trace, len(trace) / trace.duration / rate)


def grid_seconds(trace: Trace) -> float | None:
    """Return the step [s] of the grid arrivals were rounded to; None where they sit on none.

    Gridded are times that several requests share and whose gaps are multiples of the usual gap.
    """
    times = np.unique(trace.arrival)
    if len(times) < 3 or 2 * len(times) > len(trace):
        return None
    gaps = np.diff(times)
    step = float(np.median(gaps))
    steps = gaps / step
    on_grid = (np.abs(steps - np.round(steps)) < _JITTER) & (np.round(steps) > 0)
    return step if on_grid.mean() >= _ON_GRID else None


def spread(trace: Trace, step: float, seed: int) -> Trace:
    """Return the trace with arrivals moved to random times, uniform over the `step` [s] that follows their own.

    The order of requests stays: of those that share a time the first stays first, and none passes the next time.
    """
    rng = np.random.default_rng(seed)
    times, tick = np.unique(trace.arrival, return_inverse=True)
    room = np.minimum(np.append(np.diff(times), step), step)
    share = rng.random(len(trace))
    share = share[np.lexsort((share, tick))]  # ascending within a tick; ticks themselves ascend
    arrival = trace.arrival + share * room[tick]
    note = Note("assumed", f"arrivals spread over the {step:.6g} s after them, seed {seed}", len(trace))
    return replace(trace, arrival=arrival - arrival[0], notes=(*trace.notes, note))


def change_block_size(trace: Trace, block_size: int) -> Trace:
    """Return the trace with blocks of `block_size` [token], a divisor or a multiple of its own.

    Divided blocks are shared as a whole, as their ids tell no more, so hits are a lower bound. Of blocks that are
    put together an incomplete last one is left out.
    """
    size = trace.block_size
    if not size:
        raise InputError("the trace has no block ids; allowed for another block size: one that has")
    if size == block_size:
        return trace
    if size % block_size == 0:
        return _divided(trace, size // block_size, block_size)
    if block_size % size == 0:
        return _merged(trace, block_size // size, block_size)
    raise InputError(f"a block size of {block_size} tokens; allowed: a divisor or a multiple of the trace's {size}")


def _divided(trace: Trace, parts: int, block_size: int) -> Trace:
    goes_on = trace.n_blocks > trace.n_prompt_blocks  # over the answer
    n_tokens = trace.input_tokens + np.where(goes_on, trace.output_tokens, 0)
    counts = np.minimum(trace.n_blocks * parts, -(-n_tokens // block_size))
    kept = np.full(len(trace.blocks), parts, dtype=np.int64)
    last = (trace.offsets[1:] - 1)[trace.n_blocks > 0]
    kept[last] -= (trace.n_blocks * parts - counts)[trace.n_blocks > 0]
    ids = expand_runs(trace.blocks.astype(np.int64) * parts, kept)
    note = Note("assumed", f"pages of {block_size} tokens are shared as whole blocks of {trace.block_size}", len(trace))
    return _with_blocks(trace, block_size, counts, ids, note)


def _merged(trace: Trace, parts: int, block_size: int) -> Trace:
    counts = trace.n_blocks // parts
    # The last block of a merged one tells its whole prefix, for ids are chained.
    last = expand_runs(np.zeros(len(trace), dtype=np.int64), counts) * parts + parts - 1
    ids = trace.blocks[np.repeat(trace.offsets[:-1], counts) + last].astype(np.int64)
    left = int((trace.n_blocks % parts > 0).sum())
    note = Note("dropped", f"last blocks that do not fill one of {block_size} tokens", left)
    return _with_blocks(trace, block_size, counts, ids, note)


def _with_blocks(trace: Trace, block_size: int, counts: Ints, ids: Ints, note: Note) -> Trace:
    return replace(
        trace, block_size=block_size, offsets=offsets_of(counts), blocks=dense(ids).astype(np.int32),
        notes=(*trace.notes, note) if note.count else trace.notes,
    )  # fmt: skip
