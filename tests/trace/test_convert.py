"""Rates, grids and block sizes are changed as asked and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsweep.errors import InputError
from kvsweep.trace.convert import change_block_size, grid_seconds, scale_time, scale_to_rate, spread
from kvsweep.trace.model import Trace
from tests.trace.naive import divided, lru_hit_ratio, merged, prompts
from tests.trace.samples import made, traces
from tests.trace.test_write import same


@given(traces(), st.sampled_from([0.25, 0.5, 4.0]))
def test_times_scale_and_back(trace: Trace, factor: float) -> None:
    scaled = scale_time(trace, factor)
    assert scaled.duration == trace.duration * factor
    assert same(scale_time(scaled, 1 / factor), trace)


def test_a_rate_is_reached() -> None:
    trace = made([(0.0, 5, 5, []), (1.0, 5, 5, []), (4.0, 5, 5, [])])
    scaled = scale_to_rate(trace, 0.5)
    assert len(scaled) / scaled.duration == 0.5 and scaled.arrival.tolist() == [0.0, 1.5, 6.0]
    with pytest.raises(InputError, match="all arrive at once"):
        scale_to_rate(made([(0.0, 5, 5, []), (0.0, 5, 5, [])]), 1.0)


def gridded(jitter: float = 0.0) -> Trace:
    rng = np.random.default_rng(5)
    ticks = np.sort(rng.integers(0, 100, 600))
    return made([(3.0 * t + (jitter if t % 2 else 0.0), 10 + i, 1, []) for i, t in enumerate(ticks.tolist())])


@pytest.mark.parametrize("jitter", [0.0, 0.001])
def test_grids_are_found_and_left(jitter: float) -> None:
    trace = gridded(jitter)
    step = grid_seconds(trace)
    assert step is not None and abs(step - 3.0) < 0.01
    moved = spread(trace, step, seed=1)
    assert grid_seconds(moved) is None
    assert len(np.unique(moved.arrival)) == len(trace)
    assert moved.input_tokens.tolist() == trace.input_tokens.tolist()  # the order stays
    ahead = moved.arrival - trace.arrival
    assert ahead.max() - ahead.min() <= step
    assert np.array_equal(spread(trace, step, seed=1).arrival, moved.arrival)
    assert not np.array_equal(spread(trace, step, seed=2).arrival, moved.arrival)


def test_spread_arrivals_are_uniform_within_the_step() -> None:
    trace = made([(10.0 * (i // 100), 1, 1, []) for i in range(10_000)])
    within = np.sort(spread(trace, 10.0, 3).arrival % 10.0)
    assert np.abs(within / 10.0 - np.linspace(0, 1, len(within))).max() < 0.02


def test_arrivals_on_no_grid_are_left_alone() -> None:
    rng = np.random.default_rng(1)
    assert grid_seconds(made([(t, 1, 1, []) for t in np.cumsum(rng.exponential(1.0, 500)).tolist()])) is None
    assert grid_seconds(made([(0.0, 1, 1, [])])) is None
    assert grid_seconds(made([(float(t), 1, 1, []) for t in range(50)])) is None  # one each: no burst to spread


@given(traces(), st.sampled_from([1, 16, 32, 64, 128, 192]))
def test_block_sizes_change_as_the_slow_twin_does_it(trace: Trace, size: int) -> None:
    found = change_block_size(trace, size)
    twin = divided(trace, size) if size <= 64 else merged(trace, size)
    assert prompts(found) == (prompts(trace) if size == 64 else twin)
    assert found.block_size == size
    assert (found.n_blocks <= -(-found.input_tokens // size)).all()
    assert lru_hit_ratio(found, 1e9) <= lru_hit_ratio(trace, 1e9)


def test_block_sizes_that_do_not_divide_are_refused() -> None:
    trace = made([(0.0, 100, 1, [0])])
    with pytest.raises(InputError, match="48 tokens; allowed: a divisor or a multiple of the trace's 64"):
        change_block_size(trace, 48)
    with pytest.raises(InputError, match="no block ids"):
        change_block_size(made([(0.0, 100, 1, [])], block_size=0), 16)
    assert [str(note) for note in change_block_size(trace, 128).notes] == [
        "dropped (1): last blocks that do not fill one of 128 tokens"
    ]
