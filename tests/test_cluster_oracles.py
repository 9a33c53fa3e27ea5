"""The queueing skeleton of the cluster simulator against independent models of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cluster_samples import TOKEN, cluster, fuzz_profile, profile, trace
from numpy.typing import NDArray

import kvsweep

CHUNK = 1024


def test_a_lone_prefill_worker_is_a_queue_with_fixed_service() -> None:
    """Prompts that fill a chunk each: waiting times are Lindley's, at a load of 0.9."""
    rng = np.random.default_rng(3)
    service = CHUNK * TOKEN
    arrival = np.round(np.cumsum(rng.exponential(service / 0.9, 3000)), 9)
    arrival -= arrival[0]
    made = trace([(float(time), CHUNK, 1, ()) for time in arrival])
    fast = {"boundary": "b", "bytes_per_s": 1e15}
    ample = {"chunk_tokens": CHUNK, "device_tokens": 10**8, "max_running": 4096, "host_tokens": 0}
    ds = kvsweep.cluster.run(made, cluster(ample, {"max_running": 4096, "device_tokens": 10**8}), profile(handoff=fast))
    wait = np.zeros(len(arrival))
    for i, gap in enumerate(np.diff(arrival)):
        wait[i + 1] = max(0.0, wait[i] + service - gap)
    assert ds["prefill_start"].values - arrival == pytest.approx(wait, abs=1e-9)
    assert ds["queue_delay"].sel(cause="prefill").values == pytest.approx(wait, abs=1e-9)


def fluid(starts: NDArray[np.float64], work: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return when jobs end that share one server equally, in floating point, event by event."""
    left, ends, time = work.copy(), np.full(len(work), np.nan), 0.0
    begun = np.zeros(len(work), dtype=bool)
    while np.isnan(ends).any():
        active = begun & np.isnan(ends)
        coming = starts[~begun].min(initial=np.inf)
        done = time + left[active].min() * active.sum() if active.any() else np.inf
        step = min(coming, done)
        if active.any():
            left[active] -= (step - time) / active.sum()
        time = step
        if coming <= done:
            begun |= starts <= time
        else:
            ends[active & (left <= left[active].min() + 1e-15)] = time
    return ends


@pytest.mark.parametrize("seed", range(5))
def test_staggered_transfers_are_within_a_microsecond_of_the_fluid_model(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 40
    sizes = rng.integers(1, 60, n) * 64
    arrival = np.sort(rng.uniform(0.0, 0.2, n))
    arrival[0] = 0.0
    made = trace([(float(t), int(size), 1, ()) for t, size in zip(arrival, sizes, strict=True)])
    ds = kvsweep.cluster.run(made, cluster(prefill={"count": n}), profile(), check=True)
    expected = fluid(ds["prefill_end"].values, sizes / 64 * 1e-3)
    assert np.abs(ds["handoff_end"].values - expected).max() < 1e-6


def test_transfers_never_exceed_the_bandwidth() -> None:
    rng = np.random.default_rng(1)
    made = trace(
        [(float(t), int(n), 5, ()) for t, n in zip(rng.uniform(0, 1, 60), rng.integers(1, 9000, 60), strict=True)]
    )
    ds = kvsweep.cluster.run(made, cluster(prefill={"count": 5}), profile())
    span = float(ds["handoff_end"].max() - ds["prefill_start"].min())
    assert float(ds["bytes_in"].sel(worker="decode0", tier="l1")) <= span * 64e6


def test_many_threads_give_the_same_as_one() -> None:
    requests = [(0.01 * i, 500 + 7 * i, 1 + i % 9, range(i % 5)) for i in range(200)]
    made = trace(requests, page=4)
    config = cluster(prefill={"device_tokens": 4000, "count": 3, "chunk_tokens": 64}, page_size=4)
    alone = kvsweep.cluster.run(made, config, fuzz_profile())
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda _: kvsweep.cluster.run(made, config, fuzz_profile()), range(8)))
    assert all(alone.equals(other) for other in together)
