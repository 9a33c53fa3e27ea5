"""The queueing skeleton of the cluster simulator against independent models of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cluster_samples import TOKEN, cluster, fuzz_profile, profile, trace
from numpy.typing import NDArray

import kvsweep
from kvsweep.trace.model import Trace

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
    # Pollaczek-Khinchine: mean wait of M/D/1 is rho s / (2 (1 - rho)); of 3000 requests only roughly so.
    assert wait.mean() == pytest.approx(0.9 * service / (2 * 0.1), rel=0.5)


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


@pytest.mark.parametrize("seed", range(20))
def test_hits_of_a_lone_worker_are_those_of_an_lru_cache_of_pages(seed: int) -> None:
    """Requests far apart in time, page by page: no segments, no lists, no events."""
    rng = np.random.default_rng(seed)
    pool = int(rng.integers(6, 20))
    families = [rng.integers(0, 2, 8).tolist() for _ in range(4)]
    requests = []
    for i in range(40):
        steps = families[rng.integers(4)][: rng.integers(0, 9)]
        ids = [int("1" + "".join(map(str, steps[: k + 1])), 2) for k in range(len(steps))]
        requests.append((10.0 * i, max(1, 4 * len(ids) + int(rng.integers(0, 4))), 1, ids))
    made = trace(requests, page=4)
    config = cluster({"device_tokens": 4 * pool, "host_tokens": 0, "chunk_tokens": 64}, page_size=4)
    ds = kvsweep.cluster.run(made, config, profile(4), check=True)
    assert ds["hit_tokens"].values[:, 0].tolist() == lru_hits(made, pool)


def lru_hits(made: Trace, pool: int) -> list[int]:
    """Return the hit tokens of each request in a cache of `pool` pages of 4 tokens."""
    released: dict[int, int] = {}
    hits, clock = [], 0
    for i, length in enumerate(made.input_tokens.tolist()):
        chain = made.blocks[made.offsets[i] : made.offsets[i + 1]][: length // 4].tolist()
        matched = 0
        while matched < min(len(chain), (length - 1) // 4) and chain[matched] in released:
            matched += 1
        # The last page of a prompt that is cached whole is computed in place.
        need = -(-length // 4) - sum(1 for page in chain if page in released)
        if -(-length // 4) > pool:
            hits.append(0)
            continue
        while pool - len(released) < need:
            del released[min((page for page in released if page not in chain), key=released.__getitem__)]
        for page in reversed(chain):
            clock += 1
            released[page] = clock
        hits.append(4 * matched)
    return hits
