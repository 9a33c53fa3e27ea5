"""Small clusters for tests: round figures, so that times can be computed by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from kvsweep.cluster.inputs.config import SHARINGS, ClusterConfig, parse_config
from kvsweep.cluster.inputs.service_profile import Profile, parse_profile
from kvsweep.cluster.policies.eviction import POLICIES as EVICTIONS
from kvsweep.cluster.policies.gateway import POLICIES as GATEWAYS
from kvsweep.policies import Context, Policy, load_policies
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
        "name": "round figures", "tp": 1, "n_layers": 4, "kv_bytes_per_token": 1000.0 * PAGE / page,
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


def _third(ctx: Context) -> tuple[float, str]:
    return ctx.hit_blocks / 3.0, "third"


POLICIES = {
    **load_policies().unasked(False),
    "third_of_the_front": Policy(
        "third_of_the_front", "Third", "A third of the hits, from the front.", "#123456", 1.0, "front", ("third",),
        _third, "test",
    ),
}  # fmt: skip
"""The built-in policies, and one that recomputes the front."""

Request = tuple[float, int, int, Sequence[int]]
"""Arrival [s], prompt and answer [token], names of the prompt's pages."""


def trace(
    requests: Sequence[Request],
    page: int = PAGE,
    sessions: Sequence[int | None] | None = None,
    thinks: Sequence[float] | None = None,
) -> Trace:
    """Return a trace of these requests; `thinks` [s] are those of a closed loop."""
    builder = Builder(Notes())
    for i, (arrival, n_input, n_output, ids) in enumerate(requests):
        session = sessions[i] if sessions else None
        think = thinks[i] if thinks else math.nan
        builder.add(arrival, (n_input, n_output), runs=(list(ids), []), session=session, think=think)
    return builder.finish(page, "by hand")


def pages(first: int, count: int) -> range:
    """Return the names of `count` pages."""
    return range(first, first + count)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Return requests whose prompts share prefixes, in bursts and with pauses; by a seed, to be many and dense."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    families = [rng.integers(0, 2, 10).tolist() for _ in range(rng.integers(1, 6))]
    requests, time = [], 0.0
    for _ in range(draw(st.integers(2, 40))):
        time += rng.choice((0.0, 0.0, 0.001, 0.013, 0.05, 0.4))
        steps = families[rng.integers(len(families))][: rng.integers(0, 11)]
        # The name of a page follows from the choices up to it, so that families share what they choose alike.
        ids = [int("1" + "".join(map(str, steps[: k + 1])), 2) for k in range(len(steps))]
        n_input = max(1, 4 * len(ids) + int(rng.integers(0, 7)))
        requests.append((float(time), n_input, int(rng.integers(1, 10)), ids))
    sessions = rng.integers(0, 4, len(requests))
    sessions[:2] = 0  # in closed loop there must be a request that follows another
    return trace(requests, page=4, sessions=sessions.tolist())


@st.composite
def clusters(draw: st.DrawFn) -> ClusterConfig:
    """Return a small cluster of tight pools with any policies."""
    pick = {
        "gateway": {"policy": st.sampled_from(GATEWAYS)},
        "eviction": {"policy": st.sampled_from(EVICTIONS), "xi_tokens": st.sampled_from((0, 9, 30))},
        "retention": {"policy": st.sampled_from(("none", "idle_ttl", "hazard_ttl")),
                      "seconds": st.sampled_from((0.02, 0.5)), "check_seconds": st.sampled_from((0.003, 0.1))},
        "retrieval": {"policy": st.sampled_from(
            ("default_policy", "all_compute", "performance_aware", "slowest_tier_first", "third_of_the_front"))},
        "write": {"policy": st.sampled_from(("write_through", "write_through", "none")),
                  "threshold": st.integers(1, 2)},
    }  # fmt: skip
    prefill = [
        {"role": "prefill", "count": draw(st.integers(1, 2)), "tp": 1, "device_tokens": draw(st.integers(30, 70)),
         "host_tokens": draw(st.sampled_from((0, 24, 60, 200))), "chunk_tokens": draw(st.sampled_from((4, 16, 64))),
         "max_running": draw(st.integers(1, 5))}
        for _ in range(draw(st.integers(1, 2)))
    ]  # fmt: skip
    decode = [
        {"role": "decode", "count": draw(st.integers(1, 2)), "tp": 1, "device_tokens": draw(st.integers(30, 120)),
         "max_running": draw(st.integers(1, 4)), "graph_buckets": [1, 2, 4]}
    ]  # fmt: skip
    policies = {name: {key: draw(value) for key, value in fields.items()} for name, fields in pick.items()}
    workload = {"mode": draw(st.sampled_from(("open", "closed"))), "think_seconds": draw(st.sampled_from((None, 0.01)))}
    return parse_config(
        {
            "fidelity": "paper", "page_size": 4, "workers": prefill + decode, "slo": {"ttft_seconds": 0.01},
            "workload": workload,
            "handoff_sharing": draw(st.sampled_from(SHARINGS)), **policies,
        },
        "cluster",
    )  # fmt: skip


def fuzz_profile() -> Profile:
    """Return a profile in which everything takes a different, odd time."""
    return parse_profile(
        {
            "name": "odd figures", "tp": 1, "n_layers": 4, "kv_bytes_per_token": 1000.0,
            "prefill": {"boundary": "whole", "fixed_seconds": 1.1e-3, "token_seconds": 1.3e-4,
                        "token_pair_seconds": 1.7e-6, "least_seconds": 1.9e-3},
            "decode": {"boundary": "whole", "batch": [1, 2, 4], "base_seconds": [1.1e-3, 1.2e-3, 1.5e-3],
                       "context_token_seconds": [1e-6, 1e-6, 2e-6]},
            "handoff": path(setup_seconds=7e-4, bytes_per_s=3.7e6), "h2d": path(setup_seconds=3e-4, bytes_per_s=5.3e6),
            "d2h": path(setup_seconds=2e-4, bytes_per_s=4.1e6),
        },
        "profile",
    )  # fmt: skip
