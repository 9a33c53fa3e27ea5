"""Handoff in fidelity engine, shared at both of its ends, against closed forms and an exact fluid solution.

A chunk on the way has the K-th part of the rate, K the larger of the numbers of chunks into its decode worker and out
of its prefill worker. Prompts here are one chunk each, which is queued as its prefill step ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import xarray as xr

import kvsweep
from tests.cluster.samples import COPY, PAGE, TOKEN, Request, cluster, profile, trace

STEPS_OF_ANY_LENGTH = {"max_prefill_tokens": 10**9}
ENDS = [(1, 1), (5, 1), (1, 5), (3, 3)]
"""Prefill and decode workers."""


class Chunk(NamedTuple):
    """A chunk from one worker to another, when it is queued and how long it takes alone [s]."""

    source: int
    target: int
    queued: float
    alone: float


def fluid(chunks: Sequence[Chunk], outward: bool = True) -> list[float]:
    """Return when each chunk arrives, event by event; without `outward`, where sources have any bandwidth."""
    left, end, now = [chunk.alone for chunk in chunks], [np.inf] * len(chunks), 0.0
    order = sorted(range(len(chunks)), key=lambda i: chunks[i].queued)
    while np.inf in end:
        first: dict[tuple[int, int], int] = {}
        for i in order:
            if end[i] == np.inf and chunks[i].queued <= now:
                first.setdefault((chunks[i].source, chunks[i].target), i)
        shares = {
            i: max(sum(t == target for _, t in first), outward * sum(s == source for s, _ in first))
            for (source, target), i in first.items()
        }
        coming = min((chunk.queued for chunk in chunks if chunk.queued > now), default=np.inf)
        until = min(coming, *(now + left[i] * share for i, share in shares.items()), np.inf)
        for i, share in shares.items():
            left[i] -= (until - now) / share
            if left[i] < 1e-14:
                end[i] = until
        now = until
    return end


def run(requests: Sequence[Request], sources: int, targets: int, **changes: Any) -> tuple[xr.Dataset, list[Chunk]]:
    """Return a run, and what its handoffs were."""
    config = cluster(
        {"count": sources, "chunk_tokens": 2**20, "device_tokens": 10**7}, {"count": targets, "device_tokens": 10**7},
        fidelity="engine", engine=STEPS_OF_ANY_LENGTH, **changes,
    )  # fmt: skip
    ds = kvsweep.cluster.run(trace(requests), config, profile(), check=True)
    columns = (ds["prefill_worker"], ds["decode_worker"], ds["prefill_end"], ds["prompt_tokens"] / PAGE * COPY)
    return ds, [Chunk(*row) for row in zip(*(column.values.tolist() for column in columns), strict=True)]


def staggered(seed: int, n: int = 60) -> list[Request]:
    rng = np.random.default_rng(seed)
    arrival = np.sort(rng.uniform(0.0, 0.3, n))
    sizes = 64 * rng.integers(1, 40, n)
    return [(float(time - arrival[0]), int(size), 1, ()) for time, size in zip(arrival, sizes, strict=True)]


@pytest.mark.parametrize("k", [2, 3, 8])
@pytest.mark.parametrize("way", ["into one", "out of one"])
def test_k_equal_chunks_take_k_times_as_long_as_one(way: str, k: int) -> None:
    ends = (k, 1) if way == "into one" else (1, k)
    one, many = (run([(0.0, 640, 1, ())] * count, *ends)[0] for count in (1, k))
    assert (one["handoff_end"] - one["prefill_end"]).values == pytest.approx([10 * COPY], abs=1e-11)
    assert (many["handoff_end"] - many["prefill_end"]).values == pytest.approx([k * 10 * COPY] * k, abs=1e-11)


@pytest.mark.parametrize("ends", [(2, 1), (1, 2)])
def test_the_second_of_two_halves_the_rate_from_its_start_on(ends: tuple[int, int]) -> None:
    ds, (first, second) = run([(0.0, 640, 1, ()), (0.004, 640, 1, ())], *ends)
    assert second.queued - first.queued == pytest.approx(0.004)
    until_second = 0.004
    both = first.queued + until_second + 2 * (first.alone - until_second)
    assert ds["handoff_end"].values == pytest.approx([both, both + until_second], abs=1e-11)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ends", ENDS)
def test_every_start_and_end_changes_the_rate_of_all(ends: tuple[int, int], seed: int) -> None:
    """Within 1 us of the exact solution."""
    ds, chunks = run(staggered(seed), *ends, gateway={"policy": "random", "seed": seed})
    assert np.abs(ds["handoff_end"].values - fluid(chunks)).max() < 1e-6
    if ends[1] > 1:  # and far from it were sources not shared
        assert np.abs(ds["handoff_end"].values - fluid(chunks, outward=False)).max() > 1e-3


@pytest.mark.parametrize("seed", range(5))
def test_fifo_is_one_after_the_other(seed: int) -> None:
    """In the order in which they were queued, each at full rate: Lindley's recursion."""
    ds, chunks = run(staggered(seed), 5, 1, handoff_sharing="fifo")
    free = 0.0
    for i in sorted(range(len(chunks)), key=lambda i: chunks[i].queued):
        free = max(free, chunks[i].queued) + chunks[i].alone
        assert ds["handoff_end"].values[i] == pytest.approx(free, abs=1e-10)


def test_isolated_chunks_do_not_meet() -> None:
    ds, chunks = run([(0.0, 640, 1, ())] * 5, 5, 1, handoff_sharing="none")
    assert ds["handoff_end"].values == pytest.approx([640 * TOKEN + chunk.alone for chunk in chunks], abs=1e-11)
