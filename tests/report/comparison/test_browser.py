"""The report of a comparison in a browser, against both Datasets."""

from __future__ import annotations

import csv
import functools
import io
import json
import os
import subprocess

import numpy as np
import pytest
import xarray as xr

from kvsweep.report import write_comparison
from kvsweep.report.comparison.changes import pack_changes
from kvsweep.report.comparison.headline import CHANGES
from kvsweep.report.payload import Payload
from kvsweep.report.provenance import error_bound
from kvsweep.results.analysis.compare import common_grid, compare
from tests.report.comparison.datasets import MAKERS
from tests.report.datasets import HOSTILE
from tests.report.test_browser import CHROMIUM, REASON, SCRIPT

pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


TIMES = ("total_time", "storage_time", "recompute_time")
SHOWN = (("at", "cursor"), ("pin", "pinned"))


@functools.cache
def made(name: str) -> tuple[xr.Dataset, xr.Dataset]:
    return MAKERS[name]()


def packed(name: str) -> Payload:
    return pack_changes(*made(name), compare(*made(name)))


@functools.cache
def pair(name: str) -> tuple[xr.Dataset, xr.Dataset]:
    """Return both sweeps on the common grid and policies."""
    a, b = made(name)
    policies = [row.policy for row in compare(a, b).policies]
    at_a, at_b, _ = common_grid(a, b)
    return at_a.sel(policy=policies), at_b.sel(policy=policies)


