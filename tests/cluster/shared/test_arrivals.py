"""Closed loop: requests that arrive when the one before them in their session is over."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import xarray as xr

import kvsweep
from kvsweep.cluster.setup.initial_state import initial_state
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.arrivals import follow, take
from kvsweep.errors import InputError
from kvsweep.policies import load_policies
from tests.cluster.samples import COPY, STEP, TOKEN, cluster, fuzz_profile, pages, profile, trace

ALONE = 640 * TOKEN + 10 * COPY + 5 * STEP
"""Time of a request of 640 tokens and 5 answered ones that nothing holds up [s]."""


def run(
    arrivals: list[float], sessions: list[int | None], thinks: list[float] | None = None, **changes: Any
) -> xr.Dataset:
    made = trace([(time, 640, 5, ()) for time in arrivals], sessions=sessions, thinks=thinks)
    workload = {"mode": "closed", **changes.pop("workload", {})}
    return kvsweep.cluster.run(made, cluster(workload=workload, **changes), profile(), check=True)


def seconds(ds: xr.Dataset, name: str) -> Any:
    return pytest.approx(ds[name].values.tolist(), abs=2e-11)


def test_a_turn_arrives_when_the_answer_before_it_was_read() -> None:
    ds = run([0.0, 0.001, 0.002, 5.0], [0, 0, 0, None], [math.nan, 0.25, 0.0, math.nan])
    second = ALONE + 0.25
    assert seconds(ds, "arrival") == [0.0, second, second + ALONE, 5.0]
    assert seconds(ds, "e2e") == [ALONE] * 4
    assert "closed loop" not in ds.attrs["kvsweep_trace_notes"]


def test_where_the_trace_has_no_think_time_the_file_says_it_and_else_the_gap_is_assumed() -> None:
    thinks = [math.nan, math.nan, 0.5]
    ds = run([0.0, 3.0, 7.0], [0, 0, 0], thinks, workload={"think_seconds": 2.0})
    assert seconds(ds, "arrival") == [0.0, ALONE + 2.0, 2 * ALONE + 2.5]
    assert "closed loop" not in ds.attrs["kvsweep_trace_notes"] and "think_seconds: 2.0" in ds.attrs["kvsweep_config"]
    ds = run([0.0, 3.0, 7.0], [0, 0, 0], thinks)
    assert seconds(ds, "arrival") == [0.0, ALONE + 3.0, 2 * ALONE + 3.5]
    assert "assumed (1): closed loop: the think time is the gap" in ds.attrs["kvsweep_trace_notes"]


def test_a_rejected_request_is_over_when_it_arrives() -> None:
    made = trace([(0.0, 64, 5, ()), (0.1, 1280, 5, ()), (0.3, 64, 5, ())], sessions=[0, 0, 0], thinks=[0.0, 0.5, 0.25])
    ds = kvsweep.cluster.run(made, cluster({"device_tokens": 640}, workload={"mode": "closed"}), profile(), check=True)
    finish = 64 * TOKEN + COPY + 5 * STEP
    assert ds["rejected"].values.tolist() == [0, 1, 0]
    assert seconds(ds, "arrival") == [0.0, finish + 0.5, finish + 0.75]


def test_sessions_do_not_wait_for_each_other_and_windows_hold_what_came_about() -> None:
    ds = run([0.0, 0.0, 0.5, 0.5], [0, 1, 0, 1], [0.0, 0.0, 6.0, 12.0])
    assert (ds["arrival"].values[2:] > [6.0, 12.0]).all()
    assert ds["outstanding"].values.tolist() == [0, 0, 0]
    assert ds["completed_requests"].values.tolist() == [2, 1, 1]


def test_a_closed_loop_is_never_overloaded_by_one_session() -> None:
    arrivals = [0.001 * i for i in range(50)]
    opened = run(arrivals, [0] * 50, workload={"mode": "open"})
    closed = run(arrivals, [0] * 50, workload={"think_seconds": 0.0})
    assert seconds(closed, "e2e") == [ALONE] * 50
    assert opened["e2e"].max() > 10 * ALONE


def test_occupancy_ends_with_the_last_arrival() -> None:
    ds = run([0.0, 1.0], [0, 0], [0.0, 0.0], prefill={"host_tokens": 0})
    # The ten pages are held all the time: one prompt's until its handoff ends, then idle ones.
    assert ds["occupancy"].sel(worker="prefill0", tier="l1") == pytest.approx(640)


def test_the_oracle_looks_at_turns_that_have_not_come() -> None:
    """b is asked for last by the trace's order, a by a turn that is late: number 3 counts as sooner than number 4."""
    asked = [pages(0, 4), pages(10, 4), pages(20, 4), pages(10, 4), pages(0, 4)]
    made = trace(
        [(float(i), 257, 1, ids) for i, ids in enumerate(asked)], sessions=[0, 1, 2, 0, 1], thinks=[0, 0, 0, 50, 1]
    )
    small = {"device_tokens": 10 * 64, "host_tokens": 0}
    config = cluster(small, workload={"mode": "closed"}, eviction={"policy": "belady"})
    ds = kvsweep.cluster.run(made, config, profile(), check=True)
    assert ds["arrival"].values[4] < ds["arrival"].values[3]
    assert ds["hit_tokens"].values[3, 0] == 256


@pytest.mark.parametrize("seed", range(10))
def test_pending_arrivals_come_by_time_then_number(seed: int) -> None:
    """The heap alone, beside a list that is searched."""
    rng = np.random.default_rng(seed)
    n = 60
    sessions = rng.integers(0, 6, n).tolist()
    made = trace(
        [(float(time), 4, 1, ()) for time in np.sort(rng.integers(0, 9, n))], page=4, sessions=sessions,
        thinks=rng.integers(0, 4, n).tolist(),
    )  # fmt: skip
    config = cluster({"chunk_tokens": 64}, page_size=4, workload={"mode": "closed"})
    s = initial_state(made, config, fuzz_profile(), load_policies()["default_policy"])
    waiting = {r: int(s.request[r, col.ARRIVAL]) for r in range(n) if s.request[r, col.ARRIVAL] >= 0}
    assert len(waiting) == len(set(sessions))
    came = []
    while waiting:
        time, expected = min((time, r) for r, time in waiting.items())
        s.run[col.NOW] = time
        r = take(s)
        assert r == expected
        del waiting[r]
        came.append(r)
        later = s.request[r, col.FOLLOWER]
        if later >= 0:
            follow(s, r)
            waiting[int(later)] = int(s.request[later, col.ARRIVAL])
    assert sorted(came) == list(range(n)) and s.run[col.N_PENDING] == 0


@pytest.mark.parametrize(
    ("sessions", "thinks", "workload", "message"),
    [
        ([0, 1], None, {}, "workload: mode: closed; no request follows another of its session"),
        ([0, 0], [0.0, 1e7], {}, r"think times of a session, and the trace, last 1e\+07 s; allowed: at most 4000000 s"),
        ([0, 0], None, {"think_seconds": -1}, "cluster: workload: think_seconds: -1 is out of range; allowed: 0 to 1e"),
        ([0, 0], None, {"mode": "shut"}, "cluster: workload: mode: no 'shut'; choose from open, closed"),
    ],
)
def test_what_is_no_closed_loop_is_refused(
    sessions: list[int | None], thinks: list[float] | None, workload: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        run([0.0, 1.0], sessions, thinks, workload=workload)
