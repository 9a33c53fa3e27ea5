"""What a trace is like: lengths, arrivals, and how much of it caches of several sizes would hit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvsweep.trace.model import Trace
from kvsweep.trace.reuse import block_distances, hit_ratios, reuse

CAPACITIES = (1000, 5000, 10_000, 20_000, 50_000, 100_000)
"""Cache sizes of the hit curve unless asked otherwise [block]."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and quantiles of a quantity, in its unit."""

    mean: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class TraceStats:
    """Figures of a trace; the fields are the keys of ``kvsweep trace stats --format json``.

    Hit ratios are token-weighted: sum of min(hit blocks x block size, input length) over the sum of input lengths.
    They are None for a trace without block ids, as are the reuses of one that has none.
    """

    requests: int
    duration_seconds: float
    request_rate: float | None
    input_tokens: Spread
    output_tokens: Spread
    infinite_hit_ratio: float | None
    lru_hit_ratio: dict[str, float | None]
    reuse_seconds: Spread | None
    reuse_blocks: Spread | None
    interarrival_seconds: Spread | None
    block_size: int | None
    distinct_blocks: int
    sessions: int
    groups: int


def trace_stats(trace: Trace, capacities: Sequence[int] = CAPACITIES) -> TraceStats:
    """Return the figures of `trace`, with hit ratios of LRU caches of `capacities` [block]."""
    infinite: float | None = None
    curve: list[float] | list[None] = [None] * len(capacities)
    seconds = distances = None
    if trace.block_size:
        found = reuse(trace)
        infinite, *curve = hit_ratios(trace, found, [None, *capacities])
        distances, seconds = (spread_of(values) for values in block_distances(found))
    return TraceStats(
        requests=len(trace),
        duration_seconds=trace.duration,
        request_rate=len(trace) / trace.duration if trace.duration else None,
        input_tokens=_lengths(trace.input_tokens),
        output_tokens=_lengths(trace.output_tokens),
        infinite_hit_ratio=infinite,
        lru_hit_ratio={str(capacity): ratio for capacity, ratio in zip(capacities, curve, strict=True)},
        reuse_seconds=seconds,
        reuse_blocks=distances,
        interarrival_seconds=spread_of(np.diff(trace.arrival)),
        block_size=trace.block_size or None,
        distinct_blocks=int(trace.blocks.max(initial=-1)) + 1,
        sessions=int(trace.session.max(initial=-1)) + 1,
        groups=int(trace.group.max(initial=-1)) + 1,
    )


def spread_of(values: NDArray[Any]) -> Spread | None:
    """Return mean and quantiles of `values`; None where there are none."""
    if not len(values):
        return None
    p50, p90, p99 = (float(value) for value in np.percentile(values, [50, 90, 99]))
    return Spread(float(values.mean()), p50, p90, p99)


def _lengths(values: NDArray[np.int64]) -> Spread:
    found = spread_of(values)
    assert found is not None  # a trace that was read has requests
    return found
