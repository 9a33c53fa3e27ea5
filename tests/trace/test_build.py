"""Requests in any order become a trace: sorted, dense, chained, with turns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsweep.errors import InputError
from kvsweep.trace import build
from kvsweep.trace.build import Builder
from kvsweep.trace.model import Note, Notes, Trace, dense, expand_runs, run_lengths
from tests.trace.naive import numbered_by_prefix, prompts
from tests.trace.samples import made, traces

ID_LISTS = st.lists(st.lists(st.integers(0, 3), max_size=6), min_size=1, max_size=8)


@given(ID_LISTS)
def test_ids_are_chained_as_the_slow_twin_chains_them(lists: list[list[int]]) -> None:
    trace = made([(0.0, 1000, 1, ids) for ids in lists])
    assert prompts(trace) == numbered_by_prefix(lists)


@given(st.lists(st.integers(-2, 2**62), max_size=30))
def test_dense_numbers_by_first_appearance(ids: list[int]) -> None:
    numbers: dict[int, int] = {}
    expected = [-1 if i < 0 else numbers.setdefault(i, len(numbers)) for i in ids]
    assert dense(np.array(ids, dtype=np.int64)).tolist() == expected


@given(traces())
def test_runs_give_the_blocks_back(trace: Trace) -> None:
    starts, counts, runs = run_lengths(trace.offsets, trace.blocks)
    assert expand_runs(starts, counts).tolist() == trace.blocks.tolist()
    assert np.append(0, np.cumsum(counts))[runs].tolist() == trace.offsets.tolist()


@given(traces())
def test_requests_are_sorted_and_turns_count_up(trace: Trace) -> None:
    assert (np.diff(trace.arrival) >= 0).all() and trace.arrival[0] == 0.0
    for session in range(int(trace.session.max()) + 1):
        own = trace.session == session
        assert trace.turn[own].tolist() == list(range(own.sum()))
    assert np.isnan(trace.think[trace.turn == 0]).all()


def test_what_was_changed_is_noted() -> None:
    builder = Builder(Notes())
    assert builder.add(5.0, (10, 0))
    assert not builder.add(5.0, (0, 1))
    assert builder.add(2.0, (10, 1))
    trace = builder.finish(0, "")
    assert trace.arrival.tolist() == [0.0, 3.0] and trace.output_tokens.tolist() == [1, 1]
    kinds = {note.reason.split(",")[0]: (note.kind, note.count) for note in trace.notes}
    assert kinds == {
        "output length 0 taken as 1: prefill itself yields a token": ("assumed", 1),
        "requests with an empty prompt": ("dropped", 1),
        "requests out of order": ("assumed", 1),
        "times shifted by -2 s to start at 0": ("assumed", 2),
    }
    assert str(Note("dropped", "blank lines", 3)) == "dropped (3): blank lines"


def test_ids_of_64_bits_are_told_apart() -> None:
    trace = made([(0.0, 1000, 1, [2**64 - 1, 2**63, 5]), (1.0, 1000, 1, [2**64 - 1, 2**63 - 1])])
    assert prompts(trace) == [[0, 1, 2], [0, 3]]


def test_too_many_blocks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "MAX_BLOCKS", 10)
    with pytest.raises(InputError, match="more than 10 block ids"):
        Builder(Notes()).add(0.0, (1000, 1), runs=((0,), (11,)))


@given(traces(), st.data())
def test_a_selection_is_the_trace_of_its_requests(trace: Trace, data: st.DataObject) -> None:
    keep = np.array(data.draw(st.lists(st.booleans(), min_size=len(trace), max_size=len(trace))), dtype=bool)
    part = trace.select(keep)
    chosen = [ids for ids, kept in zip(prompts(trace), keep, strict=True) if kept]
    assert prompts(part) == numbered_by_prefix(chosen)
    assert part.input_tokens.tolist() == trace.input_tokens[keep].tolist()
    assert np.allclose(np.diff(part.arrival), np.diff(trace.arrival[keep]))
