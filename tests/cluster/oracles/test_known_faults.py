"""Faults that are known of other simulators of LLM serving: none of them here, one test each, named after the fault.

What differs in fidelity engine is said with the test.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray

from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.inputs.config import ClusterConfig, parse_config
from kvsweep.cluster.inputs.service_profile import Profile
from kvsweep.cluster.outcome.dataset import dataset
from kvsweep.cluster.outcome.events import EVENTS, events
from kvsweep.cluster.simulation.run import finish
from tests.cluster.samples import COPY, PAGE, STEP, TOKEN, cluster, pages, path, profile, trace

PAGE_BYTES = 64_000
BANDWIDTH = 64e6
"""Of every path of the profile [byte/s]."""
ROUNDING = 1e-11
"""Times of the log are floating point; what the simulator rounds makes no transfer faster [s]."""


def run(requests: Sequence[Any], config: ClusterConfig, service: Profile | None = None) -> xr.Dataset:
    return dataset(finish(trace(requests), config, service or profile(), check=True))


def by_event(log: xr.Dataset, n_requests: int) -> dict[str, NDArray[np.float64]]:
    """Return the time of each kind of event by request, NaN where there was none [s]."""
    times = {name: np.full(n_requests, np.nan) for name in EVENTS}
    for kind, name in enumerate(EVENTS):
        found = log.isel(event=log["event_kind"].values == kind)
        times[name][found["event_request"].values] = found["event_time"].values
    return times


def event_times(requests: Sequence[Any], config: ClusterConfig) -> tuple[xr.Dataset, dict[str, NDArray[np.float64]]]:
    """Return a run and the times of its event log [s]."""
    done = finish(trace(requests), config, profile(), check=True)
    return dataset(done), by_event(events(done), len(requests))


# -- more hits must cost less


def test_fault_hits_are_billed_as_if_computed(fidelity: str) -> None:
    """The same lengths and times with more and more of the prompt shared: fewer tokens billed, all latencies lower."""
    n_pages = 32
    billed, ttft, busy = [], [], []
    for shared in (0, 8, 16, 24, 31):
        requests = [
            (0.1 * i, 64 * n_pages + 1, 4, [*pages(0, shared), *pages(1000 * (i + 1), n_pages - shared)])
            for i in range(20)
        ]
        ds = run(requests, cluster(fidelity=fidelity))
        assert int(ds["uncached_tokens"].sum()) == 20 * (64 * n_pages + 1) - 19 * 64 * shared
        billed.append(int(ds["uncached_tokens"].sum()))
        ttft.append(ds["ttft"].values)
        busy.append(float(ds["utilization"].sel(worker="prefill0") * ds.attrs["kvsweep_simulated_seconds"]))
    assert (np.diff(billed) < 0).all()
    assert busy == pytest.approx([tokens * TOKEN for tokens in billed])
    for less, more in zip(ttft, ttft[1:], strict=False):
        assert (more[1:] < less[1:]).all() and more[0] == less[0]


def test_fault_a_warm_prompt_of_several_chunks_is_computed_again(fidelity: str) -> None:
    """A prompt of three chunks, asked again: at most a page is computed, in one step."""
    for n_tokens in (9985, 10_000, 10_048):
        requests = [(60.0 * i, n_tokens, 1, pages(0, n_tokens // PAGE)) for i in range(3)]
        ds = run(requests, cluster(fidelity=fidelity))
        assert ds["uncached_tokens"].values[0] == n_tokens
        assert 1 <= ds["uncached_tokens"].values[1] == ds["uncached_tokens"].values[2] <= PAGE
        step = (ds["prefill_end"] - ds["prefill_start"]).values
        assert step[1:] == pytest.approx(ds["uncached_tokens"].values[1:] * TOKEN)


# -- the host is a tier of its own


def test_fault_the_host_is_asked_only_when_the_device_is_full(fidelity: str) -> None:
    """Two equal prompts computed at once push the first off the device, then their second copy frees half of it.

    Engine: whole nodes go until the whole amount is free: 8 pages for the first, too few, then all 20 of the second.
    """
    first, twins, wide = (513, 1, pages(0, 8)), (640, 1, pages(100, 10)), (1280, 1, pages(200, 20))
    requests, size, gone = [(0.0, *first), (1.0, *twins), (1.0, *twins), (2.0, *first)], 20, 8
    if fidelity == "engine":
        requests, size, gone = [(0.0, *first), (1.0, *wide), (2.0, *twins), (3.0, *first)], 30, 28
    config = cluster({"device_tokens": size * PAGE}, fidelity=fidelity)
    before, after = run(requests[:3], config), run(requests, config)
    assert before["evictions"].sel(worker="prefill0").values.tolist() == [gone, 0, 0]
    assert after["hit_tokens"].values[3].tolist() == [0, 512, 0]
    assert after["evictions"].equals(before["evictions"])  # it was not full: nobody had to go


# -- nobody is dropped


@pytest.mark.parametrize("tight", [{"device_tokens": 1600}, {"max_running": 1}, {"device_tokens": 1600, "count": 2}])
def test_fault_a_full_decode_side_drops_requests(tight: dict[str, int], fidelity: str) -> None:
    """Engine: what waits is admitted by another rule, and may be retracted, but every token is delivered."""
    rng = np.random.default_rng(4)
    requests = [(0.001 * i, int(rng.integers(1, 700)), int(rng.integers(1, 200)), ()) for i in range(60)]
    config = cluster({"count": 2}, tight, fidelity=fidelity)
    ds = run(requests, config)
    assert not ds["rejected"].any() and np.isfinite(ds["finish"].values).all()
    assert ds["delivered_tokens"].sum() == ds["output_tokens"].sum() and ds["outstanding"].values[-1] == 0
    waits = ds["queue_delay"].sel(cause=["decode_capacity", "decode"]).sum("cause").values
    assert (waits > 0.1).sum() > 40
    limit = tight.get("device_tokens", 10**9)
    assert (ds["occupancy"].sel(tier="l1").values[config.n_prefill :] <= limit).all()


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("role", ["decode", "colocated"])
def test_fault_the_retracted_are_lost_or_answer_twice(role: str, overlap: bool) -> None:
    """Without room held back for answers, requests are put out of the batch and come back: each token comes once."""
    rng = np.random.default_rng(4)
    requests = [(0.001 * i, int(rng.integers(1, 300)), int(rng.integers(100, 400)), ()) for i in range(60)]
    group = {"role": role, "tp": 1, "device_tokens": 1600}
    groups = [group] if role == "colocated" else [{**group, "role": "prefill", "device_tokens": 10**6}, group]
    rules = {"overlap": overlap, "reserved_decode_tokens": 0, "conservativeness": 0.1}
    config = parse_config({"page_size": PAGE, "workers": groups, "engine": rules}, "cluster")
    done = finish(trace(requests), config, profile(), check=True)
    ds = dataset(done)
    # A colocated worker holds back more after each, so that few follow.
    assert done.state.decode[:, eng.RETRACTIONS].sum() > (10 if role == "decode" else 2)
    assert not ds["rejected"].any() and np.isfinite(ds["finish"].values).all()
    assert ds["delivered_tokens"].sum() == ds["output_tokens"].sum() and ds["outstanding"].values[-1] == 0
    # A decode step is a token of a request at most: retracted or not, an answer takes its steps.
    steps = ds["output_tokens"].values - 1
    assert (ds["finish"].values - ds["first_token"].values >= steps * STEP - ROUNDING).all()
    assert (ds["occupancy"].sel(tier="l1").values[-1] <= 1600).all()


# -- bandwidth is shared, and never more than there is


def busiest(begin: NDArray[np.float64], end: NDArray[np.float64], payload: NDArray[np.float64]) -> float:
    """Return by how much more than the bandwidth allows was carried in any interval, as time [s].

    Of every interval from the start of a transfer to the end of one, all transfers within it count.
    """
    order = np.argsort(end)
    worst = -np.inf
    for start in begin:
        carried = np.cumsum(payload[order] * (begin[order] >= start))
        worst = max(worst, float((carried / BANDWIDTH - (end[order] - start))[begin[order] >= start].max()))
    return worst


def crowd() -> list[Any]:
    """Return prompts of one chunk that come in bursts, half of them again after they left the device."""
    rng = np.random.default_rng(2)
    times = np.sort(rng.uniform(0.0, 3.0, 120))
    kinds = rng.integers(0, 25, 120)
    return [
        (float(time), 64 * (5 + int(kind)) + 1, 2, pages(100 * kind, 5 + int(kind)))
        for time, kind in zip(times, kinds, strict=True)
    ]


@pytest.mark.parametrize("sharing", ["processor_sharing", "fifo"])
@pytest.mark.parametrize(("sources", "targets"), [(3, 2), (1, 4), (4, 1)])
def test_fault_paths_carry_more_than_their_bandwidth(sources: int, targets: int, sharing: str, fidelity: str) -> None:
    """From the event log: bytes of any interval at most bandwidth x interval, at every source, destination, engine.

    Engine: what is fetched from the host is so while the step computes, from its start to its end at the latest.
    """
    requests, prefill = crowd(), {"count": sources, "device_tokens": 60 * PAGE}
    config = cluster(prefill, {"count": targets}, handoff_sharing=sharing, fidelity=fidelity)
    ds, times = event_times(requests, config)
    fetching = ("prefill_started", "prefill_ended") if fidelity == "engine" else ("retrieval_started", "ready")
    handed = -(-ds["prompt_tokens"].values // PAGE) * PAGE_BYTES
    for side in ("prefill_worker", "decode_worker"):
        for worker in np.unique(ds[side].values):
            mine = ds[side].values == worker
            assert mine.sum() > 10
            assert busiest(times["prefill_ended"][mine], times["handoff_ended"][mine], handed[mine]) < ROUNDING
    fetched = ds["hit_tokens"].values[:, 1] / PAGE * PAGE_BYTES
    assert (fetched > 0).sum() > 10
    for worker in np.unique(ds["prefill_worker"].values[fetched > 0]):
        mine = (ds["prefill_worker"].values == worker) & (fetched > 0)
        assert busiest(*(times[name][mine] for name in fetching), fetched[mine]) < ROUNDING


def test_the_measure_of_bandwidth_finds_what_is_too_much(fidelity: str) -> None:
    """With sharing switched off, the paper's simplification, a destination is filled by all sources at full rate."""
    config = cluster({"count": 3, "device_tokens": 60 * PAGE}, handoff_sharing="none", fidelity=fidelity)
    ds, times = event_times(crowd(), config)
    handed = -(-ds["prompt_tokens"].values // PAGE) * PAGE_BYTES
    assert busiest(times["prefill_ended"], times["handoff_ended"], handed) > 0.01


def test_fault_write_back_is_free(fidelity: str) -> None:
    """Prompts that fill the device one after the other: the next must wait until the last is copied to the host.

    Engine: copies may start later, at the end of a loop.
    """
    requests = [(0.0, 513, 1, pages(100 * i, 8)) for i in range(10)]
    found = {}
    for policy in ("write_through", "none"):
        config = cluster({"device_tokens": 9 * PAGE}, write={"policy": policy}, fidelity=fidelity)
        done = finish(trace(requests), config, profile(handoff=path(bytes_per_s=1e15)), check=True)
        found[policy] = by_event(events(done), 10)["admitted"]
        written = dataset(done)["bytes_in"].sel(worker="prefill0", tier="l2")
        assert written == (10 * 8 * PAGE_BYTES if policy == "write_through" else 0)
    steps = np.arange(10) * 513 * TOKEN
    assert found["write_through"] == pytest.approx(steps + np.arange(10) * 8 * PAGE_BYTES / BANDWIDTH, abs=1e-9)
    assert found["none"] == pytest.approx(steps, abs=1e-8)


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
def test_fault_a_share_is_fixed_when_the_transfer_starts(seed: int, fidelity: str) -> None:
    """Staggered chunks: every start and every end changes the rate of all; within 1 us of the exact fluid solution.

    Engine: transfers may start at other times, but share alike from their start on.
    """
    rng = np.random.default_rng(seed)
    n = 40
    sizes = rng.integers(1, 60, n) * 64
    arrival = np.sort(rng.uniform(0.0, 0.2, n))
    arrival[0] = 0.0
    requests = [(float(time), int(size), 1, ()) for time, size in zip(arrival, sizes, strict=True)]
    ds = run(requests, cluster(prefill={"count": n}, fidelity=fidelity))
    starts, work = ds["prefill_end"].values, sizes / PAGE * COPY
    assert np.abs(ds["handoff_end"].values - fluid(starts, work)).max() < 1e-6
    # What the fault gives is far from it: the rate of the start, kept.
    ends = ds["handoff_end"].values
    sharing = np.array([((starts <= start) & (ends > start)).sum() for start in starts])
    assert np.abs(starts + work * sharing - ends).max() > 1e-3


@pytest.mark.parametrize("k", [2, 5, 16])
@pytest.mark.parametrize("chunk", [64, 640])
def test_fault_k_transfers_at_once_are_as_fast_as_one(k: int, chunk: int, fidelity: str) -> None:
    """Prompts sent in one chunk or in ten: k of them at once need the link k times as long.

    Engine: chunks may begin later, but need as long.
    """
    config = cluster(prefill={"count": k, "chunk_tokens": chunk}, fidelity=fidelity)
    one, many = (run([(0.0, 640, 1, ())] * count, config) for count in (1, k))
    began = min(chunk, 640) * TOKEN
    assert one["handoff_end"].values - began == pytest.approx([10 * COPY], abs=1e-9)
    assert many["handoff_end"].values - began == pytest.approx([k * 10 * COPY] * k, abs=1e-9)
    # Engine: the first token comes from the prefill worker, and is told after a prebuilt round instead of a step.
    token = config.engine.prebuilt_seconds if fidelity == "engine" else STEP
    assert (many["first_token"] - many["handoff_end"]).values == pytest.approx([token] * k)
