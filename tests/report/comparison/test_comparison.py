"""The report of a comparison: its payload against both Datasets, its page, and the command that writes it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import kvsweep
from kvsweep.errors import InputError
from kvsweep.report import write_comparison
from kvsweep.report.comparison.changes import pack_changes
from kvsweep.report.comparison.headline import CHANGES
from kvsweep.report.comparison.page import render_comparison
from kvsweep.report.payload import Payload
from kvsweep.report.provenance import error_bound
from kvsweep.results.analysis.compare import Comparison, common_grid, compare
from kvsweep.results.netcdf import write_netcdf
from tests.cli_runner import done, refused
from tests.report.comparison.datasets import MAKERS, hostile_pair, overlapping, quantised, without_axes
from tests.report.datasets import HOSTILE, small
from tests.report.test_page import parsed
from tests.report.test_payload import read

TIMES = ("total_time", "storage_time", "recompute_time")


def packed(a: xr.Dataset, b: xr.Dataset) -> tuple[Comparison, Payload]:
    found = compare(a, b)
    return found, pack_changes(a, b, found)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_round_trip_is_within_the_stated_error(make) -> None:
    a, b = make()
    found, payload = packed(a, b)
    bound = error_bound(payload)
    at_a, at_b, _ = common_grid(a, b)
    for index, row in enumerate(found.policies):
        passes = []
        for side, ds in (("a", at_a), ("b", at_b)):
            one = ds.sel(policy=[row.policy])
            shape = read(payload, f"verdict_{side}.{index}").shape
            assert np.array_equal(read(payload, f"verdict_{side}.{index}"), one.kvsweep.verdict.values.reshape(shape))
            for name in TIMES:
                values = one[name] if name in one else getattr(one.kvsweep, name)
                expected = values.transpose("policy", *[axis.dim for axis in found.axes]).values.reshape(shape)
                np.testing.assert_allclose(read(payload, f"{name}_{side}.{index}"), expected, rtol=bound)
            passes.append(one["meets_slo"].values.reshape(shape) == 1)
        codes = {(0, 0): "fail_both", (1, 1): "pass_both", (1, 0): "pass_to_fail", (0, 1): "fail_to_pass"}
        expected = [CHANGES.index(codes[int(p), int(q)]) for p, q in zip(passes[0].flat, passes[1].flat, strict=True)]
        assert read(payload, f"verdict.{index}").ravel().tolist() == expected


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_counts_on_the_page_are_those_of_the_comparison(make) -> None:
    a, b = make()
    found, payload = packed(a, b)
    assert payload.header["counts"] == [[getattr(row, name) for name in CHANGES] for row in found.policies]
    page = render_comparison(a, b, ("a.nc", "b.nc"))
    table = page[page.index("Verdicts in A → B") : page.index('id="kv-settings"')]
    cells = [int(text.replace(",", "")) for text in re.findall(r"<td[^>]*>([\d,]+)</td>", table)]
    expected = [
        [row.fail_to_pass, row.pass_to_fail, row.pass_both, row.fail_both, row.pass_both + row.pass_to_fail,
         row.pass_both + row.fail_to_pass] for row in found.policies
    ]  # fmt: skip
    assert cells == sum(expected, [])


def test_large_planes_are_quantised_and_the_bound_is_small() -> None:
    payload = packed(*quantised())[1]
    assert "log24" in {spec["type"] for spec in payload.header["planes"].values()}
    assert 0.0 < error_bound(payload) < 3e-6


def test_changes_go_both_ways_in_the_pair_that_is_looked_at() -> None:
    found, payload = packed(*overlapping())
    assert any(row.pass_to_fail for row in found.policies) and any(row.fail_to_pass for row in found.policies)
    assert payload.header["ranges"]["total_time_a"] == payload.header["ranges"]["total_time_b"]


def test_a_sweep_against_itself() -> None:
    sentences = packed(small(), small())[1].header["headline"]
    assert sentences[0] == "A and B pass and fail alike at all 1,188 common points with every policy."
    assert "All total times are equal." in sentences and "Both have the same configuration." in sentences


def test_the_headline_is_computed_from_the_data() -> None:
    a = small()
    better = a.assign(meets_slo=xr.ones_like(a["meets_slo"]), total_time=a["total_time"] / 2)
    found, payload = packed(a, better)
    most = max(row.fail_to_pass for row in found.policies)
    first, *rest = payload.header["headline"]
    assert first.startswith(f"B passes {most:,} more of 1,188 common points than A with ")
    assert first.endswith("; no point gets worse with any policy.")
    assert any("at least 0.5 times as long" in sentence for sentence in rest)
    back = packed(better, a)[1].header["headline"]
    assert f"{most:,} fewer" in back[0] and "gets better" in back[0]
    assert any("at most 2 times as long" in sentence for sentence in back)
    assert any(f"The {most:,} points that pass only in A" in sentence for sentence in back)


def test_what_goes_against_the_headline_is_told_in_it() -> None:
    first = packed(*without_axes())[1].header["headline"][0]
    assert first == "B passes 5 more of 5 common points than A with Recompute, while Restore loses 2."
    both = packed(*overlapping())[1].header["headline"]
    assert both[0].endswith("with IO-aware policy (11 gained, 24 lost).")
    assert sum("points that pass only in" in sentence for sentence in both) == 2


def test_an_axis_is_put_back_where_both_hold_it_and_told_where_they_differ() -> None:
    dims = {dim["name"]: dim for dim in packed(*without_axes())[1].header["dims"]}
    assert list(dims) == ["hit_ratio", "request_rate"]
    assert dims["request_rate"]["values"] == ["0.1 1/s in A, 0.2 1/s in B"]
    same = {dim["name"]: dim for dim in packed(without_axes()[0], without_axes()[0])[1].header["dims"]}
    assert same["request_rate"]["values"] == [0.1]


def test_what_only_one_has_and_what_differs_is_on_the_page() -> None:
    text = parsed(render_comparison(*overlapping(), ("one/a.nc", "two/a.nc"))).text
    assert "A is one/a.nc · B is two/a.nc" in text
    assert "Only A has the policy Slowest tier first." in text
    assert "Hit ratio: 5 of A’s 11 and B’s 5 points are in both and compared." in text
    for setting in ("Placement", "Achieved share of peak compute", "--gpu-eta 0.35"):
        assert setting in text


def test_hashes_of_the_policy_are_those_of_script_and_style_and_nothing_is_loaded() -> None:
    reader = parsed(render_comparison(*overlapping(), ("a.nc", "b.nc")))
    policy = next(attrs["content"] for _, attrs in reader.elements if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    live = [text for tag, attrs, text in reader.raw if tag == "style" or "type" not in attrs]
    assert len(live) == 2
    for text in live:
        assert f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" in policy
    for tag, attrs in reader.elements:
        assert not {"src", "srcset", "style", "action"} & set(attrs), tag
        assert attrs.get("href", "data:,") == "data:,"


def test_hostile_texts_stay_text() -> None:
    reader = parsed(render_comparison(*hostile_pair(), (HOSTILE, "</title><script>pwned=3</script>.nc")))
    scripts = [attrs for tag, attrs in reader.elements if tag == "script"]
    assert "img" not in [tag for tag, _ in reader.elements]
    assert sum("type" not in attrs for attrs in scripts) == 1
    header = json.loads(next(text for _, attrs, text in reader.raw if attrs.get("id") == "kv-header"))
    assert header["policies"][0]["label"] == HOSTILE
    assert "pwned=1" in reader.text and "pwned=3" in reader.text


def test_the_budget_counts_common_points() -> None:
    a, b = overlapping()
    found = compare(a, b)
    with pytest.raises(InputError, match="more than the budget of 10; compare coarser sweeps") as caught:
        pack_changes(a, b, found, 10)
    assert "\n" not in str(caught.value)
    pack_changes(a, b, found, found.points)


def test_bytes_are_the_same_each_time_and_after_a_file(tmp_path: Path) -> None:
    a, b = overlapping()
    names = ("a.nc", "b.nc")
    write_comparison(a, b, tmp_path / "one.html", names=names)
    write_netcdf(a, tmp_path / "a.nc")
    write_netcdf(b, tmp_path / "b.nc")
    with kvsweep.open(tmp_path / "a.nc") as opened_a, kvsweep.open(tmp_path / "b.nc") as opened_b:
        write_comparison(opened_a, opened_b, tmp_path / "two.html", names=names)
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("comparison")
    a, b = overlapping()
    write_netcdf(a, folder / "a.nc")
    write_netcdf(b, folder / "b.nc")
    return folder / "a.nc", folder / "b.nc"


def test_the_command_writes_the_page_beside_its_table(files: tuple[Path, Path], tmp_path: Path) -> None:
    output = tmp_path / "diff.html"
    run = done("compare", *files, "--report", output)
    assert "grid points in both" in run.stdout and f"wrote {output}" in run.stderr
    assert output.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert "exists" in refused("compare", *files, "--report", output)
    done("compare", *files, "--report", output, "--force")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--report", "diff.txt"], "--report: diff.txt does not end in .html"),
        (["--report", "no/such/diff.html"], "--report: the folder no/such does not exist"),
        (["--report", "diff.html", "--max-points", "10"], "more than the budget of 10"),
    ],
)
def test_what_cannot_be_written_is_one_line(
    files: tuple[Path, Path], options: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refused("compare", *files, *options)
    assert list(tmp_path.iterdir()) == []
