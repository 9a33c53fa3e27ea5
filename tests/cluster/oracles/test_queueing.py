"""The cluster simulator in the limits that queueing theory has closed forms for.

Waits are compared with their means within what the theory of the standard error allows, at a level of 0.001 a
comparison: the asymptotic variance where it is known (M/M/1), else Student's t over independent replications. Seeds are
fixed; no tolerance is fitted to what came out.

Fidelity engine: a worker that looks at its queue at the boundaries of its loop only waits longer than these, unless
nothing but what is looked at takes time: prebuilt rounds of 1 ps, no room held back, and steps of any length.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, lgamma, log, sqrt
from typing import Any

import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray

import kvsweep
from kvsweep.trace.model import Floats, Ints, Trace
from tests.cluster.samples import cluster, profile

TOKEN = 1e-6
"""Time of a token, of prefill or of handoff [s]."""
AMPLE = {"device_tokens": 10**9, "max_running": 4096}
QUICK = {"boundary": "whole", "bytes_per_s": 1e15}
INSTANT = {"boundary": "whole", "batch": [1], "base_seconds": [0.0], "context_token_seconds": [0.0]}
PROMPT = {"prebuilt_seconds": 0.0, "max_prefill_tokens": 10**9, "reserved_decode_tokens": 0}
"""The engine's settings with which its workers wait for nothing but each other."""
REPLICATIONS, T_QUANTILE = 12, 4.437
"""Student's t with 11 degrees of freedom exceeds the quantile with probability 0.0005."""
NORMAL_QUANTILE = 3.291
"""The normal distribution does."""


def settings(fidelity: str) -> dict[str, Any]:
    return {"fidelity": fidelity, "write": {"policy": "none"}} | ({"engine": PROMPT} if fidelity == "engine" else {})


def poisson_trace(rng: np.random.Generator, rate: float, sizes: Ints) -> Trace:
    """Return requests of `sizes` [token] and one token of answer that arrive at `rate` on average [1/s]."""
    n = len(sizes)
    arrival = np.cumsum(rng.exponential(1.0 / rate, n))
    none = np.full(n, -1, dtype=np.int64)
    return Trace(
        arrival=arrival - arrival[0], input_tokens=sizes, output_tokens=np.ones(n, dtype=np.int64), session=none,
        turn=np.zeros(n, dtype=np.int64), group=none, think=np.full(n, np.nan), block_size=0,
        offsets=np.zeros(n + 1, dtype=np.int64), blocks=np.zeros(0, dtype=np.int32), source="Poisson",
    )  # fmt: skip


def queue(trace: Trace, fidelity: str, workers: int = 1) -> xr.Dataset:
    """Return a run on `workers` FIFO prefill workers that serve one request at a time, everything else instant."""
    prefill = {**AMPLE, "count": workers, "max_running": 1, "host_tokens": 0, "chunk_tokens": 10**6}
    config = cluster(prefill, AMPLE, page_size=1, **settings(fidelity))
    service = profile(1, kv_bytes_per_token=1.0, handoff=QUICK, decode=INSTANT)
    return kvsweep.cluster.run(trace, config, service)


def shared_link(trace: Trace, fidelity: str) -> xr.Dataset:
    """Return a run in which all that takes time is the handoff into one decode worker, a source for every request."""
    prefill = {**AMPLE, "count": 64, "host_tokens": 0, "chunk_tokens": 10**6}
    config = cluster(prefill, AMPLE, page_size=1, gateway={"policy": "least_loaded"}, **settings(fidelity))
    service = profile(
        1, kv_bytes_per_token=1.0, decode=INSTANT, prefill={"boundary": "whole", "token_seconds": 0.0},
        handoff={"boundary": "whole", "bytes_per_s": 1.0 / TOKEN},
    )  # fmt: skip
    return kvsweep.cluster.run(trace, config, service)


def replicated(sample: Callable[[np.random.Generator], Floats]) -> tuple[Floats, Floats]:
    """Return the mean of the figures of independent replications, and how far off it may be."""
    found = np.array([sample(rng) for rng in np.random.default_rng(11).spawn(REPLICATIONS)])
    return found.mean(axis=0), T_QUANTILE * found.std(axis=0, ddof=1) / sqrt(REPLICATIONS)


def waits(ds: xr.Dataset) -> Floats:
    found: Floats = (ds["prefill_start"] - ds["arrival"]).values
    return found


def lindley(trace: Trace) -> NDArray[np.float64]:
    """Return the waits of a FIFO server by Lindley's recursion."""
    service, gaps = trace.input_tokens * TOKEN, np.diff(trace.arrival)
    wait = np.zeros(len(trace))
    for i, gap in enumerate(gaps.tolist()):
        wait[i + 1] = max(0.0, wait[i] + service[i] - gap)
    return wait


