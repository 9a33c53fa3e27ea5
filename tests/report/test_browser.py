"""The report in a browser, against the Dataset it was made from."""

from __future__ import annotations

import csv
import functools
import io
import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from kvsweep.report import write_report
from kvsweep.report.payload import pack
from kvsweep.report.provenance import error_bound
from tests.report.datasets import HOSTILE, dense, hostile, small

SCRIPT = Path(__file__).parents[1] / "browser" / "report.mjs"
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
MAKERS = {"small": small, "dense": dense, "hostile": hostile}
QUANTITIES = (
    "total_time", "reassigned_tokens", "storage_time", "recompute_time", "gpu_utilization", "storage_utilization",
    "slo_margin",
)  # fmt: skip


def missing() -> str | None:
    """Return why the browser checks cannot run, None when they can."""
    if not CHROMIUM:
        return "chromium is not installed (apt-get install chromium)"
    if not shutil.which("node"):
        return "node is not installed (apt-get install nodejs npm)"
    probe = "require.resolve('playwright-core'); require.resolve('axe-core')"
    found = subprocess.run(["node", "-e", probe], cwd=SCRIPT.parent, capture_output=True, check=False)
    return None if found.returncode == 0 else "playwright-core or axe-core is missing (npm ci --prefix tests/browser)"


REASON = missing()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


@functools.cache
def dataset(name: str) -> xr.Dataset:
    return MAKERS[name]()


@pytest.fixture(scope="module", params=list(MAKERS))
def seen(request, tmp_path_factory):
    """Return a Dataset and what a reader of its report saw."""
    ds = dataset(request.param)
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(ds, path)
    environment = os.environ | {"CHROMIUM": str(CHROMIUM)}
    run = subprocess.run(
        ["node", str(SCRIPT), str(path)], capture_output=True, text=True, timeout=300, env=environment, check=False
    )
    assert run.returncode == 0, run.stderr
    return ds, json.loads(run.stdout)


def cells(seen):
    """Yield every observation made on the way through the page."""
    observed = seen[1]
    yield from observed["keyboard"]["seen"] + observed["views"]["seen"]
    yield from (observed["beforeReload"], observed["afterReload"])


def at(ds: xr.Dataset, point: dict[str, int]) -> xr.Dataset:
    return ds.isel({dim: index for dim, index in point.items() if dim in ds.dims})


def check_point(ds: xr.Dataset, point: dict[str, int], shown: dict[str, str], bound: float) -> None:
    accessor = at(ds, point).kvsweep
    for quantity in QUANTITIES:
        if quantity == "reassigned_tokens":
            array = at(ds, point)["reassigned_hit_blocks"] * at(ds, point)["tokens_per_block"]
        else:
            array = at(ds, point)[quantity] if quantity in ds else getattr(accessor, quantity)
        for policy, value in enumerate(array.values):
            margin = bound * float(at(ds, point)["total_time"].values[policy]) if quantity == "slo_margin" else 0.0
            read = float(shown[f"{quantity}-{policy}"])
            # The accessor multiplies and divides in numpy, the page in JavaScript: the same to a rounding or two.
            np.testing.assert_allclose(read, float(value), rtol=bound + 1e-12, atol=margin + 1e-12)
    assert [int(shown[f"verdict-{i}"]) for i in range(ds.sizes["policy"])] == accessor.verdict.values.tolist()
    meanings = ds["decision_mode"].attrs["flag_meanings"].split()
    modes = [meanings[code].replace("_", " ") for code in at(ds, point)["decision_mode"].values]
    assert [shown[f"mode-{i}"] for i in range(ds.sizes["policy"])] == modes


def test_the_headline_is_the_one_of_the_dataset(seen):
    ds, observed = seen
    assert observed["headline"] == pack(ds).header["headline"][0]
    passes = ds["meets_slo"].sum([dim for dim in ds["meets_slo"].dims if dim != "policy"])
    assert f"({int(passes.max()):,})" in observed["headline"]


def test_read_outs_are_within_the_stated_quantisation(seen):
    ds, _ = seen
    bound = error_bound(pack(ds))
    points = set()
    for observation in cells(seen):
        check_point(ds, observation["state"]["at"], observation["cursor"], bound)
        points.add(tuple(observation["state"]["at"].values()))
        if observation["state"]["pin"]:
            check_point(ds, observation["state"]["pin"], observation["pinned"], bound)
    assert len(points) >= 6


