"""The figures of a trace: the fixed keys of the JSON, and nothing where there is nothing to measure."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from kvsweep.trace.stats import Spread, spread_of, trace_stats
from tests.trace.samples import made

FIXED = ["requests", "duration_seconds", "request_rate", "input_tokens", "output_tokens", "infinite_hit_ratio",
         "lru_hit_ratio", "reuse_seconds"]  # fmt: skip


def test_figures() -> None:
    found = trace_stats(made([(0.0, 128, 2, [0, 1]), (4.0, 64, 4, [0]), (8.0, 128, 6, [0, 1])]), [1, 2])
    assert list(asdict(found))[: len(FIXED)] == FIXED
    assert (found.requests, found.duration_seconds, found.request_rate) == (3, 8.0, 0.375)
    assert found.output_tokens == Spread(4.0, 4.0, 5.6, 5.96)
    assert found.infinite_hit_ratio == 192 / 320
    assert found.lru_hit_ratio == {"1": 64 / 320, "2": 192 / 320}
    assert found.reuse_seconds is not None and found.reuse_seconds.mean == (4 + 4 + 8) / 3
    assert found.reuse_blocks is not None and found.reuse_blocks.mean == (1 + 0 + 1) / 3
    assert (found.block_size, found.distinct_blocks, found.sessions, found.groups) == (64, 2, 0, 0)


def test_what_is_unknown_is_none() -> None:
    found = trace_stats(made([(0.0, 5, 2, [])], block_size=0), [1])
    assert found.request_rate is None and found.infinite_hit_ratio is None and found.lru_hit_ratio == {"1": None}
    assert found.reuse_seconds is None and found.interarrival_seconds is None and found.block_size is None
    assert spread_of(np.zeros(0)) is None