def test_poisson_arrivals_of_exponential_service_are_m_m_1(fidelity: str) -> None:
    """Mean wait rho/(1 - rho) [mean service], its asymptotic variance by Daley (1968), P(no wait) = 1 - rho."""
    n, mean, load = 200_000, 1000, 0.7
    rng = np.random.default_rng(5)
    # Whole tokens: the geometric distribution, whose second moment is that of the exponential to 1 in 2000.
    trace = poisson_trace(rng, load / (mean * TOKEN), rng.geometric(1.0 / mean, n))
    wait = waits(queue(trace, fidelity)) / (mean * TOKEN)
    variance = load * (2 + 5 * load - 4 * load**2 + load**3) / (1 - load) ** 4
    discreteness = load / (1 - load) / (2 * mean)
    assert abs(wait.mean() - load / (1 - load)) < NORMAL_QUANTILE * sqrt(variance / n) + discreteness
    assert lindley(trace) / mean / TOKEN == pytest.approx(wait, abs=1e-6)


def test_prompts_that_fill_a_chunk_each_wait_as_in_a_queue(fidelity: str) -> None:
    """As above without limit of slots: the waiting queue of the worker alone holds them."""
    size = 1000
    trace = poisson_trace(np.random.default_rng(3), 0.9 / (size * TOKEN), np.full(3000, size))
    ample = {**AMPLE, "host_tokens": 0, "chunk_tokens": size}
    config = cluster(ample, AMPLE, page_size=1, **settings(fidelity))
    ds = kvsweep.cluster.run(trace, config, profile(1, handoff=QUICK, decode=INSTANT))
    assert waits(ds) == pytest.approx(lindley(trace), abs=1e-9)
    assert ds["queue_delay"].sel(cause="prefill").values == pytest.approx(lindley(trace), abs=1e-9)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_the_wait_of_m_m_1_is_exponential(load: float, fidelity: str) -> None:
    """P(wait > t) = rho exp(-(1 - rho) t), t in mean services."""
    mean, times = 1000, np.array([0.0, 1.0, 3.0])

    def sample(rng: np.random.Generator) -> Floats:
        trace = poisson_trace(rng, load / (mean * TOKEN), rng.geometric(1.0 / mean, 15_000))
        wait = waits(queue(trace, fidelity)) / (mean * TOKEN)
        return (wait[:, None] > times + 1e-9).mean(axis=0)

    found, error = replicated(sample)
    assert (np.abs(found - load * np.exp(-(1 - load) * times)) < error).all()


def crommelin(servers: int, load: float) -> float:
    """Return the mean wait of M/D/c by Crommelin's formula (1932) [service]."""
    total, added, k = 0.0, 1.0, 0
    while added > 1e-9:
        k += 1
        mean, least = k * servers * load, k * servers
        # The tails of a Poisson distribution, from `least` and from the number after it on.
        weights = [exp(n * log(mean) - mean - lgamma(n + 1)) for n in range(least, least + 300)]
        added = sum(weights) - sum(weights[1:]) / load
        total += added
    return total


@pytest.mark.parametrize("load", [0.3, 0.9])
def test_crommelin_for_one_server_is_pollaczek_khinchine(load: float) -> None:
    assert crommelin(1, load) == pytest.approx(load / (2 * (1 - load)), rel=1e-6)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.7), (1, 0.9), (2, 0.8), (4, 0.8), (8, 0.9)])
def test_equal_prompts_are_m_d_c(servers: int, load: float, fidelity: str) -> None:
    """Round robin over c workers is one queue for all of them where service is fixed."""
    size = 1000

    def sample(rng: np.random.Generator) -> Floats:
        trace = poisson_trace(rng, servers * load / (size * TOKEN), np.full(15_000, size))
        return np.array([waits(queue(trace, fidelity, servers)).mean() / (size * TOKEN)])

    found, error = replicated(sample)
    assert abs(found - crommelin(servers, load)) < error


SIZES: dict[str, Callable[[np.random.Generator, int], Ints]] = {
    "equal": lambda rng, n: np.full(n, 1000),
    "exponential": lambda rng, n: rng.geometric(1 / 1000, n),
    # A tenth of the jobs has nine tenths of the work; coefficient of variation 3.9.
    "two kinds": lambda rng, n: np.where(rng.random(n) < 0.1, rng.geometric(1 / 9000, n), rng.geometric(9 / 1000, n)),
}


@pytest.mark.parametrize("kind", SIZES)
def test_a_shared_link_is_processor_sharing_that_knows_mean_sizes_only(kind: str, fidelity: str) -> None:
    """M/G/1-PS: a job of size x stays x/(1 - rho) on average, whatever the distribution; in mean, so do all."""
    load, mean = 0.6, 1000.0

    def sample(rng: np.random.Generator) -> Floats:
        sizes = SIZES[kind](rng, 15_000)
        trace = poisson_trace(rng, load / (mean * TOKEN), sizes)
        ds = shared_link(trace, fidelity)
        assert ds["prefill_start"].values == pytest.approx(trace.arrival, abs=2e-12)
        stay = (ds["handoff_end"] - ds["prefill_end"]).values / TOKEN
        short = sizes <= np.median(sizes)
        return np.array([stay.mean() / mean, stay[short].sum() / sizes[short].sum()])

    found, error = replicated(sample)
    assert (np.abs(found - 1.0 / (1.0 - load)) < error).all()
    assert (error < 0.15 / (1.0 - load)).all()  # else the comparison would say little
