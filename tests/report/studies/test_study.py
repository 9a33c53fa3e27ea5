"""The page of a cluster study: what it holds, and that a browser shows it."""

from __future__ import annotations

import gzip
import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import kvsweep
from kvsweep.errors import InputError
from kvsweep.report import write_report
from kvsweep.report.studies.study_page import render_study
from kvsweep.report.studies.study_payload import BEST, FAR, NEARLY, NO_RESULT, choices_of, pack_study, states
from kvsweep.results.netcdf import write_netcdf
from tests.cli_runner import done, refused
from tests.studies.samples import study

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def ds() -> xr.Dataset:
    axes = {"gateway": ["round_robin", "session_affinity"], "host_tokens": [0, 262144], "seed": [0, 1],
            "ttl": [1, 60, float("inf")]}  # fmt: skip
    return kvsweep.cluster.sweep(study(axes=axes, slo={"ttft_seconds": 1.0}, title="A <b>study</b> & more"))


def test_planes_are_the_figures_averaged_over_seeds(ds: xr.Dataset) -> None:
    payload = pack_study(ds)
    spec = payload.header["planes"]["ttft_p95.1"]
    values = np.frombuffer(
        gzip.decompress(payload.planes["ttft_p95.1"]), dtype={"f8": "<f8", "f4": "<f4"}[spec["type"]]
    )
    wanted = ds["ttft"].sel(statistic="p95", gateway="session_affinity").mean("seed")
    shape = [len(dim["values"]) for dim in payload.header["dims"] if dim["name"] in spec["dims"]]
    assert np.allclose(values.reshape(shape), wanted) and payload.header["axes"] == ["ttl", "host_tokens"]
    assert payload.header["dims"][1]["values"] == ["1", "60", "never"]
    assert {"attained_0", "goodput_0", "held_l2"} <= set(payload.header["views"])


def test_states_are_best_near_slower_and_none() -> None:
    mean = np.array([[1.0, 2.0, np.nan, np.nan], [1.04, 2.0, 3.0, np.nan], [1.06, 9.0, 3.1, np.nan]])
    assert states(mean).tolist() == [
        [BEST, BEST, NO_RESULT, NO_RESULT], [NEARLY, BEST, BEST, NO_RESULT], [FAR, FAR, NEARLY, NO_RESULT],
    ]  # fmt: skip


def test_the_answer_is_a_sentence(ds: xr.Dataset) -> None:
    header = pack_study(ds).header
    assert "the least mean TTFT in" in header["headline"][0] and "means over 2 seeds" in header["headline"][-1]
    counts = np.array(header["counts"])
    assert (counts.sum(axis=1) == 6).all() and sum(header["sufficient"]) == 6


def test_texts_of_the_file_are_escaped(ds: xr.Dataset) -> None:
    page = render_study(ds.assign_attrs(kvsweep_failures="'<script>alert(1)</script>': '</td><b>'"))
    assert (
        "<script>alert" not in page
        and "A &lt;b&gt;study&lt;/b&gt; &amp; more" in page
        and "&lt;/td&gt;&lt;b&gt;" in page
    )


def test_a_study_without_choices_or_axes_has_one_map() -> None:
    one = kvsweep.cluster.sweep(study(axes={"host_tokens": [0, 262144]}))
    header = pack_study(one).header
    assert [policy["label"] for policy in header["policies"]] == ["This study"] and header["simplest"] is None
    assert [dim["name"] for dim in header["dims"]] == ["host_tokens", "cell"]
    single = kvsweep.cluster.sweep(study(axes={}))
    assert len(pack_study(single).header["dims"]) == 2


def test_too_many_choices_become_axes(ds: xr.Dataset) -> None:
    wide = xr.concat([ds.assign_coords(eviction=name) for name in "abcde"], "eviction", data_vars="all",
                     coords="minimal", compat="override").assign_attrs(ds.attrs)  # fmt: skip
    choices, chosen = choices_of(wide)
    assert chosen == ["gateway"] and len(choices) == 2


def test_what_cannot_be_shown_is_one_line(ds: xr.Dataset, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="6 grid points .* are more than the budget of 5"):
        pack_study(ds, 5)
    with pytest.raises(InputError, match="no simulation of this study has a result"):
        pack_study(ds.assign(ttft=ds["ttft"] * np.nan))
    (tmp_path / "a.nc").write_text("")
    assert "not a NetCDF file" in refused("report", tmp_path / "a.nc")


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (apt-get install chromium)")
def test_a_browser_shows_it(ds: xr.Dataset, tmp_path: Path) -> None:
    lost = ds.assign(ttft=ds["ttft"].where((ds["ttl"] > 1) | (ds["host_tokens"] > 0))).assign_attrs(ds.attrs)
    write_netcdf(lost, tmp_path / "study.nc")
    done("report", tmp_path / "study.nc", "-o", tmp_path / "study.html")
    for view in ("verdict", "ttft_mean"):
        address = f"file://{tmp_path / 'study.html'}#view={view}&x=ttl&y=host_tokens&at=1.2"
        command = [
            str(CHROMIUM),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--virtual-time-budget=5000",
            "--dump-dom",
        ]
        seen = subprocess.run([*command, address], capture_output=True, text=True, timeout=120, check=True).stdout
        assert 'data-ready="true"' in seen
        mean = ds["ttft"].sel(statistic="mean", ttl=np.inf, host_tokens=262144).mean("seed")
        for index, gateway in enumerate(ds["gateway"].values):
            cell = re.search(rf'id="kv-cursor-ttft_mean-{index}"[^>]*><data value="([^"]+)"', seen)
            assert cell and float(cell[1]) == pytest.approx(float(mean.sel(gateway=gateway)), rel=1e-12)
        assert "Least mean TTFT" in seen and "The maps cannot be shown" not in html.unescape(seen).split("<script")[0]


def test_the_page_makes_no_request(ds: xr.Dataset, tmp_path: Path) -> None:
    write_report(ds, tmp_path / "study.html")
    page = (tmp_path / "study.html").read_text()
    assert "default-src 'none'" in html.unescape(page) and not re.search(r'(src|href)="(?!data:)', page)
    header = re.search(r'id="kv-header">(.*?)</script>', page, re.S)
    assert header and json.loads(header[1])["format"] == 1
