"""Samples keep sessions and document groups whole."""

from __future__ import annotations

import numpy as np
import pytest

from kvsweep.errors import InputError
from kvsweep.trace.generate import generate
from kvsweep.trace.reuse import hit_ratios, reuse
from kvsweep.trace.sample import hashed_sample, interquartile_sample, units
from tests.trace.samples import made

QA = generate("qa", 400, 3)


def test_groups_stay_whole_and_the_share_is_met() -> None:
    part = hashed_sample(QA, 0.25, seed=1)
    assert 60 <= int(part.group.max()) + 1 <= 140
    whole = sorted(np.bincount(QA.group).tolist())
    for count in set(np.bincount(part.group).tolist()):
        assert count in whole
    assert abs(len(part) / len(QA) - 0.25) < 0.08
    before, after = (hit_ratios(t, reuse(t), [None])[0] for t in (QA, part))
    assert abs(before - after) < 0.03
    assert part.arrival[0] == 0.0 and part.notes[-1].kind == "dropped"


def test_samples_are_nested_and_depend_on_the_seed() -> None:
    small, large = (set(hashed_sample(QA, r, 1).input_tokens.tolist()) for r in (0.1, 0.3))
    assert small <= large
    assert len(hashed_sample(QA, 1.0, 1)) == len(QA)
    assert hashed_sample(QA, 0.1, 1).input_tokens.tolist() != hashed_sample(QA, 0.1, 2).input_tokens.tolist()


def test_what_belongs_together_without_labels() -> None:
    # Block 0 is common to all; block 1 and 2 begin documents.
    shared = [[0, 1, 5], [0, 2], [0, 1, 6], [0, 2, 7]] + [[0, 100 + i] for i in range(40)]
    trace = made([(float(i), 64 * len(ids), 1, ids) for i, ids in enumerate(shared)])
    unit, how = units(trace)
    assert unit[0] == unit[2] and unit[1] == unit[3] and len(set(unit.tolist())) == 42
    assert how == "requests that share their first block"
    assert units(made([(0.0, 5, 1, []), (0.0, 5, 1, [])], 0))[1] == "requests"
    assert units(made([(0.0, 5, 1, [])] * 3, 0, sessions=["a", None, "a"]))[0].tolist() == [0, 4, 0]


def test_sessions_of_middling_length() -> None:
    lengths = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    names = [str(n) for n in lengths for _ in range(n)]
    trace = made([(float(i), 5, 1, []) for i in range(len(names))], 0, sessions=names)
    part = interquartile_sample(trace)
    assert sorted(np.bincount(part.session).tolist()) == [3, 4, 5, 6, 7]
    assert part.turn.max() == 6
    with pytest.raises(InputError, match="no sessions"):
        interquartile_sample(QA)


def test_an_empty_sample_is_refused() -> None:
    with pytest.raises(InputError, match="keeps none"):
        hashed_sample(made([(0.0, 5, 1, [])]), 1e-12)
