"""Hit ratios and reuses against an LRU cache that is one."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsweep.trace.generate import generate
from kvsweep.trace.model import Trace
from kvsweep.trace.read import read_trace
from kvsweep.trace.reuse import block_distances, hit_ratios, hit_tokens, reuse
from tests.trace.naive import lru_hit_ratio, reuses
from tests.trace.samples import made, traces


@given(traces(), st.integers(1, 30))
def test_hits_are_those_of_a_cache(trace: Trace, capacity: int) -> None:
    assert hit_ratios(trace, reuse(trace), [capacity, None]) == [
        lru_hit_ratio(trace, capacity),
        lru_hit_ratio(trace, float("inf")),
    ]


@given(traces())
def test_reuses_are_those_of_a_list(trace: Trace) -> None:
    distances, seconds = (sorted(values.tolist()) for values in block_distances(reuse(trace)))
    assert (distances, seconds) == reuses(trace)


@pytest.mark.parametrize("preset", ["qa", "coding"])
def test_larger_traces_agree_too(preset: str) -> None:
    trace = generate(preset, 20, 7, turns=4.0, block_size=256)
    found = reuse(trace)
    for capacity in (10, 100, 300, 1000, 4000):
        assert hit_ratios(trace, found, [capacity]) == [lru_hit_ratio(trace, capacity)]
    distances, seconds = (sorted(values.tolist()) for values in block_distances(found))
    assert distances == reuses(trace)[0] and np.allclose(seconds, reuses(trace)[1])


def test_a_partial_last_block_counts_its_tokens() -> None:
    trace = made([(0.0, 100, 1, [0, 1]), (1.0, 100, 1, [0, 1])])
    assert hit_tokens(trace, reuse(trace), None).tolist() == [0, 100]
    assert hit_ratios(trace, reuse(trace), [1, 2]) == [0.0, 0.5]


def test_ratios_grow_with_the_cache() -> None:
    trace = generate("coding", 10, 1, turns=5.0)
    ratios = hit_ratios(trace, reuse(trace), [*range(1, 3000, 50), None])
    assert ratios == sorted(ratios)


def test_no_blocks_no_hits() -> None:
    trace = made([(0.0, 10, 1, [])])
    assert hit_ratios(trace, reuse(trace), [5, None]) == [0.0, 0.0]


if "KVSWEEP_DATA" in os.environ:

    def test_the_published_curve() -> None:
        trace = read_trace(Path(os.environ["KVSWEEP_DATA"]) / "mooncake" / "conversation_trace.jsonl")
        curve = hit_ratios(trace, reuse(trace), [1000, 5000, 10_000, 20_000, 50_000, 100_000, None])
        assert [round(x, 3) for x in curve[:-1]] == [0.045, 0.113, 0.215, 0.293, 0.362, 0.371]
        assert round(curve[-1], 4) == 0.3736

    def test_reuse_inside_coding_sessions() -> None:
        trace = read_trace(Path(os.environ["KVSWEEP_DATA"]) / "weka" / "dev_120_sessions_rle.jsonl.gz")
        assert round(hit_ratios(trace, reuse(trace), [None])[0], 2) == 0.96
        assert int(trace.session.max()) + 1 == 120
