"""Small clusters for tests: round figures, so that times can be computed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from kvsweep.cluster.config import ClusterConfig, parse_config
from kvsweep.cluster.profile import Profile, parse_profile
from kvsweep.trace.build import Builder
from kvsweep.trace.model import Notes, Trace

PAGE = 64
TOKEN = 1e-6
"""Prefill time of a token in `PROFILE` [s]."""
STEP = 1e-3
"""Time of a decode step in `PROFILE` [s]."""
COPY = 1e-3
"""Time of an isolated copy of a page in `PROFILE` [s]."""


def path(**changes: Any) -> dict[str, Any]:
    return {"boundary": "whole", "bytes_per_s": 64e6, **changes}


def profile(page: int = PAGE, **changes: Any) -> Profile:
    """Return a profile of 1 us a token, 1 ms a decode step, 1 ms a page of 64 tokens on every path."""
    values: dict[str, Any] = {
        "name": "round figures", "tp": 1, "kv_bytes_per_token": 1000.0 * PAGE / page,
        "prefill": {"boundary": "whole", "token_seconds": TOKEN},
        "decode": {"boundary": "whole", "batch": [1], "base_seconds": [STEP], "context_token_seconds": [0.0]},
        "handoff": path(), "h2d": path(), "d2h": path(),
    }  # fmt: skip
    return parse_profile({**values, **changes}, "profile")


def cluster(
    prefill: dict[str, Any] | None = None, decode: dict[str, Any] | None = None, **changes: Any
) -> ClusterConfig:
    """Return one prefill and one decode worker of ample pools, with changes."""
    values: dict[str, Any] = {
        "fidelity": "paper",
        "page_size": PAGE,
        "workers": [
            {"role": "prefill", "tp": 1, "device_tokens": 262_144, "host_tokens": 524_352, **(prefill or {})},
            {"role": "decode", "tp": 1, "device_tokens": 262_144, **(decode or {})},
        ],
    }
    return parse_config({**values, **changes}, "cluster")


Request = tuple[float, int, int, Sequence[int]]
"""Arrival [s], prompt and answer [token], names of the prompt's pages."""


def trace(requests: Sequence[Request], page: int = PAGE, sessions: Sequence[int] | None = None) -> Trace:
    """Return a trace of these requests."""
    builder = Builder(Notes())
    for i, (arrival, n_input, n_output, ids) in enumerate(requests):
        session = sessions[i] if sessions else None
        builder.add(arrival, (n_input, n_output), runs=(list(ids), []), session=session)
    return builder.finish(page, "by hand")


def pages(first: int, count: int) -> range:
    """Return the names of `count` pages."""
    return range(first, first + count)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Return a few requests whose prompts share prefixes, in bursts and with pauses."""
    families = [draw(st.lists(st.integers(0, 2), min_size=1, max_size=9)) for _ in range(draw(st.integers(1, 3)))]
    requests, time = [], 0.0
    for _ in range(draw(st.integers(1, 14))):
        time += draw(st.sampled_from((0.0, 0.0, 0.001, 0.013, 0.4)))
        # The names of a page follow from the choices up to it, so families share what they choose alike.
        steps = families[draw(st.integers(0, len(families) - 1))]
        depth = draw(st.integers(0, len(steps)))
        ids = [hash((tuple(steps[: i + 1]), "page")) % 10**9 for i in range(depth)]
        n_input = 4 * depth + draw(st.integers(0, 6)) or 1
        requests.append((time, n_input, draw(st.integers(1, 9)), ids))
    sessions = [draw(st.integers(0, 3)) for _ in requests]
    return trace(requests, page=4, sessions=sessions)


@st.composite
def clusters(draw: st.DrawFn) -> ClusterConfig:
    """Return a small cluster of tight pools with any policies."""
    pick = {
        "gateway": {"policy": st.sampled_from(
            ("round_robin", "random", "least_loaded", "power_of_two", "session_affinity", "cache_aware"))},
        "eviction": {"policy": st.sampled_from(("lru", "fifo", "lfu"))},
        "retention": {"policy": st.sampled_from(("none", "idle_ttl")), "seconds": st.sampled_from((0.01, 0.2)),
                      "check_seconds": st.sampled_from((0.003, 0.1))},
        "retrieval": {"policy": st.sampled_from(
            ("default_policy", "all_compute", "performance_aware", "slowest_tier_first"))},
        "write": {"policy": st.sampled_from(("write_through", "none")), "threshold": st.integers(1, 2)},
    }  # fmt: skip
    prefill = [
        {"role": "prefill", "count": draw(st.integers(1, 2)), "tp": 1, "device_tokens": draw(st.integers(20, 90)),
         "host_tokens": draw(st.sampled_from((0, 16, 60, 200))), "chunk_tokens": draw(st.sampled_from((4, 16, 64))),
         "max_running": draw(st.integers(1, 5))}
        for _ in range(draw(st.integers(1, 2)))
    ]  # fmt: skip
    decode = [
        {"role": "decode", "count": draw(st.integers(1, 2)), "tp": 1, "device_tokens": draw(st.integers(30, 120)),
         "max_running": draw(st.integers(1, 4)), "graph_buckets": [1, 2, 4]}
    ]  # fmt: skip
    policies = {name: {key: draw(value) for key, value in fields.items()} for name, fields in pick.items()}
    return parse_config(
        {
            "fidelity": "paper", "page_size": 4, "workers": prefill + decode, "slo": {"ttft_seconds": 0.01},
            "handoff_sharing": draw(st.sampled_from(("processor_sharing", "none"))), **policies,
        },
        "cluster",
    )  # fmt: skip


def fuzz_profile() -> Profile:
    """Return a profile in which everything takes a different, odd time."""
    return parse_profile(
        {
            "name": "odd figures", "tp": 1, "kv_bytes_per_token": 1000.0,
            "prefill": {"boundary": "whole", "fixed_seconds": 1.1e-3, "token_seconds": 1.3e-4,
                        "token_pair_seconds": 1.7e-6, "least_seconds": 1.9e-3},
            "decode": {"boundary": "whole", "batch": [1, 2, 4], "base_seconds": [1.1e-3, 1.2e-3, 1.5e-3],
                       "context_token_seconds": [1e-6, 1e-6, 2e-6]},
            "handoff": path(setup_seconds=7e-4, bytes_per_s=3.7e6), "h2d": path(setup_seconds=3e-4, bytes_per_s=5.3e6),
            "d2h": path(setup_seconds=2e-4, bytes_per_s=4.1e6),
        },
        "profile",
    )  # fmt: skip
