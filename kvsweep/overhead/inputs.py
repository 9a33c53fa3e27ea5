"""The inputs of the overhead harness: ranges, defaults and meanings; light enough for the command line's help."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvsweep.costs.inputs import Field

PATHS: Mapping[str, str] = {
    "scalar": "decide in plain Python",
    "jit_call": "compiled decide called from Python, dispatch included",
    "jit_loop": "compiled decide in a compiled loop",
}
"""The ways a decision is run, with what each one is."""

NUMBERS: Mapping[str, Field] = {
    field.name: field
    for field in (
        Field("max_requests", "1", 1.0, 1e9, "longest request stream", whole=True),
        Field("request_counts", "1", 1.0, 1e9, "lengths of the request streams", whole=True),
        Field("pool_size", "1", 1.0, 1e5, "workload combinations in the pool", whole=True),
        Field("seed", "1", 0.0, 2.0**53, "seed of the pool and of the order of measurements", whole=True),
        Field("warmup_decisions", "1", 0.0, 1e9, "decisions before the first that is timed", whole=True),
        Field("combination_reps", "1", 1.0, 1e9, "decisions in one measurement of a combination", whole=True),
        Field("combination_rounds", "1", 1.0, 1e3, "measurements of each combination, the median kept", whole=True),
    )
}

DEFAULTS: Mapping[str, Any] = {
    "max_requests": 1_000_000, "pool_size": 512, "seed": 20240517, "warmup_decisions": 20_000,
    "combination_reps": 1_000, "combination_rounds": 3,
    "baseline_policies": "default_policy,all_compute", "paths": ",".join(PATHS),
}  # fmt: skip


def stream_lengths(longest: int) -> list[int]:
    """Return 1, 3, 10, 32, 100, … (half decades) up to `longest`, which ends the list."""
    lengths = [round(10 ** (half / 2)) for half in range(19)]
    return [length for length in lengths if length < longest] + [longest]


def trials(length: int) -> int:
    """Return how often a stream of `length` requests is timed: short ones more often, for they are noisier."""
    return 400 if length <= 10 else 60 if length <= 1_000 else 8 if length <= 100_000 else 3
