"""The analytic model beside the cluster: on a lone request they agree where both mean the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import kvsweep
from kvsweep.errors import InputError
from kvsweep.report.studies.analytic_page import answer, render_analytic
from kvsweep.studies.shipped.analytic import beside
from tests.cli_runner import done, refused
from tests.cluster.samples import cluster, pages, path, profile, trace

LAYERS = 4


def lone(fidelity: str = "paper") -> xr.Dataset:
    """Return a prompt that comes back after another took its room on the device, alone each time."""
    requests = [(0.0, 64 * 20, 1, pages(0, 20)), (100.0, 64 * 30, 1, pages(50, 30)), (200.0, 64 * 24, 1, pages(0, 24))]
    config = cluster({"device_tokens": 64 * 32}, slo={"ttft_seconds": 1.0}, fidelity=fidelity)
    return beside(trace(requests), config, profile(h2d=path(setup_seconds=1e-4), n_layers=LAYERS))


def test_alone_the_cluster_meets_the_serial_prediction() -> None:
    ds = lone()
    assert ds.sizes["request"] == 1 and float(ds["host_pages"][0]) == 18
    for policy in ("default_policy", "all_compute"):
        one = ds.sel(policy=policy).isel(request=0)
        assert float(one["simulated_wait"]) == pytest.approx(0.0, abs=1e-12)
        assert float(one["simulated_time"]) == pytest.approx(float(one["predicted_serial_time"]), rel=1e-6)
        assert float(one["predicted_reassigned"]) == float(one["simulated_reassigned"])
    assert float(ds["predicted_time"].sel(policy="default_policy")[0]) == pytest.approx(1e-4 + 18e-3)
    assert float(ds["simulated_reassigned"].sel(policy="all_compute")[0]) == 18


def test_alone_an_engine_overlaps_all_but_a_layer() -> None:
    """What is loaded and computed at once takes the longer of both, and a layer of the shorter."""
    ds = lone("engine")
    for policy in ("default_policy", "all_compute"):
        one = ds.sel(policy=policy).isel(request=0)
        longer, both = float(one["predicted_time"]), float(one["predicted_serial_time"])
        assert float(one["simulated_wait"]) == pytest.approx(0.0, abs=1e-12)
        assert float(one["simulated_time"]) == pytest.approx(longer + (both - longer) / LAYERS, rel=1e-6)
    assert float(ds["predicted_serial_time"].sel(policy="default_policy")[0]) > longer


def test_predictions_are_the_policies_own() -> None:
    ds = lone()
    balanced, restored = (ds["predicted_time"].sel(policy=name) for name in ("performance_aware", "default_policy"))
    assert (balanced <= restored).all()
    assert np.allclose(ds["simulated_reassigned"], np.round(ds["predicted_reassigned"]), atol=1.0)


def test_the_page_says_who_is_fastest_and_escapes() -> None:
    ds = lone()
    page = render_analytic(ds.assign_attrs(kvsweep_trace="<script>", title="A & B"))
    assert "<script>" not in page and "A &amp; B" in page and answer(ds).startswith("Fastest by the analytic model")
    assert "data:image/png;base64," in page and "default-src" in page
    assert "the serial column is the prediction" in page and "cluster over serial" in page
    page = render_analytic(lone("engine"))
    assert "the overlapped column is the prediction" in page and "cluster over overlapped" in page


def test_what_cannot_be_compared_is_one_line() -> None:
    requests = [(0.0, 640, 1, pages(0, 10))]
    with pytest.raises(InputError, match="slo: ttft_seconds: missing"):
        beside(trace(requests), cluster(), profile())
    with pytest.raises(InputError, match="no request found KV on the host"):
        beside(trace(requests), replace(cluster(slo={"ttft_seconds": 1.0})), profile())


@pytest.mark.parametrize("fidelity", ["paper", "engine"])
def test_the_command(fidelity: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done("trace", "generate", "--preset", "qa", "--sessions", "120", "-o", "trace.jsonl", "-q")
    rows = json.loads(done("study", "analytic", "--trace", "trace.jsonl", "-o", "page.html", "--data", "a.nc",
                           "--fidelity", fidelity, "--format", "json", "-q").stdout)  # fmt: skip
    assert {row["policy"] for row in rows} >= {"default_policy", "all_compute", "performance_aware"}
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")
    with kvsweep.open(tmp_path / "a.nc") as ds:
        assert ds.attrs["kvsweep_result"] == "analytic_beside_cluster"
        assert ds.attrs["kvsweep_fidelity"] == fidelity
    assert "page.html exists" in refused("study", "analytic", "-o", "page.html", "-q")
    assert "does not end in .html" in refused("study", "analytic", "-o", "page.pdf", "-q")
    assert "--ttft: 0; allowed" in refused("study", "analytic", "--ttft", "0", "-q")
