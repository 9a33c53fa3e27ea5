"""One random workload in every format is read back equal, as far as the format holds it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kvsweep.trace.formats import FORMATS
from kvsweep.trace.model import Trace
from kvsweep.trace.read import ReadOptions, read_trace
from tests.trace import writers
from tests.trace.naive import numbered_by_prefix, prompts
from tests.trace.samples import traces
from tests.trace.writers import SIZE, Written, agent_sessions, rows_of, tracelab_sessions

FEW = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])


def check(found: Trace, trace: Trace, holds: frozenset[str]) -> None:
    """Assert that `found` is `trace` in what its format holds."""
    lists = prompts(trace)
    if "full blocks" in holds:
        lists = numbered_by_prefix(
            [ids[: n // SIZE] for ids, n in zip(lists, trace.input_tokens.tolist(), strict=True)]
        )
    expected = {
        "arrival": lambda: np.allclose(found.arrival, trace.arrival, rtol=0, atol=1e-6),
        "lengths": lambda: (
            (found.input_tokens.tolist(), found.output_tokens.tolist())
            == (trace.input_tokens.tolist(), trace.output_tokens.tolist())
        ),
        "prompts": lambda: found.input_tokens.tolist() == trace.input_tokens.tolist(),
        "session": lambda: found.session.tolist() == trace.session.tolist(),
        "chats": lambda: found.turn.tolist() == trace.turn.tolist(),
        "group": lambda: found.group.tolist() == trace.group.tolist(),
        "think": lambda: np.array_equal(found.think, trace.think, equal_nan=True),
        "blocks": lambda: prompts(found) == lists,
        "full blocks": lambda: prompts(found) == lists,
    }
    for what in sorted(holds):
        assert expected[what](), what


def test_every_format_is_written_somewhere() -> None:
    own = {"kvsweep", "agent", "rounds"}  # tested by themselves
    readers = {
        "azure": "table",
        "aiperf": "bench",
        "guidellm": "reports",
        "otlp": "otel",
        "mooncake by its aliases": "mooncake",
    }
    assert own | {readers.get(name, name) for name in writers.FORMATS} >= set(FORMATS)


@pytest.mark.parametrize("name", writers.FORMATS)
@given(trace=traces(block_size=SIZE))
@FEW
def test_a_workload_is_read_back(tmp_path: Path, name: str, trace: Trace) -> None:
    written: Written = writers.FORMATS[name]
    rows = rows_of(trace)
    told = dict(written.told)
    if "blocks" in written.holds and not len(trace.blocks):
        told.pop("block_size", None)  # no block whose size could be told
    path = tmp_path / "trace"
    path.write_text(written.text(rows))
    for file, text in written.beside(rows).items():
        (tmp_path / file).write_text(text)
    check(read_trace(path, ReadOptions(**told), cache=False), trace, written.holds)


@pytest.mark.parametrize("long", [False, True])
@given(trace=traces(block_size=SIZE))
@FEW
def test_agent_sessions_are_read_back(tmp_path: Path, long: bool, trace: Trace) -> None:
    assume((trace.session >= 0).any())
    path = tmp_path / "trace.jsonl"
    path.write_text(agent_sessions(rows_of(trace), long))
    found = read_trace(path, cache=False)
    for session in range(int(trace.session.max()) + 1):
        part, own = trace.select(trace.session == session), found.select(found.session == session)
        for again in (own,) if trace.session.max() == 0 else ():
            assert np.allclose(again.arrival, part.arrival)
        if len(found) == len(part):
            check(own, part, frozenset({"lengths", "blocks"}))
    assert len(found) == int((trace.session >= 0).sum())


@pytest.mark.parametrize("as_sessions", [False, True])
@given(
    steps=st.lists(
        st.lists(st.tuples(st.integers(0, 200), st.integers(1, 90), st.integers(1, 60)), min_size=1, max_size=5),
        min_size=1,
        max_size=3,
    )
)
@FEW
def test_rounds_reuse_what_they_state(
    tmp_path: Path, as_sessions: bool, steps: list[list[tuple[int, int, int]]]
) -> None:
    """Prompts are prefix and new tokens; the full blocks of a prefix that came before are shared, nothing else is."""
    path = tmp_path / "trace"
    path.write_text(tracelab_sessions(steps, as_sessions))
    found = read_trace(path, ReadOptions(time_unit="ms", block_size=16), cache=False)
    lists = dict(zip(zip(found.session.tolist(), found.turn.tolist(), strict=True), prompts(found), strict=True))
    numbers = {steps_of: number for number, steps_of in enumerate(dict.fromkeys(found.session.tolist()))}
    for s, rounds in enumerate(steps):
        known: list[int] = []  # the blocks of the round before, answer included
        held = 0
        for turn, (prefix, new, answer) in enumerate(rounds):
            ids = lists.get((numbers[s], turn), [])
            reused = min(prefix, held)
            assert ids[: reused // 16] == known[: reused // 16]
            assert not set(ids[reused // 16 :]) & set(known)
            held = prefix + new + answer
            assert len(ids) == held // 16
            known = ids