@pytest.fixture(scope="module", params=list(MAKERS))
def seen(request, tmp_path_factory):
    """Return the name of a pair and what a reader of its report saw."""
    path = tmp_path_factory.mktemp("comparison") / "diff.html"
    write_comparison(*made(request.param), path, names=("a.nc", HOSTILE))
    run = subprocess.run(
        ["node", str(SCRIPT.with_name("comparison.mjs")), str(path)],
        capture_output=True, text=True, timeout=300, check=False, env=os.environ | {"CHROMIUM": str(CHROMIUM)},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return request.param, json.loads(run.stdout)


def observations(observed):
    yield from observed["keyboard"]["seen"] + observed["views"]
    yield from (observed["beforeReload"], observed["afterReload"])


def changes(a: xr.Dataset, b: xr.Dataset) -> xr.DataArray:
    """Return the code of each change, spelled out."""
    before, after = a["meets_slo"] == 1, b["meets_slo"] == 1
    return xr.where(before, xr.where(after, 1, 2), xr.where(after, 3, 0)).transpose(*a["meets_slo"].dims)


def at(array: xr.DataArray, point: dict[str, int], free: tuple[str, ...] = ()) -> np.ndarray:
    return array.isel({dim: i for dim, i in point.items() if dim in array.dims and dim not in free}).values


def test_legend_counts_equal_those_of_the_datasets(seen):
    a, b = pair(seen[0])
    planes = {"verdict_a": a.kvsweep.verdict, "verdict_b": b.kvsweep.verdict}
    changed = changes(a, b)
    for observation in observations(seen[1]):
        state = observation["state"]
        codes = at(planes.get(state["view"], changed), state["at"], (state["x"], state["y"]))
        for policy in range(a.sizes["policy"]):
            expected = np.bincount(codes[policy].ravel(), minlength=4).tolist()
            assert [int(observation["counts"][f"{policy}-{code}"]) for code in range(4)] == expected


def test_the_read_out_has_a_beside_b(seen):
    sides = dict(zip("ab", pair(seen[0]), strict=True))
    stored = {
        f"{name}_{side}": ds[name] if name in ds else getattr(ds.kvsweep, name)
        for side, ds in sides.items()
        for name in ("verdict", *TIMES)
    } | {"verdict": changes(*sides.values())}
    bound = error_bound(packed(seen[0])) + 1e-12
    points = set()
    for observation in observations(seen[1]):
        for where, shown in SHOWN:
            point, read = observation["state"][where], observation[shown]
            if point is None:
                continue
            points.add(tuple(point.values()))
            expected = {name: at(array, point) for name, array in stored.items()}
            for policy in range(sides["a"].sizes["policy"]):
                for name, values in expected.items():
                    np.testing.assert_allclose(float(read[f"{name}-{policy}"]), values[policy], rtol=bound)
                before, after = (float(expected[f"total_time_{side}"][policy]) for side in "ab")
                if before:
                    ratio = float(read[f"total_time_ratio-{policy}"])
                    np.testing.assert_allclose(ratio, after / before, rtol=3 * bound)
    assert len(points) >= 3


def test_every_view_is_drawn_told_and_tabulated(seen):
    a, _ = pair(seen[0])
    views = seen[1]["views"]
    assert [each["state"]["view"] for each in views] == [
        "verdict", "verdict_a", "verdict_b", "time_ratio", "total_time_a", "total_time_b", "verdict"
    ]  # fmt: skip
    for each in views[:-1]:
        # Numbers over one axis are curves, in one picture.
        curves = seen[0] == "without_axes" and not each["state"]["view"].startswith("verdict")
        assert len(each["labels"]) == (0 if curves else a.sizes["policy"])
        told = (
            ("better", "worse", "no change") if each["state"]["view"] not in ("verdict_a", "verdict_b") else ("pass",)
        )
        assert all(any(word in text for word in told) and "in this view" in text for text in each["labels"])
        assert set(each["cells"]) <= set("FP+−") if each["state"]["view"] == "verdict" else each["cells"]


def test_nothing_is_requested_and_the_console_is_silent(seen):
    assert seen[1]["requests"] == [] and seen[1]["console"] == []


def test_axe_finds_nothing(seen):
    assert [seen[1][name] for name in ("axe", "axeOpen", "axeDark")] == [[], [], []]


def test_the_keyboard_reaches_the_maps_and_the_voice_tells_both_times(seen):
    reached = seen[1]["keyboard"]["reached"]
    axes = () if seen[0] == "without_axes" else ("kv-x", "kv-y", "kv-swap")
    for name in ("kv-view", *axes, "kv-csv", "kv-png", "kv-reset"):
        assert name in reached
    assert "map" in reached and seen[1]["keyboard"]["seen"][-1]["state"]["pin"]
    assert "s in A" in seen[1]["keyboard"]["spoken"] and "s in B" in seen[1]["keyboard"]["spoken"]


def test_dark_print_and_colour_vision_render(seen):
    sizes = seen[1]["emulations"]
    assert set(sizes) == {"protanopia", "deuteranopia", "tritanopia", "achromatopsia", "print", "pdf"}
    assert min(sizes.values()) > 20_000
    assert (seen[1]["wide"], seen[1]["narrow"]) == (0, 0)


def test_the_state_survives_a_reload(seen):
    assert seen[1]["afterReload"] == seen[1]["beforeReload"]
    assert seen[1]["afterReload"]["state"]["view"] == "time_ratio" and seen[1]["afterReload"]["state"]["pin"]


def test_csv_and_png_hold_the_view(seen):
    a, b = pair(seen[0])
    rows = list(csv.DictReader(io.StringIO(seen[1]["csv"])))
    state = seen[1]["views"][-1]["state"]
    codes = at(changes(a, b), state["at"], (state["x"], state["y"]))
    assert len(rows) == codes.size
    for code, name in enumerate(CHANGES):
        assert sum(row["verdict_change"] == name for row in rows) == int((codes == code).sum())
    assert {row["policy"] for row in rows} == set(a["policy"].values)
    assert all(float(row["total_time_a"]) >= 0.0 and row["verdict_b"] for row in rows)
    assert seen[1]["png"] == "89504e470d0a1a0a"


def test_hostile_texts_stay_text(seen):
    assert seen[1]["injected"] == {"pwned": None, "images": 0, "scripts": 1}
    if seen[0] == "hostile":
        assert "</script><script>pwned=1</script>" in seen[1]["text"]
