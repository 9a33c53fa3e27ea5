"""Windows, bytes and extrapolated operations of the cluster simulator against its slow twin, on fuzzed clusters.

The twin speaks of fidelity paper.
"""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest

import kvsweep.cluster
from kvsweep.cluster.inputs.config import ClusterConfig
from kvsweep.cluster.inputs.service_profile import Profile, Span, coefficients
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.simulation.run import finish
from kvsweep.trace.model import Trace
from tests.cluster.paper import naive as naive_cluster
from tests.cluster.paper import naive_report as report
from tests.cluster.paper.test_twin import policy_files, random_case

__all__ = ["policy_files"]  # a fixture

CASES, BATCH = 200, 100


def with_ranges(profile: Profile, page: int, rng: random.Random) -> Profile:
    """Return the profile with measured ranges of which operations lie within and without; some are unknown."""

    def span(*highs: float) -> Span | None:
        high = rng.choice((*highs, None))
        return None if high is None else Span(low=rng.choice((0.0, 0.5, 1.5, high / 3)), high=float(high))

    page_bytes = page * profile.kv_bytes_per_token
    copies = {
        name: dataclasses.replace(getattr(profile, name), payload_bytes=span(page_bytes, 3 * page_bytes, 9e9))
        for name in ("handoff", "h2d", "d2h")
    }
    return dataclasses.replace(
        profile, **copies,
        prefill=dataclasses.replace(profile.prefill, tokens=span(2 * page, 9e9), context_tokens=span(4.5 * page, 9e9)),
        decode=dataclasses.replace(profile.decode, batch_range=span(2, 99), context_tokens=span(10 * page, 9e9)),
    )  # fmt: skip


def assert_reports(case: Trace, config: ClusterConfig, profile: Profile, files: list[Path]) -> np.ndarray:
    """Compare what is reported; return how often what is to be tested came up."""
    sim = naive_cluster.finished(case, config, profile, files)
    run = finish(case, config, profile, policy_files=files)
    ds = kvsweep.cluster.outcome.dataset.dataset(run)
    windows, moved, (operations, beyond) = report.windows(sim), report.bytes_moved(sim), report.extrapolated(sim)
    for name, values in windows.items():
        assert ds[name].values.tolist() == values, name
    for name, table in moved.items():
        assert ds[name].values.tolist() == table, name
    assert ds.attrs["kvsweep_operations"] == operations
    assert ds.attrs["kvsweep_extrapolated_ratio"] == (beyond / operations if operations else 0.0)
    if config.retention.policy == "none":  # else the twin stops at its last event, before the last checks
        assert run.state.prefill[:, [col.IDLE, col.HOST_IDLE]].tolist() == [list(kept) for kept in report.resident(sim)]
    into = np.array(moved["bytes_in"])
    return np.array([
        len(windows["outstanding"]) > 1, max(windows["outstanding"]) > 0, into[: config.n_prefill, 0].any(),
        into[:, 1].any(), 0 < beyond < operations,
    ])  # fmt: skip


@pytest.mark.parametrize("first", range(0, CASES, BATCH))
def test_reports_of_core_and_twin_are_equal(first: int, policy_files: list[Path]) -> None:
    seen = []
    for seed in range(first, first + BATCH):
        case, config, profile = random_case(seed)
        rng = random.Random(seed)
        config = dataclasses.replace(config, window_seconds=rng.choice((0.002, 0.05, 5.0)))
        try:
            seen.append(assert_reports(case, config, with_ranges(profile, config.page_size, rng), policy_files))
        except Exception as error:
            raise AssertionError(f"case {seed}: {error}") from error
    assert np.any(seen, axis=0).all()


@pytest.mark.parametrize(("low", "inside"), [(1.0, True), (1.5, False), (2.0, False)])
def test_a_range_from_between_two_sizes_does_not_hold_the_lesser(low: float, inside: bool) -> None:
    _, _, profile = random_case(0)
    decode = dataclasses.replace(profile.decode, batch_range=Span(low=low, high=4.5))
    found = coefficients(dataclasses.replace(profile, decode=decode), 4).domain[2]
    assert (found[0] <= 1) == inside and found[1] == 4