def test_legend_counts_equal_those_of_the_dataset(seen):
    ds, _ = seen
    verdict, sufficient = ds.kvsweep.verdict, ds.kvsweep.sufficient
    for observation in cells(seen):
        state = observation["state"]
        held = {dim: i for dim, i in state["at"].items() if dim in ds.dims and dim not in (state["x"], state["y"])}
        codes, enough = verdict.isel(held).values, sufficient.isel(held).values
        for policy in range(ds.sizes["policy"]):
            counts = np.bincount(codes[policy].ravel(), minlength=4)
            assert [int(observation["counts"][f"{policy}-{state}"]) for state in range(4)] == counts.tolist()
            assert int(observation["enough"][str(policy)]) == int((enough == policy).sum())
        assert int(observation["enough"][str(ds.sizes["policy"])]) == int((enough == -1).sum())


def test_success_rates_equal_those_of_the_dataset(seen):
    ds, observed = seen
    dims = [dim for dim in ds["meets_slo"].dims if dim != "policy"]
    for name, rows in observed["views"]["charts"].items():
        expected = ds.kvsweep.success_rate([dim for dim in dims if dim != name]).transpose(name, "policy").values
        np.testing.assert_allclose(np.array(rows), expected, rtol=0.0, atol=1e-12)


def test_nothing_is_requested_and_the_console_is_silent(seen):
    assert seen[1]["requests"] == []
    assert seen[1]["console"] == []


def test_axe_finds_nothing(seen):
    assert [seen[1][name] for name in ("axe", "axeOpen", "axeDark")] == [[], [], []]


def test_the_keyboard_reaches_everything(seen):
    ds, observed = seen
    reached = observed["keyboard"]["reached"]
    for name in ("kv-view", "kv-x", "kv-y", "kv-swap", "kv-even", "kv-csv", "kv-png", "kv-reset"):
        assert name in reached
    sliders = [name for name in reached if name.startswith("kv-slider-")]
    varying = [dim for dim in ds["meets_slo"].dims if dim != "policy" and ds.sizes[dim] > 1]
    assert len(sliders) == len(varying) - 2 and reached.count("map") == 2
    assert observed["keyboard"]["seen"][-1]["state"]["pin"]
    assert "Latency target" in observed["keyboard"]["spoken"] or "Prompt" in observed["keyboard"]["spoken"]


def test_dark_print_and_colour_vision_render(seen):
    sizes = seen[1]["emulations"]
    assert set(sizes) == {"protanopia", "deuteranopia", "tritanopia", "achromatopsia", "print", "pdf"}
    assert min(sizes.values()) > 20_000
    assert (seen[1]["wide"], seen[1]["narrow"]) == (0, 0)


def test_the_state_survives_a_reload(seen):
    assert seen[1]["afterReload"] == seen[1]["beforeReload"]
    assert seen[1]["afterReload"]["state"]["pin"]


def test_csv_and_png_hold_the_view(seen):
    ds, observed = seen
    rows = list(csv.DictReader(io.StringIO(observed["csv"])))
    state = observed["beforeReload"]["state"]
    lengths = [ds.sizes.get(state[axis], 1) for axis in ("x", "y")]
    assert len(rows) == lengths[0] * lengths[1] * ds.sizes["policy"]
    x = ds[state["x"]].values
    for row in rows[:: max(1, len(rows) // 20)]:
        point = dict(state["at"])
        if ds[state["x"]].dtype.kind == "f":
            point[state["x"]] = int(np.abs(x - float(row[state["x"]])).argmin())
            point[state["y"]] = int(np.abs(ds[state["y"]].values - float(row[state["y"]])).argmin())
            here = at(ds, point).sel(policy=row["policy"])
            assert float(row["total_time"]) == pytest.approx(float(here["total_time"]), rel=3e-6)
    assert observed["png"] == "89504e470d0a1a0a"
    assert observed["views"]["table"] == lengths[1]


def test_hostile_texts_stay_text(seen):
    ds, observed = seen
    assert observed["injected"] == {"pwned": None, "images": 0, "scripts": 1}
    if str(ds["policy_label"].values[0]) == HOSTILE:
        assert "</script><script>pwned=1</script>" in observed["text"]
