"""Made-up traces: the same seed gives the same bytes, and they have the reuse they are made for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsweep.trace.generate import MAX_CONTEXT, PRESETS, generate
from kvsweep.trace.reuse import hit_tokens, reuse
from kvsweep.trace.write import lines
from tests.trace.naive import prompts


@pytest.mark.parametrize("preset", PRESETS)
def test_a_seed_decides_everything(preset: str) -> None:
    first, again, other = ("\n".join(lines(generate(preset, 6, seed), "kvsweep")) for seed in (1, 1, 2))
    assert first == again != other


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(list(PRESETS)), st.integers(1, 5), st.integers(0, 99), st.sampled_from([1, 16, 700]))
def test_every_trace_is_one(preset: str, n_sessions: int, seed: int, block_size: int) -> None:
    trace = generate(preset, n_sessions, seed, block_size=block_size, turns=3.0, input_tokens=600.0)
    assert (np.diff(trace.arrival) >= 0).all() and trace.arrival[0] == 0.0 and not trace.notes
    assert (trace.n_blocks == trace.input_tokens // block_size).all()
    assert trace.output_tokens.min() >= 1


def test_questions_share_their_document_only() -> None:
    trace = generate("qa", 30, 4)
    assert set(trace.group.tolist()) == set(range(30)) and (trace.session == -1).all()
    ids = prompts(trace)
    for i, a in enumerate(ids):
        for j in range(i):
            common = len(set(a) & set(ids[j]))
            assert (common > 0) == (trace.group[i] == trace.group[j])
    assert 4 < len(trace) / 30 < 6 and 4000 < trace.input_tokens.mean() < 6000


def test_turns_contain_the_turn_before() -> None:
    trace = generate("coding", 8, 4)
    ids = prompts(trace)
    for session in range(8):
        own = np.flatnonzero(trace.session == session)
        assert trace.turn[own].tolist() == list(range(len(own)))
        for a, b in zip(own, own[1:], strict=False):
            assert ids[b][: len(ids[a])] == ids[a]
            assert trace.input_tokens[b] > trace.input_tokens[a] + trace.output_tokens[a]
            assert trace.arrival[b] >= trace.arrival[a] + trace.think[b]
    assert trace.input_tokens.max() <= MAX_CONTEXT
    hits = hit_tokens(trace, reuse(trace), None)
    assert 0.8 < hits.sum() / trace.input_tokens.sum() < 1.0


def test_coding_sessions_end_at_the_context() -> None:
    whole, short = generate("coding", 20, 3), generate("coding", 20, 3, max_context=30_000)
    assert (short.input_tokens + short.output_tokens).max() <= 30_000 and 20 < len(short) < len(whole)


def test_uniform_requests_share_nothing() -> None:
    trace = generate("uniform", 200, 4)
    assert hit_tokens(trace, reuse(trace), None).sum() == 0 and len(trace) == 200
    assert trace.input_tokens.min() >= 1000 and trace.input_tokens.max() <= 3000


def test_arrivals() -> None:
    fixed = generate("uniform", 11, 0, arrivals="fixed", request_rate=4.0)
    assert np.allclose(np.diff(fixed.arrival), 0.25)
    gaps = np.diff(generate("uniform", 5000, 0, request_rate=4.0).arrival)
    assert abs(gaps.mean() - 0.25) < 0.02 and abs(gaps.std() - 0.25) < 0.02
