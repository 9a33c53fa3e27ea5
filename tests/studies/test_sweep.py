"""Studies of whole clusters: cells equal single runs, nothing is lost to a kill, failures are told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import yaml

import kvsweep
from kvsweep.cluster.inputs.config import parse_config
from kvsweep.cluster.inputs.presets import cluster_file
from kvsweep.cluster.outcome.dataset import Told
from kvsweep.cluster.outcome.vllm import CAUSES
from kvsweep.errors import InputError, ResultError
from kvsweep.results.analysis.studies import alike, over_seeds, table
from kvsweep.studies.axes import set_field
from kvsweep.studies.metrics import ONLY_SOME, SHAPES, is_record, measure
from kvsweep.studies.running.cells import cells
from kvsweep.studies.running.run import Show, run_study
from kvsweep.studies.study import parse_study, study_mapping
from kvsweep.studies.traces import MadeTrace
from kvsweep.trace.convert import scale_time
from kvsweep.trace.generate import generate
from kvsweep.trace.model import Trace
from kvsweep.yamlfile import read_yaml_mapping
from tests.cli_runner import done, refused, run
from tests.studies import samples as study_samples
from tests.studies.samples import FIDELITIES, cluster, study, written

SLO = {"ttft_seconds": 1.0, "tpot_seconds": 0.02}
STEPS = "h100-sxm-llama-3.1-8b"
"""A step profile that comes with kvsweep."""


def same(a: xr.Dataset, b: xr.Dataset) -> bool:
    """Return whether all values and coordinates are equal, the time it took left out."""
    return a.drop_attrs().equals(b.drop_attrs())


def of_dataset(ds: xr.Dataset) -> Told:
    """Return what the Dataset of a run says, as a study measures it."""
    config = read_yaml_mapping(ds.attrs["kvsweep_config"].encode(), "config")
    return Told({str(name): ds[name].values for name in ds.variables}, {**ds.attrs, "kvsweep_config": config})


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_every_cell_is_the_single_run_bit_for_bit(fidelity: str) -> None:
    axes = {
        "gateway": ["random", "session_affinity"], "ttl": [5, float("inf")], "n_prefill": [1, 3], "seed": [0, 7],
        "rate_scale": [1, 2.5], "prefill.max_running": [2, 32],
    }  # fmt: skip
    values = study(axes=axes, slo=SLO, cluster=cluster(fidelity=fidelity))
    ds = kvsweep.cluster.sweep(values)
    assert dict(ds.sizes) | {"statistic": 5, "tier": 3} == dict(ds.sizes)
    assert list(ds["cell_state"].dims) == [
        "gateway", "n_prefill", "prefill_max_running", "ttl", "rate_scale", "seed",
    ]  # fmt: skip
    limits = {"slo": {"ttft": 1.0, "tpot": 0.02}}
    for place in np.ndindex(*ds["cell_state"].shape):
        one = ds.isel(dict(zip(ds["cell_state"].dims, place, strict=True)))
        seed, ttl = int(one["seed"]), float(one["ttl"])
        config = cluster(int(one["n_prefill"]), fidelity=fidelity)
        config["gateway"] = {**config["gateway"], "policy": str(one["gateway"].values), "seed": seed}
        config["workers"][0]["max_running"] = int(one["prefill_max_running"])
        config["retention"] = {"policy": "none"} if np.isinf(ttl) else {"policy": "idle_ttl", "seconds": ttl}
        trace = generate("coding", 6, seed, turns=6, request_rate=0.5)
        trace = scale_time(trace, 1.0 / float(one["rate_scale"]))
        single = measure(of_dataset(kvsweep.cluster.run(trace, config, study_samples.profile())), limits)
        for name in SHAPES.keys() - ONLY_SOME:
            assert np.array_equal(one[name].values, np.array(single[name]), equal_nan=True), (name, place)


def test_every_cell_of_vllm_workers_is_the_single_run_bit_for_bit() -> None:
    worker = {"role": "vllm", "tp": 1, "n_blocks": 4000, "max_sequences": 4}
    axes = {"gateway": ["random", "cache_aware"], "n_vllm": [1, 2], "vllm.token_budget": [512, 2048],
            "rate_scale": [1, 20], "seed": [0, 7]}  # fmt: skip
    ds = kvsweep.cluster.sweep(study(cluster={"workers": [worker]}, profile=STEPS, axes=axes, slo=SLO))
    for place in np.ndindex(*ds["cell_state"].shape):
        one = ds.isel(dict(zip(ds["cell_state"].dims, place, strict=True)))
        group = worker | {"count": int(one["n_vllm"]), "token_budget": int(one["vllm_token_budget"])}
        config = {"workers": [group], "gateway": {"policy": str(one["gateway"].values), "seed": int(one["seed"])}}
        trace = generate("coding", 6, int(one["seed"]), turns=6, request_rate=0.5)
        trace = scale_time(trace, 1.0 / float(one["rate_scale"]))
        single = measure(of_dataset(kvsweep.cluster.run(trace, config, STEPS)), {"slo": {"ttft": 1.0, "tpot": 0.02}})
        for name in SHAPES.keys() - ONLY_SOME:
            assert np.array_equal(one[name].values, np.array(single[name]), equal_nan=True), (name, place)
    assert len(np.unique(ds["e2e"].sel(statistic="mean"))) > 16 and ds["cause"].values.tolist() == list(CAUSES)
    assert float(ds["queue_delay"].sel(cause="sequences").max()) > 0


def test_vllm_workers_have_no_oracle() -> None:
    """They evict by their own rule: with belady in the file they run as without, which is no reference."""
    values = study(cluster={"workers": [{"role": "vllm", "tp": 1, "n_blocks": 4000}]}, profile=STEPS, axes={})
    assert "oracle_uncached_tokens" not in kvsweep.cluster.sweep(values)
    with pytest.raises(InputError, match="regret: true; vllm workers evict by their own rule"):
        kvsweep.cluster.sweep(values | {"regret": True})


def test_fidelity_is_an_axis_of_a_cluster_file_with_all_options_written_out() -> None:
    full = yaml.safe_load(cluster_file("full", 2, 2, "engine"))
    ds = kvsweep.cluster.sweep(study(cluster=full, axes={"fidelity": ["paper", "engine"]}))
    trace = generate("coding", 6, 0, turns=6, request_rate=0.5)
    for fidelity, config in (("paper", cluster()), ("engine", full)):
        single = kvsweep.cluster.run(trace, config, study_samples.profile())
        mean = float(single["e2e"].mean())  # summed up in another order
        assert float(ds["e2e"].sel(fidelity=fidelity, statistic="mean")) == pytest.approx(mean, rel=1e-14)
    assert float(ds["e2e"].sel(statistic="mean").diff("fidelity")[0]) != 0.0


def test_the_shared_pool_is_an_axis_and_0_is_none() -> None:
    full = yaml.safe_load(cluster_file("full", 1, 2, "engine"))
    full["workers"][0] |= {"device_tokens": 32_768, "host_tokens": 65_536}
    trace = {"generate": "qa", "sessions": 20, "turns": 6}
    ds = kvsweep.cluster.sweep(study(cluster=full, trace=trace, axes={"l3_tokens": [0, 10_000_000]}))
    assert ds["l3_tokens"].values.tolist() == [0, 10_000_000] and ds["l3_tokens"].attrs["units"] == "1"
    for tokens in (0, 10_000_000):
        config = full if not tokens else {**full, "l3": {"pool_tokens": tokens}}
        single = kvsweep.cluster.run(generate("qa", 20, 0, turns=6), config, study_samples.profile())
        written = single["bytes_in"].sel(tier="l3").sum()
        assert float(ds["bytes_in"].sel(l3_tokens=tokens, tier="l3")) == float(written)
        assert float(ds["ttft"].sel(l3_tokens=tokens, statistic="mean")) == float(single["ttft"].mean())
    assert float(ds["bytes_in"].sel(l3_tokens=10_000_000, tier="l3")) > 0


def test_dims_are_in_a_fixed_order_and_one_value_is_no_dim() -> None:
    axes = {"seed": [0, 1], "host_tokens": [0, 65536], "window_seconds": [5, 10], "page_size": 64, "gateway": "random"}
    ds = kvsweep.cluster.sweep(study(axes=axes))
    assert list(ds["token_hit_ratio"].dims) == ["host_tokens", "window_seconds", "seed"]
    assert int(ds["page_size"]) == 64 and str(ds["gateway"].values) == "random" and str(ds["trace"].values) == "coding"
    assert ds["window_seconds"].attrs["units"] == "s"
    for name in ds.variables:
        assert ds[name].attrs["long_name"] and ("units" in ds[name].attrs or ds[name].dtype.kind in "OUT")


def test_the_resolved_study_in_the_file_is_the_study() -> None:
    ds = kvsweep.cluster.sweep(study(axes={"prefill.max_running": [2, 4], "ttl": [1, float("inf")]}, slo=[SLO]))
    again = kvsweep.cluster.sweep(read_yaml_mapping(ds.attrs["kvsweep_config"].encode(), "again"))
    assert same(again, ds)


def test_links_profiles_and_traces_are_axes(tmp_path: Path) -> None:
    qa = {"generate": "qa", "sessions": 4, "label": "papers"}
    values = study(
        axes={"link": ["rdma-400g", "rdma-100g"]}, trace=[qa, study()["trace"]],
        profile=[{"model": "qwen3-8b", "gpu": "l20z", "tp": 2}, {"model": "qwen3-32b", "gpu": "l20z", "tp": 2}],
    )  # fmt: skip
    ds = kvsweep.cluster.sweep(values)
    assert dict(ds["ttft"].sizes) == {"profile": 2, "trace": 2, "link": 2, "statistic": 5}
    assert ds["trace"].values.tolist() == ["papers", "coding"]
    mean = ds["ttft"].sel(statistic="mean")
    assert (mean.sel(link="rdma-100g") > mean.sel(link="rdma-400g")).all()
    assert (mean.sel(profile="qwen3-32b") > mean.sel(profile="qwen3-8b")).all()


def test_a_request_rate_is_the_rate() -> None:
    ds = kvsweep.cluster.sweep(study(axes={"request_rate": [0.1, 0.4]}))
    spans = ds["requests"] / ds["simulated_seconds"]
    assert spans.sel(request_rate=0.4) > 3 * spans.sel(request_rate=0.1)


def test_combinations_that_cannot_be_are_told_and_left_empty(tmp_path: Path) -> None:
    path = written(tmp_path, axes={"page_size": [64, 32], "chunk_tokens": [4096, 96]})
    result = run("cluster", "sweep", path, "-o", tmp_path / "study.nc")
    assert result.exit_code == 1
    lines = result.stderr.strip().splitlines()
    assert "1 of 4 simulations failed; the others are whole" in lines[-1]
    assert any("page_size=64, chunk_tokens=96: cluster: chunk_tokens: 96; allowed: multiples" in line for line in lines)
    with kvsweep.open(tmp_path / "study.nc") as ds:
        assert ds["cell_state"].values.tolist() == [[1, 2], [1, 1]]
        assert np.isnan(ds["ttft"].isel(page_size=0, chunk_tokens=1)).all()
        assert np.isfinite(ds["ttft"].isel(page_size=1, chunk_tokens=1)).all()
        assert ds.attrs["kvsweep_failed"] == 1 and ds["bottleneck"].values[0, 1] == -1


def test_a_failing_simulation_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvsweep.studies.running import run as module

    real = module.finish

    def failing(trace: Any, config: Any, *arguments: Any, **options: Any) -> Any:
        if config.gateway.policy == "session_affinity":
            raise ResultError("no progress")
        return real(trace, config, *arguments, **options)

    monkeypatch.setattr(module, "finish", failing)
    ds = kvsweep.cluster.sweep(study())
    assert ds["cell_state"].values.tolist() == [[1, 1], [2, 2]]
    assert "no progress" in ds.attrs["kvsweep_failures"]
    with pytest.raises(ResultError, match="no simulation of the study could be run: no progress"):
        kvsweep.cluster.sweep(study(axes={"gateway": "session_affinity"}))


def test_a_kill_loses_nothing_and_the_end_is_the_same(tmp_path: Path) -> None:
    """SIGKILL in the middle, a torn last line, and the study goes on to the values of an uninterrupted one."""
    (tmp_path / "whole").mkdir()
    axes = {"ttl": "1:20:1", "host_tokens": [0, 262144, 524288]}
    trace = {"generate": "coding", "sessions": 25, "turns": 30, "request_rate": 0.5}
    path = written(tmp_path, axes=axes, trace=trace)
    done("cluster", "sweep", path, "-o", tmp_path / "whole" / "study.nc", "-q")
    output, journal = tmp_path / "study.nc", tmp_path / "study.nc.journal"
    command = [sys.executable, "-m", "kvsweep", "cluster", "sweep", str(path), "-o", str(output), "-q"]
    process = subprocess.Popen(command, env=dict(os.environ))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (journal.exists() and journal.read_bytes().count(b"\n") > 5):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    lines = journal.read_bytes().splitlines(keepends=True)
    assert 5 < len(lines) < 61
    journal.write_bytes(b"".join(lines[:-1]) + lines[-1][:40])
    resumed = run("cluster", "sweep", path, "-o", output)
    assert resumed.exit_code == 0 and f"resuming: {len(lines) - 2} of 60 simulations are done" in resumed.stderr
    assert not journal.exists()
    with kvsweep.open(output) as a, kvsweep.open(tmp_path / "whole" / "study.nc") as b:
        assert same(a.load(), b.load())


def test_what_is_done_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An axis that grew, too: cells are known by what they are, not by their place."""
    from kvsweep.studies.running import run as module

    path, output = written(tmp_path), tmp_path / "study.nc"
    with monkeypatch.context() as patch:
        patch.setattr(module, "study_dataset", lambda outcome: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run("cluster", "sweep", path, "-o", output).exit_code == 130
    calls: list[int] = []
    real = module.finish
    monkeypatch.setattr(module, "finish", lambda *a, **k: calls.append(len(a[0])) or real(*a, **k))
    written(tmp_path, axes={"gateway": ["session_affinity", "round_robin", "random"], "host_tokens": [0, 262144]})
    partial = tmp_path / "study.nc"
    assert "2 of 6 simulations pending" in done("cluster", "sweep", path, "-o", partial, "--partial").stderr
    with kvsweep.open(output) as ds:
        assert ds["cell_state"].values.tolist() == [[1, 1], [1, 1], [0, 0]]
    assert "resuming: 4 of 6" in done("cluster", "sweep", path, "-o", output).stderr
    assert len([length for length in calls if length > 1]) == 2


def test_policies_from_files_and_closed_loops_are_axes(tmp_path: Path) -> None:
    gateway = 'kind, name = "gateway", "fewest_pages"\ndef cost(ctx):\n    return ctx.load_pages + ctx.draw\n'
    (tmp_path / "fewest.py").write_text(gateway)
    axes = {"gateway": ["round_robin", "fewest_pages"], "workload.mode": ["open", "closed"]}
    path, output = written(tmp_path, axes=axes), tmp_path / "study.nc"
    assert "no 'fewest_pages'" in refused("cluster", "sweep", path, "-q")
    done("cluster", "sweep", path, "-o", output, "-q", "--policy-file", tmp_path / "fewest.py")
    with kvsweep.open(output) as ds:
        assert ds["ttft"].dims == ("gateway", "workload_mode", "statistic") and np.isfinite(ds["ttft"]).all()
        assert len(np.unique(ds["e2e"].sel(statistic="mean").values)) == 4


def test_a_journal_cut_anywhere_keeps_its_whole_lines(tmp_path: Path) -> None:
    from kvsweep.studies.running.journal import Journal, read_journal

    path = tmp_path / "a.journal"
    records = {f"key{i}": {"figures": {"x": [1 / 3, float("nan"), 1e-300]}, "seconds": float(i)} for i in range(5)}
    with Journal(path) as journal:
        for key, record in records.items():
            journal.add(key, dict(record))
    whole = path.read_bytes()
    ends = [index + 1 for index, byte in enumerate(whole) if byte == 10]
    for cut in range(ends[0], len(whole) + 1):
        path.write_bytes(whole[:cut])
        found, good = read_journal(path)
        assert good == max(end for end in ends if end <= cut)
        assert repr(found) == repr(dict(list(records.items())[: ends.index(good)]))
    path.write_bytes(whole[: ends[2]] + whole[ends[2] :].replace(b"0.333", b"0.334", 1))
    # A line damaged in the middle costs its own cell alone, and what is added next is whole.
    assert list(read_journal(path)[0]) == ["key0", "key1", "key3", "key4"]
    with Journal(path) as journal:
        journal.add("key2", dict(records["key2"]))
    assert set(read_journal(path)[0]) == set(records)
    deep = b"[" * 100_000
    path.write_bytes(whole[: ends[0]] + f"{zlib.crc32(deep):08x} ".encode() + deep + b"\n" + whole[ends[0] :])
    assert repr(read_journal(path)[0]) == repr(records)


FORGERIES: list[Any] = [
    lambda record: {"figures": {}}, lambda record: record | {"figures": 7}, lambda record: record | {"labels": None},
    lambda record: record | {"labels": {**record["labels"], "slo": ["x"]}},
    lambda record: record | {"labels": {"tier": ["l1", "l2", "l4"], "cause": record["labels"]["cause"]}},
    lambda record: record | {"seconds": "long"}, lambda record: {"failed": {"why": 1}},
    *(lambda record, name=name, value=value: record | {"figures": {**record["figures"], name: value}}
      for name, value in [("ttft", 1.0), ("ttft", [1.0] * 4), ("goodput", [1.0, 2.0]), ("goodput", ["x"]),
                          ("gpus", None), ("gpus", True), ("gpus", 10**400), ("bottleneck", 9.0), ("bottleneck", 0.5),
                          ("bottleneck", float("nan")), ("evictions", [[1.0]] * 3), ("more", 1.0)]),
]  # fmt: skip


@pytest.mark.parametrize("forge", FORGERIES)
def test_a_record_that_no_simulation_left_costs_its_own_cell(
    forge: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its line is whole and its checksum right, but not what it says."""
    from kvsweep.studies.running import run as module
    from kvsweep.studies.running.journal import Journal, journal_path

    path, output = written(tmp_path, slo=SLO), tmp_path / "study.nc"
    with monkeypatch.context() as patch:
        patch.setattr(module, "study_dataset", lambda outcome: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run("cluster", "sweep", path, "-o", output, "-q").exit_code == 130
    with Journal(journal_path(output)) as journal:
        key, record = next(iter(journal.records.items()))
        journal.add(key, forge(record))
    assert "1 of 4 simulations pending" in done("cluster", "sweep", path, "-o", output, "--partial").stderr
    assert "resuming: 3 of 4" in done("cluster", "sweep", path, "-o", output).stderr
    with kvsweep.open(output) as ds:
        assert same(ds.load(), kvsweep.cluster.sweep(study(slo=SLO)))


@pytest.mark.parametrize("workers", ["paper", "engine", "vllm"])
def test_what_a_simulation_leaves_is_such_a_record(workers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from kvsweep.studies.running import run as module

    values = study(slo=[SLO, {"e2e_seconds": 9}])
    if workers == "vllm":
        values |= {"cluster": {"workers": [{"role": "vllm", "tp": 1, "n_blocks": 4000}]}, "profile": STEPS, "axes": {}}
    else:
        values["cluster"] = cluster(fidelity=workers, retention={"policy": "hazard_ttl"})
    seen: list[Any] = []
    monkeypatch.setattr(module, "study_dataset", seen.append)
    kvsweep.cluster.sweep(values)
    records = json.loads(json.dumps(seen[0].records))
    assert records and all(is_record(record, 2) and not is_record(record, 1) for record in records.values())


def test_one_process_at_a_time(tmp_path: Path) -> None:
    from kvsweep.studies.running.journal import Journal, journal_path

    path, output = written(tmp_path), tmp_path / "study.nc"
    with Journal(journal_path(output)):
        assert "another process writes this study" in refused("cluster", "sweep", path, "-o", output, "-q")


def test_a_file_that_is_no_journal_is_left_alone(tmp_path: Path) -> None:
    journal = tmp_path / "study.nc.journal"
    journal.write_text("my notes\n" * 20)
    assert "is no journal" in refused("cluster", "sweep", written(tmp_path), "-o", tmp_path / "study.nc", "-q")
    assert journal.read_text() == "my notes\n" * 20


def test_requests_of_chosen_cells_are_kept(tmp_path: Path) -> None:
    keep = [{"gateway": "session_affinity", "host_tokens": 0}]
    path, output = written(tmp_path, keep=keep), tmp_path / "study.nc"
    done("cluster", "sweep", path, "-o", output, "-q")
    (kept,) = (tmp_path / "study.cells").iterdir()
    with kvsweep.open(kept) as one, kvsweep.open(output) as ds:
        mean = ds["ttft"].sel(gateway="session_affinity", host_tokens=0, statistic="mean")
        assert float(one["ttft"].mean()) == pytest.approx(float(mean), rel=1e-12)
        assert kept.stem in ds.attrs["kvsweep_kept"]


def test_seeds_become_a_mean_and_an_interval() -> None:
    ds = kvsweep.cluster.sweep(study(axes={"seed": "0:4:1", "gateway": ["random", "round_robin"]}))
    mean, half = over_seeds(ds["token_hit_ratio"])
    values = ds["token_hit_ratio"].sel(gateway="random").values
    assert float(mean.sel(gateway="random")) == pytest.approx(values.mean())
    assert float(half.sel(gateway="random")) == pytest.approx(2.776 * values.std(ddof=1) / np.sqrt(5))
    rows = table(ds)
    assert [row["gateway"] for row in rows] == ["random", "round_robin"] and rows[0]["± hit ratio"] > 0


def test_the_command_prints_and_estimates(tmp_path: Path) -> None:
    path = written(tmp_path, slo=SLO)
    estimate = json.loads(done("cluster", "sweep", path, "--dry-run", "--format", "json").stdout)
    assert estimate["simulations"] == 4 and estimate["seconds"] > 0
    text = done("cluster", "sweep", path, "-q").stdout
    assert "hit ratio" in text and "meets ttft<=1s tpot<=0.02s" in text
    rows = json.loads(done("cluster", "sweep", path, "-q", "--format", "json", "--axis", "ttl=1,inf").stdout)
    assert len(rows) == 8 and {row["ttl"] for row in rows} == {"1", "inf"}
    assert list(tmp_path.iterdir()) == [path]
    done("cluster", "sweep", path, "-q", "--report", tmp_path / "study.html")
    assert "least mean TTFT" in (tmp_path / "study.html").read_text()
    assert "study.html exists" in refused("cluster", "sweep", path, "-q", "--report", tmp_path / "study.html")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"axs": {}}, "study.yaml: field: no 'axs'; did you mean 'axes'?"),
        ({"axes": {"gatewy": ["random"]}}, "study.yaml: axes: axis: no 'gatewy'; did you mean 'gateway'?"),
        ({"axes": {"gateway": ["rondom"]}}, "axes: gateway: rondom: gateway: policy: no 'rondom'; did you"),
        ({"axes": {"retrieval": ["default"]}}, "axes: retrieval: default: retrieval: policy: no 'default'; did you"),
        ({"axes": {"eviction": ["lru", "lrv"]}}, "axes: eviction: lrv: eviction: policy: no 'lrv'; did you mean 'lr"),
        ({"axes": {"prefill.size": [1]}}, "axes: prefill_size: 1: cluster: workers[0]: field: no 'size'"),
        ({"axes": {"colocated.count": [1]}}, "0 groups of colocated workers in the cluster file; allowed: one"),
        ({"axes": {"ttl": [float("nan")]}}, "axes: ttl: nan is out of range"),
        ({"axes": {"host_tokens": [float("nan")]}}, "axes: host_tokens: nan: cluster: workers[0]: host_tokens: nan is"),
        ({"axes": {"l3_tokens": [10]}}, "axes: l3_tokens: 10: cluster: l3: unknown to fidelity paper"),
        ({"axes": {"l3.stop_policy": ["timeout"]}}, "l3_stop_policy: timeout: cluster: l3: pool_tokens: missing"),
        ({"axes": {"seed": "0:100000000000:1"}}, "axes: seed: '0:100000000000:1' has 1.00e+11 points"),
        ({"axes": {"host_tokens": [True]}}, "axes: host_tokens: True is no point of an axis"),
        ({"axes": {"ttl": [0]}}, "axes: ttl: 0 is out of range; allowed: a number > 1e-06"),
        ({"axes": {"ttl": [1, 1]}}, "axes: ttl: 1.0 is on the axis twice"),
        ({"axes": {"ttl": [1], "retention": ["none"]}}, "axes: ttl sets the retention"),
        ({"axes": {"request_rate": [1], "rate_scale": [1]}}, "request_rate and rate_scale both set arrivals"),
        ({"axes": {"seed": [1], "gateway.seed": [1]}}, "axes: seed sets gateway.seed, too"),
        ({"axes": {"gateway": ["random"], "gateway.policy": ["random"]}}, "axes: gateway is there twice"),
        ({"axes": {"host_tokens": []}}, "axes: host_tokens: the axis has no points"),
        ({"axes": {"host_tokens": [0, "many"]}}, "axes: host_tokens: names and numbers on one axis"),
        ({"axes": {"n_prefill": "1:900000:1", "seed": "0:9:1"}}, "9000000 simulations; allowed: at most 200000"),
        ({"axes": {"link": ["rdma-400"]}}, "axes: link: rdma-400: link: no 'rdma-400'; did you mean 'rdma-400g'?"),
        ({"axes": [1]}, "axes: [1] is not a mapping"),
        ({"trace": "none.jsonl"}, "none.jsonl: No such file"),
        ({"trace": None}, "study.yaml: trace: missing"),
        ({"trace": {"generate": "codin", "sessions": 1}}, "trace: generate: no 'codin'; did you mean 'coding'?"),
        ({"trace": {"generate": "coding", "sessions": 0}}, "trace: sessions: 0; allowed: a whole number"),
        ({"trace": {"generate": "coding", "sessions": 1, "turn": 4}}, "trace: field: no 'turn'; did you mean 'turns'?"),
        ({"trace": {"generate": "qa", "sessions": 1, "block_size": 1.5}}, "trace: block_size: 1.5; allowed: a whole"),
        ({"trace": "x" * 400}, "trace: File name too long"),
        ({"axes": {"n_prefill": [10**400]}}, "axes: n_prefill: 1000"),
        ({"trace": ["a.jsonl", "b/a.jsonl"]}, "trace: two are called 'a'"),
        ({"profile": {"model": "qwen3-8c", "gpu": "l20z"}}, "profile: model: no 'qwen3-8c'"),
        ({"profile": "none.yaml"}, "none.yaml: No such file"),
        ({"cluster": None}, "study.yaml: cluster: missing"),
        ({"cluster": "none.yaml"}, "none.yaml: No such file"),
        ({"slo": [{}]}, "slo: an SLO without limits"),
        ({"slo": {"ttft": 2}}, "slo: field: no 'ttft'; did you mean 'ttft_seconds'?"),
        ({"profile": "h100-sxm-llama-3.1"}, "profile: no 'h100-sxm-llama-3.1'; did you mean 'h100-sxm-llama-3.1-8b'?"),
        ({"profile": "none.yaml"}, "none.yaml: No such file or directory"),
        ({"keep": {"gateway": "random"}}, "keep: gateway: 'random' is not on the axis"),
        ({"keep": {"ttl": 1}}, "keep: no 'ttl'"),
    ],
)  # fmt: skip
def test_a_study_that_cannot_be_is_one_line(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    said = refused("cluster", "sweep", written(tmp_path, **changes), "-o", tmp_path / "study.nc", "-q")
    assert message in said, said
    assert [file.name for file in tmp_path.iterdir()] == ["study.yaml"]


def test_options_that_cannot_be_are_one_line(tmp_path: Path) -> None:
    path = written(tmp_path)
    (tmp_path / "there.nc").write_text("")
    for arguments, message in [
        (("-o", tmp_path / "study.csv"), "allowed: .nc"), (("--axis", "ttl"), "--axis: 'ttl'; allowed: NAME=VALUES"),
        (("-o", tmp_path / "there.nc"), "exists"), (("--threads", "0"), "--threads: 0; allowed: 1 to 4096"),
        (("--partial",), "--partial: has no effect without --output"),
    ]:  # fmt: skip
        assert message in refused("cluster", "sweep", path, "-q", *arguments)
    assert "nothing.yaml: No such file" in refused("cluster", "sweep", tmp_path / "nothing.yaml")


def test_fields_of_workers_are_set_in_every_group() -> None:
    checked = parse_study(study(axes={"device_tokens": [131072, 262144]}), "study")
    for cell in cells(checked):
        assert cell.config is not None
        found = {group.device_tokens for group in (*cell.config.prefill, *cell.config.decode)}
        assert found == {cell.point["device_tokens"]}
    assert study_mapping(checked)["axes"] == {"device_tokens": [131072, 262144]}


def test_a_count_needs_one_group_to_set() -> None:
    values = cluster()
    values["workers"].append(dict(values["workers"][0]))
    parse_config(values, "cluster")
    axis = parse_study(study(axes={"n_prefill": [1]}), "study").axes[-1]
    with pytest.raises(InputError, match="2 groups of prefill workers in the cluster file; allowed: one"):
        set_field(values, axis, 1, "n_prefill")


def test_every_workload_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds run fastest through the cells, and few traces are held: made in that order, each would be made again."""
    made: list[tuple[str, int]] = []
    make = MadeTrace.make

    def counted(spec: MadeTrace, folder: Path, seed: int) -> Trace:
        made.append((spec.label, seed))
        return make(spec, folder, seed)

    monkeypatch.setattr(MadeTrace, "make", counted)
    path = written(tmp_path, axes={"rate_scale": [1, 2, 3], "gateway": ["random"], "seed": "0:5:1"})
    done("cluster", "sweep", path, "--dry-run")
    # Once each, and the first again for the cell that is simulated.
    assert sorted(made) == sorted([("coding", seed) for seed in range(6)] + [("coding", 0)])


def test_seeds_that_agree_have_no_interval() -> None:
    """Their mean is a rounding off them, which was told as ± 1.689e-16."""
    array = xr.DataArray([[0.1, 0.1, 0.1], [0.1, 0.2, 0.3]], dims=("gateway", "seed"))
    assert array.mean("seed")[0] != 0.1
    _, half = over_seeds(array)
    assert half[0] == 0.0 and half[1] == pytest.approx(4.303 * 0.1 / np.sqrt(3), rel=1e-3)


def test_the_table_shortens_nothing(tmp_path: Path) -> None:
    """Axes with long names and many figures go into two tables of the same rows, intervals beside what they are of."""
    axes = {"gateway": ["session_affinity"], "prefill.max_running": [16, 32], "ttl": [1, "inf"], "seed": [0, 1]}
    host = {"host_tokens": [0, 2097152]}
    text = done("cluster", "sweep", written(tmp_path, axes={**axes, **host}, slo=SLO), "-q").stdout
    first, second = text.split("\n\n")
    assert "…" not in text and max(map(len, text.splitlines())) <= 120
    assert len(first.splitlines()) == len(second.splitlines()) == 9
    assert first.splitlines()[0].split()[:3] == ["host_tokens", "prefill_max_running", "ttl"]
    assert second.splitlines()[0].split()[:3] == ["host_tokens", "prefill_max_running", "ttl"] and " ± " in second


def test_policies_that_cannot_differ_are_told() -> None:
    """Session affinity without sessions is round robin, and any gateway is with one worker to choose."""
    told: list[str] = []
    made = {"generate": "uniform", "sessions": 12, "label": "lone"}
    several = parse_study(
        study(trace=[made, study()["trace"]], axes={"gateway": ["round_robin", "session_affinity"]}), "s"
    )
    ds = run_study(several, None, show=Show(note=told.append))
    assert "gateway: session_affinity makes no difference to round_robin: no request of the trace names a session " \
        "(1 cells of trace lone)" in told  # fmt: skip
    assert alike(ds) == []
    lone = ds.sel(trace="lone")
    assert alike(lone) == ["gateway: round_robin and session_affinity give the same figures in every cell"]
    one = kvsweep.cluster.sweep(
        study(cluster=cluster(1), axes={"gateway": ["cache_aware", "random"], "ttl": [1, "inf"]})
    )
    assert "gateway: cache_aware and random give the same figures in every cell" in alike(one)


def test_a_run_whose_policy_cannot_differ_says_so(tmp_path: Path) -> None:
    about = {"cluster": cluster(gateway={"policy": "session_affinity"}), "trace": tmp_path / "t.jsonl"}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(about["cluster"]))
    done("cluster", "init", "-o", tmp_path / "x.yaml", "--profile", tmp_path / "p.yaml")
    lines = '{"timestamp": 0, "input_length": 64, "output_length": 4, "hash_ids": [1]}\n' * 3
    about["trace"].write_text(lines)
    told = done("cluster", "run", about["trace"], "--config", tmp_path / "c.yaml", "--profile", tmp_path / "p.yaml",
                "-o", tmp_path / "run.nc").stderr  # fmt: skip
    assert "c.yaml: gateway: session_affinity makes no difference to round_robin: no request" in told
    with kvsweep.open(tmp_path / "run.nc") as ds:
        assert "makes no difference" in ds.attrs["kvsweep_config_notes"]
