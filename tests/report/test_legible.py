"""Every page on a telephone and in a small window, with many policies: nothing cut, nothing too small to read."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import xarray as xr

import kvsweep
from kvsweep.report import write_comparison, write_report
from tests.report.comparison.datasets import overlapping
from tests.report.datasets import small
from tests.report.test_browser import CHROMIUM, REASON, SCRIPT
from tests.studies.samples import study

pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))

GATEWAYS = ("round_robin", "session_affinity", "cache_aware", "least_loaded", "power_of_two", "kv_cost", "random")


def with_policies(count: int) -> xr.Dataset:
    """Return a sweep of `count` policies, some with longer names than those that come with kvsweep."""
    ds = small()
    four = ds.sizes["policy"]
    more = ds.isel(policy=[index % four for index in range(count)])
    names = [*ds["policy_label"].values, *(f"Recompute a quarter of prefix {index}" for index in range(four, count))]
    return more.assign_coords(policy=[f"policy_{index}" for index in range(count)], policy_label=("policy", names))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[str]]]:
    """Return what cannot be read on each page, by the width of the window and the page."""
    folder: Path = tmp_path_factory.mktemp("legible")
    axes = {"gateway": list(GATEWAYS), "eviction": ["lru", "fifo", "lfu"], "host_tokens": [0, 262144], "ttl": [1, 60]}
    cells = kvsweep.cluster.sweep(study(axes=axes))
    datasets = {
        "five": with_policies(5),
        "seven": with_policies(7),
        "study": cells.sel(eviction=["lru"]).squeeze("eviction"),
        "names": cells.isel(gateway=slice(5)),
        "curves": cells.isel(eviction=0, ttl=0),
    }
    for name, ds in datasets.items():
        write_report(ds, folder / f"{name}.html")
    write_comparison(*overlapping(), folder / "comparison.html", names=("before.nc", "after.nc"))
    run = subprocess.run(
        ["node", str(SCRIPT.with_name("legible.mjs")), *map(str, sorted(folder.glob("*.html")))],
        capture_output=True, text=True, timeout=120, check=False, env=os.environ | {"CHROMIUM": str(CHROMIUM)},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    read: dict[str, dict[str, list[str]]] = json.loads(run.stdout)
    assert len(read) == 2 * (len(datasets) + 1)
    return read


def test_nothing_is_cut(found: dict[str, dict[str, list[str]]]) -> None:
    assert {page: each["cut"] for page, each in found.items() if each["cut"]} == {}


def test_no_text_is_below_eleven_pixels(found: dict[str, dict[str, list[str]]]) -> None:
    assert {page: each["small"] for page, each in found.items() if each["small"]} == {}
