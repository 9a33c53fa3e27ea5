"""Figures of studies of a few cases, read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib import pyplot

from kvsweep.report.plots.studies.cases import replay_figure, tiers_figure
from tests.cli_runner import done, refused


def test_tiers_are_stacked_as_the_table_says() -> None:
    late = {"ttft_p50": 0.1, "ttft_p95": 1.0, "ttft_p99": 3.0}
    rows = [
        {"tiers": "device only", "hit_share_l1": 0.1, "ttft_mean": 0.2, **late},
        {"tiers": "+ host", "hit_share_l1": 0.1, "hit_share_l2": 0.3, "ttft_mean": 0.1, **late},
    ]
    left, right = tiers_figure(xr.Dataset(attrs={"title": "t", "kvsweep_profile_kind": "assumed"}), rows).axes
    ends = [bar.get_x() + bar.get_width() for bar in left.patches]
    np.testing.assert_allclose(ends, [10, 10, 10, 40, 10, 40])
    assert [label.get_text() for label in left.get_yticklabels()] == ["device only", "+ host"]
    assert [line.get_xdata().tolist() for line in right.get_lines()][0] == [0.2, 0.1]
    pyplot.close("all")


def test_every_case_has_a_mark_a_fidelity() -> None:
    shape = {"fidelity": ["paper", "engine"], "case": ["a", "b", "c"], "statistic": ["mean"]}
    values = np.arange(1.0, 7.0).reshape(2, 3, 1)
    ds = xr.Dataset(
        {
            **dict.fromkeys(("ttft", "e2e"), (("fidelity", "case", "statistic"), values)),
            "token_hit_ratio": (("fidelity", "case"), values[..., 0] / 10),
        },
        shape,
        {"title": "Replay"},
    )
    axes = replay_figure(ds).axes
    assert [line.get_xdata().tolist() for line in axes[0].get_lines()] == [[1, 2, 3], [4, 5, 6]]
    np.testing.assert_allclose(axes[2].get_lines()[1].get_xdata(), [40, 50, 60])
    assert [label.get_text() for label in axes[0].get_yticklabels()] == ["a", "b", "c"]
    pyplot.close("all")


def test_the_commands_draw(tmp_path: Path) -> None:
    assert "wrote" in done("study", "tiers", "-o", tmp_path / "tiers.svg").stderr
    assert (tmp_path / "tiers.svg").read_text().lstrip().startswith("<?xml")
    assert "--output" in refused("study", "replay", "-o", tmp_path / "replay.txt")
