"""What a cluster run leaves: its Dataset, the file, the summary."""

from __future__ import annotations

from pathlib import Path

import pytest
import xarray as xr
import yaml

import kvsweep
from kvsweep.cluster.inputs.config import parse_config
from kvsweep.cluster.outcome.summary import RESOURCES, bottleneck, objectives, summarize
from kvsweep.errors import InputError
from kvsweep.results.names import NAMES
from kvsweep.results.netcdf import write_netcdf
from tests.cluster.samples import COPY, STEP, TOKEN, cluster, pages, profile, trace

REQUESTS = [(0.1 * i, 1000 + i, 5, pages(0, 15)) for i in range(20)]


@pytest.fixture(scope="module")
def run() -> xr.Dataset:
    config = cluster(prefill={"count": 2}, slo={"ttft_seconds": 0.5})
    return kvsweep.cluster.run(trace(REQUESTS), config, profile())


def test_dims_variables_and_units(run: xr.Dataset) -> None:
    assert dict(run.sizes) == {"request": 20, "tier": 3, "cause": 7, "window": 1, "worker": 3}
    assert set(run.variables) <= set(NAMES)
    for name, variable in run.variables.items():
        assert variable.attrs["long_name"] and variable.attrs.get("units", "") == NAMES[str(name)].units
    assert run["worker"].values.tolist() == ["prefill0", "prefill1", "decode0"]
    assert run["worker_role"].values.tolist() == ["prefill", "prefill", "decode"]
    assert set(run["decode_worker"].values) == {2}


def test_attributes_say_what_the_figures_rest_on(run: xr.Dataset) -> None:
    assert run.attrs["kvsweep_fidelity"] == "paper" and run.attrs["kvsweep_profile_kind"] == "assumed"
    assert "visible on completion" in run.attrs["comment"]
    assert run.attrs["kvsweep_trace"] == "by hand"
    again = parse_config(yaml.safe_load(run.attrs["kvsweep_config"]), "attrs")
    assert again == cluster(prefill={"count": 2}, slo={"ttft_seconds": 0.5})


def test_tokens_and_bytes_are_conserved(run: xr.Dataset) -> None:
    hits = run["hit_tokens"].sum("tier")
    assert (hits + run["uncached_tokens"] == run["prompt_tokens"]).all()
    assert run["delivered_tokens"].sum() == run["output_tokens"].sum()
    assert run["completed_requests"].sum() == 20 and run["outstanding"].values[-1] == 0
    page_bytes = 64_000
    assert run["bytes_in"].sel(worker="decode0", tier="l1") == page_bytes * 16 * 20
    assert run["bytes_out"].sel(tier="l1").sum() == run["bytes_in"].sum() - run["bytes_out"].sel(tier="l2").sum()


def test_latencies_follow_from_times(run: xr.Dataset) -> None:
    after_the_first = run["tpot"] * (run["output_tokens"] - 1)
    assert run["e2e"].values == pytest.approx((run["ttft"] + after_the_first).values)
    alone = 1000 * TOKEN + 16 * COPY + STEP
    assert run["ttft"].values[0] == pytest.approx(alone)
    assert run["utilization"].sel(worker="decode0") < 1.0


def test_a_file_is_the_same_bytes_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")
    for name in ("a.nc", "b.nc"):
        write_netcdf(kvsweep.cluster.run(trace(REQUESTS), cluster(), profile()), tmp_path / name)
    assert (tmp_path / "a.nc").read_bytes() == (tmp_path / "b.nc").read_bytes()
    with kvsweep.open(tmp_path / "a.nc") as ds:
        assert summarize(ds)["cpu_seconds"] is None and len(ds["request"]) == 20


@pytest.mark.parametrize(("block", "said"), [(64, ""), (128, "shared as whole blocks of 128"), (32, "of blocks of 32")])
def test_what_pages_are_made_of_is_noted(block: int, said: str) -> None:
    ds = kvsweep.cluster.run(trace([(0.0, 300, 1, (1, 2))], page=block), cluster(), profile())
    assert said in ds.attrs["kvsweep_trace_notes"] if said else "pages" not in ds.attrs["kvsweep_trace_notes"]


