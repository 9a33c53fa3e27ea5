"""Retention ``hazard_ttl``: the time to live it chooses, and that it then is an idle TTL of those seconds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvsweep
from kvsweep.cluster.inputs.config import ClusterConfig
from kvsweep.cluster.outcome.summary import summarize
from kvsweep.cluster.policies.retention.hazard import Gaps, best_ttl, gaps
from kvsweep.cluster.shared.segments import chains
from kvsweep.trace.model import Trace
from tests.cluster.samples import PAGE, cluster, pages, profile, trace, traces

FIDELITIES = ("paper", "engine")


def all_gaps(made: Trace) -> list[float]:
    """Return the gap after every use of every full page, page by page [s]."""
    uses: dict[Any, list[float]] = {}
    for i in range(len(made)):
        full = int(made.input_tokens[i]) // made.block_size
        named = made.blocks[made.offsets[i] : made.offsets[i + 1]].tolist()[:full]
        for page in named + [(i, k) for k in range(len(named), full)]:
            uses.setdefault(page, []).append(float(made.arrival[i]))
    found = []
    for times in uses.values():
        found += [later - earlier for earlier, later in zip(times, times[1:], strict=False)] + [math.inf]
    return found


def value(ttl: float, found: list[float], saved: float, cost: float) -> float:
    """Return what a time to live is worth a use [s]."""
    held = sum(min(gap, ttl) for gap in found) * cost if cost else 0.0
    return (sum(gap <= ttl for gap in found) * saved - held) / max(1, len(found))


@given(traces(), st.sampled_from((1e-3, 0.1, 1.0, 30.0)), st.sampled_from((1e-4, 0.03, 1.0, 50.0)))
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_it_is_the_best_of_all_gaps(made: Trace, saved: float, cost: float) -> None:
    found = all_gaps(made)
    known = gaps(made.arrival, chains(made, made.block_size), len(made))
    assert known.n_last + known.pages.sum() == len(found)
    chosen = best_ttl(known, saved, cost)
    candidates = [0.0, *(gap for gap in found if math.isfinite(gap))]
    best = max(value(ttl, found, saved, cost) for ttl in candidates)
    assert chosen in candidates
    assert value(chosen, found, saved, cost) == pytest.approx(best, rel=1e-9, abs=1e-12)
    assert best_ttl(known, saved, 0.0) == math.inf
    assert best_ttl(known, saved, 1e30) == 0.0


@given(
    st.lists(st.tuples(st.one_of(st.integers(0, 9).map(float), st.floats(0.0, 1e4)), st.integers(1, 50)), max_size=12),
    st.integers(0, 200), st.floats(1e-6, 1e3), st.floats(1e-6, 1e3),
)  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_no_time_to_live_is_worth_more(sample: list[tuple[float, int]], n_last: int, saved: float, cost: float) -> None:
    """Of gaps, what lies between them, and beyond; ``value`` sums over single uses."""
    sample.sort()
    known = Gaps(np.array([gap for gap, _ in sample]), np.array([n for _, n in sample], dtype=np.int64), n_last)
    found = [gap for gap, n in sample for _ in range(n)] + [math.inf] * n_last
    chosen = best_ttl(known, saved, cost)
    ends = [0.0, *(gap for gap, _ in sample)]
    between = [(one + other) / 2 for one, other in zip(ends, ends[1:], strict=False)]
    best = max(value(ttl, found, saved, cost) for ttl in (*ends, *between, ends[-1] + 1.0))
    assert value(chosen, found, saved, cost) == pytest.approx(best, rel=1e-9, abs=1e-9 * (saved + cost * ends[-1]))


@pytest.mark.parametrize(
    ("seconds", "pages_of", "n_last", "saved", "cost", "chosen"),
    [
        ([], [], 0, 1.0, 0.1, 0.0),  # no page at all
        ([], [], 7, 1.0, 0.1, 0.0),  # nothing comes back
        ([5.0], [3], 0, 1.0, 0.1, 5.0),  # all come back: 5 s cost 0.5, a use saves 1
        ([5.0], [3], 0, 1.0, 0.2, 5.0),  # as much as it saves: of equal ones the longest
        ([5.0], [3], 0, 1.0, 0.21, 0.0),
        ([5.0], [3], 3, 1.0, 0.1, 5.0),  # half of them are held in vain, 5 s each, for 1 a hit
        ([5.0], [3], 4, 1.0, 0.1, 0.0),
        ([5.0, 50.0], [3, 1], 0, 1.0, 0.1, 5.0),  # another 45 s for one use of four
        ([0.0, 5.0], [1, 1], 1, 1.0, 1.0, 0.0),  # used again at once, which holding for no time serves
    ],
)  # fmt: skip
def test_by_hand(
    seconds: list[float], pages_of: list[int], n_last: int, saved: float, cost: float, chosen: float
) -> None:
    known = Gaps(np.array(seconds), np.array(pages_of, dtype=np.int64), n_last)
    assert best_ttl(known, saved, cost) == chosen
    assert best_ttl(known, saved, 0.0) == math.inf
    assert best_ttl(known, saved, 1e300) == 0.0


def test_a_part_of_the_trace_is_all_it_knows() -> None:
    """Its first half has gaps of 2 s, the second of 20 s."""
    times = [0.0, 2.0, 4.0, 6.0, 26.0, 46.0, 66.0, 86.0]
    made = trace([(time, 4 * PAGE + 1, 1, pages(0, 4)) for time in times])
    found = chains(made, PAGE)
    half = gaps(made.arrival, found, 4)
    assert half.seconds.tolist() == [2.0] * 3 and half.pages.tolist() == [4] * 3 and half.n_last == 4
    assert gaps(made.arrival, found, 1).n_last == 4 and not len(gaps(made.arrival, found, 1).seconds)
    figures = {"policy": "hazard_ttl", "saved_seconds": 1.0, "cost_per_second": 0.01}
    for ratio, chosen, told in ((1.0, 20.0, "whole trace"), (0.5, 2.0, "first 0.5 of the trace"), (0.01, 0.0, "0.01")):
        ds = kvsweep.cluster.run(made, cluster(retention={**figures, "fit_ratio": ratio}), profile())
        assert ds.attrs["kvsweep_retention_seconds"] == pytest.approx(chosen, abs=1e-11)
        assert told in ds.attrs["kvsweep_foresight"]


def configured(fidelity: str, write: str = "write_through", **kept: Any) -> ClusterConfig:
    """Return a cluster whose device is short of room for `chat`."""
    workers = {"device_tokens": 30 * PAGE, "host_tokens": 60 * PAGE}
    return cluster(workers, fidelity=fidelity, write={"policy": write}, retention={"check_seconds": 0.5, **kept})


def chat() -> Trace:
    rng = np.random.default_rng(5)
    requests, time = [], 0.0
    for _ in range(120):
        time += float(rng.choice((0.5, 2.0, 9.0)))
        family, length = int(rng.integers(8)), int(rng.integers(2, 12))
        requests.append((time, length * PAGE + 7, 3, pages(100 * family, length)))
    return trace(requests)


def run(config: ClusterConfig) -> xr.Dataset:
    return kvsweep.cluster.run(chat(), config, profile(n_layers=4), check=True)


def equal(one: xr.Dataset, other: xr.Dataset) -> bool:
    return one.drop_attrs().identical(other.drop_attrs())


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_it_is_the_idle_ttl_of_its_seconds(fidelity: str) -> None:
    found = run(configured(fidelity, policy="hazard_ttl", saved_seconds=1.0, cost_per_second=0.02))
    made = chat()
    chosen = best_ttl(gaps(made.arrival, chains(made, PAGE), len(made)), 1.0, 0.02)
    assert 1.0 < chosen < 100.0
    assert found.attrs["kvsweep_retention_seconds"] == pytest.approx(chosen)
    assert summarize(found)["retention_seconds"] == pytest.approx(chosen)
    assert found["expirations"].sum() > 0
    fixed = run(configured(fidelity, policy="idle_ttl", seconds=chosen))
    assert equal(found, fixed) and "kvsweep_retention_seconds" not in fixed.attrs


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_free_holding_is_lru_alone(fidelity: str) -> None:
    found = run(configured(fidelity, policy="hazard_ttl", cost_per_second=0.0))
    assert equal(found, run(configured(fidelity, policy="none")))
    assert found["evictions"].sum() > 0 and summarize(found)["retention_seconds"] is None


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_dear_holding_drops_at_the_next_check(fidelity: str) -> None:
    # Without copies, whose locks an idle worker of the engine keeps.
    found = run(configured(fidelity, "none", policy="hazard_ttl", cost_per_second=1e6, check_seconds=0.01))
    assert found.attrs["kvsweep_retention_seconds"] == 1e-12
    # Nobody comes back within a check of the end of a request.
    assert found["hit_tokens"].sum() == 0 and found["expirations"].sum() > 0


def test_arrivals_at_once_are_gaps_of_nothing() -> None:
    made = trace([(0.0, 2 * PAGE, 1, pages(0, 2))] * 3)
    known = gaps(made.arrival, chains(made, PAGE), 3)
    assert known.seconds.tolist() == [0.0, 0.0] and known.pages.tolist() == [2, 2] and known.n_last == 2
    assert best_ttl(known, 1.0, 1.0) == 0.0
    assert kvsweep.cluster.run(made, cluster(retention={"policy": "hazard_ttl"}), profile()).sizes["request"] == 3
