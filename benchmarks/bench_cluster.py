"""Speed of the cluster simulator on the Mooncake conversation trace, 8 prefill and 8 decode workers, page 64.

Without that trace (KVSWEEP_DATA names the folder of `mooncake/`) a generated one of the same rate stands in. The
baseline is the same source, uncompiled; compiling and parsing are timed apart.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.figures import Figure
from kvsweep.catalog import load
from kvsweep.cluster.config import ClusterConfig, parse_config
from kvsweep.cluster.roofline import roofline
from kvsweep.cluster.setup import initial_state
from kvsweep.cluster.simulation import compiled_run, plain_run
from kvsweep.cluster.state import State
from kvsweep.policies import load_policies
from kvsweep.policies.registry import Policy
from kvsweep.trace import Trace, read_trace
from kvsweep.trace.generate import generate

CONVERSATION = Path("mooncake") / "conversation_trace.jsonl"


def workload(tiny: bool) -> tuple[str, Trace]:
    """Return the name of the trace and the trace."""
    data = os.environ.get("KVSWEEP_DATA")
    if not tiny and data:
        found = next(Path(data).rglob("conversation_trace.jsonl*"), None)
        if found:
            return "conversation trace", read_trace(found)
    sessions = 20 if tiny else 2400
    return "generated trace", generate("qa", sessions, 1, request_rate=3.4, input_tokens=12_000.0, output_tokens=340.0)


def cluster(page_size: int, count: int = 8) -> ClusterConfig:
    """Return `count` prefill and as many decode workers of the paper's pools."""
    common = {"count": count, "tp": 2, "device_tokens": 262_144}
    return parse_config(
        {
            "fidelity": "paper", "page_size": page_size,
            "workers": [{"role": "prefill", "host_tokens": 524_352, **common}, {"role": "decode", **common}],
        },
        "benchmark",
    )  # fmt: skip


def begin(trace: Trace, page_size: int, count: int = 8) -> tuple[State, Policy]:
    """Return the state before the first arrival."""
    policy = load_policies()["default_policy"]
    return initial_state(trace, cluster(page_size, count), roofline(load(), "qwen3-8b", "h100-sxm", 2), policy), policy


def best(trace: Trace, page_size: int, repeats: int, count: int = 8) -> float:
    """Return the least CPU time of a run [s]."""
    times = []
    for _ in range(repeats):
        state, policy = begin(trace, page_size, count)
        start = time.process_time()
        compiled_run(state, policy)
        times.append(time.process_time() - start)
    return min(times)


def at_scale(name: str, trace: Trace, count: int, small: float, repeats: int) -> list[Figure]:
    """Return time and memory of `count` + `count` workers under as much more load than 8 + 8, which take `small` [s].

    The trace is played that much faster, so that each worker sees requests at the same rate.
    """
    faster = replace(trace, arrival=trace.arrival * 8.0 / count)
    large = best(faster, 64, repeats, count)
    memory = sum(array.nbytes for array in begin(faster, 64, count)[0])
    what = f"{name}, {count / 8:g} x the rate on {count} + {count} workers"
    per_request, before = 1e6 * large / len(trace), 1e6 * small / len(trace)
    figure = Figure(f"{what}: a request", per_request, "us", "8 + 8 workers", before, large / max(small, 1e-9))
    if count >= 1000:
        figure = replace(figure, bar="<= 2 x", passed=large <= 2 * small)
    return [figure, Figure(f"{what}: state", memory / 1e6, "MB")]


def measure(tiny: bool) -> list[Figure]:
    """Return requests per CPU second, compiled beside uncompiled, and the cost of small pages."""
    name, trace = workload(tiny)
    start = time.perf_counter()
    compiled_run(*begin(trace, 64))  # compiles where nothing is cached
    first = time.perf_counter() - start
    repeats = 1 if tiny else 5
    seconds = best(trace, 64, repeats)
    few = trace.select(slice(0, min(len(trace), 20 if tiny else 600)))
    start = time.process_time()
    plain_run(*begin(few, 64))
    plain = (time.process_time() - start) / len(few)
    rate, plain_rate = len(trace) / max(seconds, 1e-9), 1.0 / max(plain, 1e-9)
    figure = Figure(f"{name}: requests", rate, "1/s", "uncompiled source", plain_rate, rate / plain_rate)
    if not tiny:
        figure = replace(figure, bar=">= 100", passed=rate / plain_rate >= 100)
    small, large = best(trace, 16, repeats), best(trace, 512, repeats)
    pages = Figure(f"{name}: run with pages of 16", small, "s", "pages of 512", large, small / max(large, 1e-9))
    if not tiny:
        pages = replace(pages, bar="<= 1.3", passed=small <= 1.3 * large)
    speed = trace.duration / max(seconds, 1e-9)
    return [
        figure,
        Figure(f"{name}: simulated time over CPU time", speed, "1"),
        Figure(f"{name}: first run, compiling where nothing is cached", first, "s"),
        pages,
        *at_scale(name, trace, 20 if tiny else 1000, seconds, repeats),
    ]
