"""What is written is read back: all of it in kvsweep's format, what they can hold in the others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from kvsweep.errors import InputError
from kvsweep.trace.convert import scale_time
from kvsweep.trace.model import Trace
from kvsweep.trace.read import ReadOptions, read_trace
from kvsweep.trace.write import lines
from tests.trace.samples import made, traces

ARRAYS = ("arrival", "input_tokens", "output_tokens", "session", "turn", "group", "think", "offsets", "blocks")


def same(a: Trace, b: Trace, but: tuple[str, ...] = ()) -> bool:
    """Return whether two traces have equal arrays (NaN is NaN) and block sizes."""
    equal = (np.array_equal(getattr(a, n), getattr(b, n), equal_nan=n == "think") for n in ARRAYS if n not in but)
    return a.block_size == b.block_size and all(equal)


def written(trace: Trace, form: str, folder: Path, options: ReadOptions | None = None) -> Trace:
    path = folder / f"t.{form}"
    path.write_text("\n".join(lines(trace, form)) + "\n")
    return read_trace(path, options, cache=False)


@given(traces())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_our_own_format_holds_everything(tmp_path: Path, trace: Trace) -> None:
    found = written(trace, "kvsweep", tmp_path)
    assert same(found, trace) and found.source == trace.source


@given(traces(block_size=512))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_mooncake_holds_all_but_groups(tmp_path: Path, trace: Trace) -> None:
    found = written(trace, "mooncake", tmp_path, ReadOptions(sessions="full"))
    if not len(trace.blocks):
        assert found.block_size == 0
    else:
        assert same(found, trace, but=("group",))


@given(traces())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_tables_hold_lengths_and_times(tmp_path: Path, trace: Trace) -> None:
    found = written(trace, "table", tmp_path)
    assert np.allclose(found.arrival, trace.arrival, atol=2e-6)
    assert found.input_tokens.tolist() == trace.input_tokens.tolist()
    assert found.output_tokens.tolist() == trace.output_tokens.tolist()


def test_dates_end_some_day() -> None:
    trace = scale_time(made([(0.0, 1, 1, []), (1e6, 1, 1, [])]), 1e9)
    with pytest.raises(InputError, match="table: arrivals up to 1e.15 s; allowed: less than"):
        lines(trace, "table")
