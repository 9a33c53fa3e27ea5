"""The rules by which units of times, sizes of blocks and meanings of sessions are found: from two rows on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kvsweep.trace.formats import BY_HABIT, MILLISECONDS, OPEN, Clock
from kvsweep.trace.settle.blocks import fits, settled_size
from kvsweep.trace.settle.clock import named_unit, settled_unit
from kvsweep.trace.settle.hashing import PrefixIds
from kvsweep.trace.settle.sessions import Stream, settled_meaning


@pytest.mark.parametrize(
    ("times", "clock", "unit"),
    [
        ([0.0, 250.0], OPEN, "ms"),  # 8 requests/s, not one in two minutes
        ([0.0, 2.0], OPEN, "s"),
        ([0.0, 0.5], OPEN, "s"),
        ([0.0, 30.5], OPEN, "s"),  # broken times are seconds down to one in a hundred
        ([0.0, 250_000_000.0], OPEN, "ns"),
        ([0.0, 1000.0], BY_HABIT, "ms"),
        ([0.0, 20.0], BY_HABIT, "s"),
        ([0.0, 600.5], BY_HABIT, "s"),
        ([0.0, 0.001], MILLISECONDS, "ms"),
        ([1.7e9, 1.7e9 + 5000], BY_HABIT, "s"),  # dates since 1970, by their size
        ([1.7e12, 1.7e12 + 5000], BY_HABIT, "ms"),
        ([1.7e18, 1.7e18 + 5e9], OPEN, "ns"),
        ([7.0, 7.0], OPEN, "s"),  # one point in time tells nothing
    ],
)
def test_two_times_tell_their_unit(times: list[float], clock: Clock, unit: str) -> None:
    assert settled_unit(np.array(times), clock, None).unit == unit
    told = settled_unit(np.array(times), clock, "us")
    assert (told.unit, told.doubt) == ("us", "")


@pytest.mark.parametrize(
    ("times", "clock", "doubt"),
    [
        ([0.0, 1.0], MILLISECONDS, "2000 requests/s, more than 1000 a second; if the times are not in ms: "
         "--time-unit s"),
        ([0.0, 1e5], Clock(), "2e-05 requests/s, less than one in three hours; if the times are not in s: "
         "--time-unit ms"),
        ([0.0, 1000.0], Clock(), ""),
    ],
)  # fmt: skip
def test_rates_that_cannot_be_are_told(times: list[float], clock: Clock, doubt: str) -> None:
    assert settled_unit(np.array(times), clock, None).doubt == doubt


def test_names_of_fields_may_state_the_unit() -> None:
    names = ("arrival_time_ns", "delay_ms", "t_us", "timestamp", "seconds", "a_s")
    assert [named_unit(name) for name in names] == ["ns", "ms", "us", None, None, None]


@pytest.mark.parametrize(
    ("counts", "documented", "size"),
    [
        ([(3, 1500), (1, 512)], 512, 512),
        ([(94, 1500), (2, 33)], 512, 16),
        ([(4, 4096), (4, 4096)], 512, 1024),
        ([(1, 1500), (1, 1500)], 512, 1024),  # the last partial one not counted
        ([(1, 1500)], 512, 512),  # ids are missing, as far as one prompt tells
        ([(7, 20), (1, 900)], 512, 512),  # no size fits both
        ([(4, 64), (6, 96), (3, 48)], 0, 16),
        ([(13, 1000), (14, 1111)], 512, 80),
    ],
)
def test_sizes_of_blocks_are_found(counts: list[tuple[int, int]], documented: int, size: int) -> None:
    n_ids, n_input = np.array(counts).T
    assert settled_size(n_ids, n_input, documented, None).tokens == size
    assert settled_size(n_ids, n_input, documented, 7).tokens == 7


@given(st.integers(1, 5000), st.lists(st.integers(1, 60_000), min_size=2, max_size=20), st.booleans())
def test_a_size_that_fits_is_found_whenever_there_is_one(size: int, lengths: list[int], partial: bool) -> None:
    n_input = np.array(lengths)
    n_ids = -(-n_input // size) if partial else n_input // size
    n_ids, n_input = n_ids[n_ids > 0], n_input[n_ids > 0]
    assume(len(n_ids) > 1)
    found = settled_size(n_ids, n_input, 512, None).tokens
    assert fits(n_ids, n_input, found).all()


@pytest.mark.parametrize(
    ("session", "first", "meaning", "doubted"),
    [
        ([0, 0, 1], [5, 5, 9], "full", False),
        ([0, 0, 1, 1], [5, 6, 5, 7], "delta", False),
        ([0, 0, 1, 1], [5, 5, 5, 7], "full", True),
        ([0, 0], [-1, -1], "full", False),
        ([0, 0, 0], [-1, 4, 5], "full", False),
    ],
)
def test_later_turns_tell_what_prompts_of_sessions_hold(
    session: list[int], first: list[int], meaning: str, doubted: bool
) -> None:
    found = settled_meaning(np.array(session), np.array(first), None)
    assert found is not None and (found.sessions, bool(found.doubt)) == (meaning, doubted)


def test_requests_alone_have_no_turns() -> None:
    assert settled_meaning(np.array([-1, -1, 0, 1]), np.array([1, 2, 3, 4]), None) is None


@given(st.integers(1, 7), st.lists(st.tuples(st.integers(0, 2), st.integers(1, 20), st.integers(0, 60)), max_size=8))
def test_streams_share_blocks_as_their_tokens_do(size: int, steps: list[tuple[int, int, int]]) -> None:
    """Two streams that part somewhere have the blocks before that in common, and none after it."""
    ids = PrefixIds()
    streams, texts = (Stream(ids, size), Stream(ids, size)), ([], [])
    for number, (which, length, keep) in enumerate(steps):
        for k in (0, 1) if which == 2 else (which,):
            streams[k].keep(keep)
            del texts[k][keep:]
            streams[k].extend(number, length)
            texts[k].extend((number, i) for i in range(length))
    lists = [[first + i for first, count in zip(*s.blocks(), strict=True) for i in range(count)] for s in streams]
    for stream, text, listed in zip(streams, texts, lists, strict=True):
        assert stream.n_tokens == len(text) and len(listed) == len(text) // size
    common = next((i for i, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
    shared = next((i for i, (a, b) in enumerate(zip(*lists, strict=False)) if a != b), min(map(len, lists)))
    assert shared <= common // size
    if not any(keep for _, _, keep in steps):
        assert shared == common // size