def test_windows_are_as_many_as_the_run_needs() -> None:
    made = trace([(0.0, 64, 1, ()), (200.0, 64, 3, ())])
    ds = kvsweep.cluster.run(made, cluster(window_seconds=0.001), profile())
    assert ds.sizes["window"] == 200_005
    assert ds["delivered_tokens"].sum() == 4 and ds["outstanding"].max() == 1


def test_summary_has_the_fixed_names(run: xr.Dataset) -> None:
    found = summarize(run, {"ttft": 0.5, "tpot": 1.0})
    assert list(found) == [
        "requests", "rejected", "ttft_seconds", "tpot_seconds", "e2e_seconds", "hit_ratio", "hit_tokens",
        "uncached_tokens", "goodput", "utilization", "simulated_seconds", "cpu_seconds", "extrapolated_ratio",
        "bottleneck",
    ]  # fmt: skip
    assert set(found["hit_tokens"]) == {"l1", "l2", "l3"}
    assert list(found["ttft_seconds"]) == ["mean", "p50", "p90", "p95", "p99"]
    assert found["goodput"] == pytest.approx(20 / found["simulated_seconds"])
    assert "goodput" not in summarize(run)
    assert objectives(run) == {"ttft": 0.5}
    assert found["hit_ratio"] == pytest.approx(float(run["hit_tokens"].sum() / run["prompt_tokens"].sum()))


def test_a_run_that_rejects_all_has_no_latencies() -> None:
    ds = kvsweep.cluster.run(trace([(0.0, 1000, 1, ())]), cluster(prefill={"device_tokens": 64}), profile())
    found = summarize(ds)
    assert (found["rejected"], found["hit_ratio"], found["bottleneck"]) == (1, None, "none")
    assert found["ttft_seconds"]["p95"] is None


def test_waiting_for_decode_kv_behind_a_busy_prefill_worker_is_waiting_for_that() -> None:
    """More KV changes nothing: prefill computes without a pause either way."""
    requests = [(0.1 * i, 8000, 2, pages(1000 * i, 125)) for i in range(60)]
    slow = profile(prefill={"boundary": "whole", "token_seconds": 5e-5})
    few, many = (
        kvsweep.cluster.run(trace(requests), cluster({}, {"device_tokens": tokens}, fidelity="engine"), slow)
        for tokens in (70_400, 704_000)
    )
    waits = few["queue_delay"].sum("request")
    assert str(waits.idxmax().values) == "decode_capacity" and float(waits.sel(cause="prefill")) > 0.0
    assert few["ttft"].values == pytest.approx(many["ttft"].values, rel=0.02)
    assert bottleneck(few) == bottleneck(many) == "prefill"


@pytest.mark.parametrize(
    ("prefill", "decode", "gap", "cause"),
    [
        ({"chunk_tokens": 64}, {}, 0.0, "handoff"),
        ({"max_running": 1}, {}, 0.0, "prefill_slots"),
        ({"device_tokens": 1088}, {}, 0.0, "prefill_capacity"),
        ({}, {"device_tokens": 1280}, 0.0, "decode_capacity"),
        ({}, {"max_running": 1}, 0.0, "decode"),
        ({}, {}, 10.0, "none"),
    ],
)
def test_the_bottleneck_is_what_slow_requests_waited_for(prefill: dict, decode: dict, gap: float, cause: str) -> None:
    requests = [(gap * i, 1000, 200, pages(100 * i, 15)) for i in range(12)]
    ds = kvsweep.cluster.run(trace(requests), cluster(prefill, decode), profile())
    assert bottleneck(ds) == cause and cause in RESOURCES
    delays = ds["queue_delay"].values
    assert (delays >= 0.0).all()


def test_queue_delays_and_service_add_up_to_the_time_to_the_first_token() -> None:
    requests = [(0.001 * i, 1000, 50, pages(100 * i, 15)) for i in range(30)]
    ds = kvsweep.cluster.run(trace(requests), cluster({"device_tokens": 4096}, {"max_running": 4}), profile())
    waits = ds["queue_delay"].sum("cause").values
    step = ds["prefill_end"].values - ds["prefill_start"].values
    assert ds["ttft"].values == pytest.approx(waits + step + 16 * COPY + STEP)


def test_only_cluster_runs_can_be_summed_up() -> None:
    with pytest.raises(InputError, match="not a cluster run"):
        summarize(xr.Dataset())
