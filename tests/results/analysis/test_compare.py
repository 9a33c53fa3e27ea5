"""Comparison of sweeps: data, files, and the command."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner

import kvsweep
from kvsweep.cli.pages.compare import compare as command
from kvsweep.errors import InputError
from kvsweep.results.analysis.compare import AxisOverlap, Difference, compare
from kvsweep.results.netcdf import write_netcdf
from tests.results.sweep_samples import ALL, policy_file, small, wide


def naive_counts(a: xr.Dataset, b: xr.Dataset, policy: str) -> dict[str, int]:
    """Count verdict changes point by point, over coordinates both sweeps have."""
    counts = {"pass_to_fail": 0, "fail_to_pass": 0, "pass_both": 0, "fail_both": 0}
    names = {(1, 0): "pass_to_fail", (0, 1): "fail_to_pass", (1, 1): "pass_both", (0, 0): "fail_both"}
    for ratio in set(a["hit_ratio"].values) & set(b["hit_ratio"].values):
        for rate in set(a["request_rate"].values) & set(b["request_rate"].values):
            for target in set(a["p95_seconds"].values) & set(b["p95_seconds"].values):
                at = {"policy": policy, "hit_ratio": ratio, "request_rate": rate, "p95_seconds": target}
                counts[names[int(a["meets_slo"].sel(at)), int(b["meets_slo"].sel(at))]] += 1
    return counts


@pytest.fixture(scope="module")
def other() -> xr.Dataset:
    """Return the small sweep on disk instead of auto, on axes that overlap with it in part, one of them turned."""
    return kvsweep.sweep(
        stack="h200", placement="disk", total_blocks=200_000, hit_ratio=[0.8, 0.5, 0.6],
        request_rate="0.01:0.05:0.02", p95_seconds="5:80:15", policies=ALL[:3],
    )  # fmt: skip


def test_a_sweep_equals_itself() -> None:
    found = compare(small(), small())
    assert found.differences == () and found.points == 60
    assert found.policies_only_a == found.policies_only_b == ()
    for row in found.policies:
        assert row.pass_to_fail == row.fail_to_pass == 0 and row.pass_both + row.fail_both == 60
        assert row.worst.ratio == row.best.ratio == 1.0


def test_counts_agree_with_a_slow_twin_on_the_common_grid(other: xr.Dataset) -> None:
    found = compare(small(), other)
    assert found.axes == (
        AxisOverlap("hit_ratio", 3, 3, 2), AxisOverlap("request_rate", 4, 3, 3), AxisOverlap("p95_seconds", 5, 6, 5)
    )  # fmt: skip
    assert found.points == 2 * 3 * 5
    assert found.policies_only_a == ("all_compute",) and found.policies_only_b == ()
    assert [row.policy for row in found.policies] == list(ALL[:3])
    for row in found.policies:
        counts = naive_counts(small(), other, row.policy)
        assert {name: getattr(row, name) for name in counts} == counts


def test_extremes_are_where_they_say(other: xr.Dataset) -> None:
    for row in compare(small(), other).policies:
        for change in (row.worst, row.best):
            at = {"policy": row.policy, **change.where}
            before, after = float(small()["total_time"].sel(at)), float(other["total_time"].sel(at))
            assert (change.seconds_a, change.seconds_b) == (before, after)
            assert change.ratio == pytest.approx(after / before)
        assert row.worst.ratio >= 1.0 >= row.best.ratio or row.worst.ratio >= row.best.ratio


def test_configuration_differs_in_settings_and_what_they_resolve_to(other: xr.Dataset) -> None:
    found = {line.name: (line.a, line.b) for line in compare(small(), other).differences}
    assert found["placement"] == ("auto", "disk")
    assert found["p95_seconds"] == ("5:65:15", "5:80:15")
    assert found["hit_ratio"] == ("0.4:0.8:0.2", "0.8, 0.5, 0.6")
    assert "vram_fraction" not in found and "stack" not in found
    stacks = compare(kvsweep.sweep(stack="h200"), kvsweep.sweep(stack="a5000")).differences
    assert Difference("stack", "h200", "a5000") in stacks and Difference("gpu", "H200", "A5000") in stacks


def test_a_dim_squeezed_out_of_one_is_compared_at_its_value() -> None:
    one = kvsweep.sweep(
        stack="a5000", placement="disk", total_blocks=50_000, hit_ratio=0.5, request_rate=0.05, policies=ALL
    )
    found = compare(wide(), one)
    assert {axis.dim: axis.n_common for axis in found.axes} == {
        "stack": 1, "placement": 1, "request_rate": 1, "p95_seconds": 12
    }  # fmt: skip
    assert all(row.pass_to_fail == row.fail_to_pass == 0 and row.worst.ratio == 1.0 for row in found.policies)


@pytest.mark.parametrize("text", ["stack: 'no end", "- h200", ""])
def test_a_configuration_that_cannot_be_read_is_none(text: str) -> None:
    odd = small().assign_attrs(kvsweep_config=text)
    assert all(line.b is None or line.a is not None for line in compare(small(), odd).differences)
    assert compare(odd, odd).differences == ()


def test_a_request_of_no_blocks_is_no_change() -> None:
    options = {"total_blocks": "0,10", "hit_ratio": 0.5, "request_rate": 0.1, "p95_seconds": 10}
    found = compare(kvsweep.sweep(stack="h200", **options), kvsweep.sweep(stack="h200", gpu_eta=0.25, **options))
    assert all(np.isfinite(row.worst.ratio) and np.isfinite(row.best.ratio) for row in found.policies)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hit_ratio": "0.1,0.3"}, "no point is in both sweeps: hit_ratio is 0.4, 0.6, 0.8 and 0.1, 0.3"),
        ({"stack": "h200,a5000", "gpu_count": "2,4"}, "gpu_count is 1 and 2, 4"),
        ({"miss_blocks": "0,500"}, "no point is in both sweeps: "),
        ({"policies": ["mine"]}, "no policy is in both: "),
    ],
)
def test_nothing_in_common_is_told_in_one_line(options: dict[str, object], message: str, tmp_path: Path) -> None:
    files = [policy_file(tmp_path, "mine", "Mine")]
    sweep = kvsweep.sweep(**{"stack": "h200", "policy_files": files, "total_blocks": 200_000} | options)
    with pytest.raises(InputError) as caught:
        compare(small(), sweep)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, other: xr.Dataset) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("compare")
    write_netcdf(small(), folder / "a.nc")
    write_netcdf(other, folder / "b.nc")
    return str(folder / "a.nc"), str(folder / "b.nc")


def test_command_prints_json_of_the_comparison(files: tuple[str, str], other: xr.Dataset) -> None:
    result = CliRunner().invoke(command, [*files, "--format", "json"])
    assert result.exit_code == 0 and result.stderr == ""
    found = json.loads(result.stdout)
    expected = compare(small(), other)
    assert found["points"] == expected.points
    assert [row["pass_to_fail"] for row in found["policies"]] == [row.pass_to_fail for row in expected.policies]
    assert found["policies"][0]["worst"]["where"] == expected.policies[0].worst.where


def test_command_prints_tables_and_csv(files: tuple[str, str]) -> None:
    text = CliRunner().invoke(command, files).stdout
    assert any(line.split() == ["placement", "auto", "disk"] for line in text.splitlines())
    assert "30 grid points in both" in text
    assert "hit_ratio: 2 in both, of 3 in A and 3 in B" in text and "only in A: Recompute" in text
    assert "Restore grew the most, from" in text
    same = CliRunner().invoke(command, [files[0], files[0]]).stdout
    assert same.startswith("Same configuration.") and "grew" not in same and "shrank" not in same
    rows = list(csv.DictReader(io.StringIO(CliRunner().invoke(command, [*files, "--format", "csv"]).stdout)))
    assert [row["policy"] for row in rows] == list(ALL[:3]) and float(rows[2]["worst.ratio"]) > 1.0


def test_command_names_a_file_that_is_not_there(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, [str(tmp_path / "no.nc"), str(tmp_path / "no.nc")])
    assert isinstance(result.exception, InputError) and "no such file" in str(result.exception)
