"""The four figures of an overhead run."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from kvsweep.overhead import harness
from kvsweep.overhead.dataset import overhead_dataset
from kvsweep.overhead.plan import make_overhead_plan
from kvsweep.report.plots.measured import overhead


@pytest.fixture(scope="module")
def ds() -> xr.Dataset:
    plan = make_overhead_plan(
        {"pool_size": 6, "combination_reps": 5, "request_counts": "1,7,20", "warmup_decisions": 10}
    )
    return overhead_dataset(plan, harness.run(plan))


@pytest.mark.parametrize("kind", ["total", "per_request", "relative"])
def test_streams_have_a_line_for_each_policy_and_path(ds: xr.Dataset, kind: str) -> None:
    (ax,) = overhead.figure(ds, kind).axes
    lines = ax.get_lines()
    assert len(lines) == ds.sizes["policy"] * ds.sizes["path"]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    seconds = ds["stream_seconds"].transpose("path", "policy", "request_count").values.reshape(len(lines), -1)
    service = np.tile(ds["stream_service_seconds"].values, (ds.sizes["path"], 1))
    scale = {"total": 1.0, "per_request": 1e6 / ds["request_count"].values, "relative": 100.0 / service}[kind]
    assert np.allclose([line.get_ydata() for line in lines], seconds * scale)
    colors = [str(color) for color in ds["policy_color"].values]
    assert [line.get_color() for line in lines] == colors * ds.sizes["path"]
    assert len({(line.get_linestyle(), line.get_marker()) for line in lines}) == ds.sizes["path"]
    assert len({line.get_marker() for line in lines}) == ds.sizes["path"]
    unit = {"total": "[s]", "per_request": "[µs]", "relative": "[%]"}[kind]
    assert unit in ax.get_ylabel()


def test_distribution_has_a_box_with_median_and_mean_for_each_policy_and_path(ds: xr.Dataset) -> None:
    (ax,) = overhead.figure(ds, "distribution").axes
    cost = np.maximum(1e6 * ds["decision_seconds"].values, overhead.LEAST)
    count = ds.sizes["policy"] * ds.sizes["path"]
    assert len(ax.patches) == count
    means = [line.get_ydata()[0] for line in ax.get_lines() if line.get_marker() == "D"]
    assert np.allclose(sorted(means), sorted(cost.mean(axis=2).ravel()))
    drawn = {round(float(value), 9) for line in ax.get_lines() for value in np.atleast_1d(line.get_ydata())}
    assert {round(float(value), 9) for value in np.median(cost, axis=2).ravel()} <= drawn


def test_a_policy_without_a_compiled_path_leaves_a_gap(ds: xr.Dataset) -> None:
    gap = ds.copy(deep=True)
    for name in ("decision_seconds", "stream_seconds", "stream_seconds_quartile"):
        gap[name][0, 2] = np.nan
    for kind in overhead.TITLES:
        figure = overhead.figure(gap, kind)
        figure.draw_without_rendering()
    assert len(figure.axes[0].patches) == ds.sizes["policy"] * ds.sizes["path"] - 1
