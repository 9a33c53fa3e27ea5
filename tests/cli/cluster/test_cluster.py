"""``kvsweep cluster`` from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import kvsweep
from tests.cli_runner import run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert run("cluster", "init", "--preset", "qwen3-8b-3p1d").exit_code == 0
    made = run("trace", "generate", "--preset", "qa", "--sessions", "8", "--seed", "1", "-o", "trace.jsonl", "-q")
    assert made.exit_code == 0
    return tmp_path


RUN = ("cluster", "run", "trace.jsonl", "--config", "cluster.yaml", "--profile", "profile.yaml", "-o", "run.nc")


def test_init_run_and_summary(folder: Path) -> None:
    done = run(*RUN)
    assert done.exit_code == 0, done.output
    assert done.stdout == "" and "profile.yaml: assumed, not measured" in done.stderr
    with kvsweep.open(folder / "run.nc") as ds:
        n = ds.sizes["request"]
        assert ds.attrs["kvsweep_model"] == "qwen3-8b"
    table = run("cluster", "summary", "run.nc").stdout
    assert f"{n} requests, 0 rejected" in table and "fidelity engine, profile assumed (qwen3-8b)" in table
    assert "utilization prefill2" in table and "The slowest twentieth by TTFT waited longest for: " in table
    found = json.loads(run("cluster", "summary", "run.nc", "--format", "json", "--slo", "ttft=2s,tpot=50ms").stdout)
    assert found["requests"] == n and found["goodput"] > 0 and found["extrapolated_ratio"] == 1.0


def test_a_run_that_serves_nothing_says_so(folder: Path) -> None:
    values = yaml.safe_load((folder / "cluster.yaml").read_text())
    for group in values["workers"]:
        group["device_tokens"] = 640
    (folder / "small.yaml").write_text(yaml.safe_dump(values))
    done = run(*RUN[:4], "small.yaml", *RUN[5:-1], "none.nc", "-q")
    assert done.exit_code == 1 and "requests were rejected: each is longer than the model's context" in done.stderr
    with kvsweep.open(folder / "none.nc") as ds:
        assert (ds["rejected"] == 1).all()


def test_init_writes_comments_and_refuses_to_overwrite(folder: Path) -> None:
    text = (folder / "cluster.yaml").read_text()
    assert "# tokens in a page" in text and "count: 3" in text
    again = run("cluster", "init")
    assert again.exit_code == 2 and "--output: cluster.yaml exists" in again.stderr
    assert run("cluster", "init", "--force", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--tp", "1").exit_code == 0
    assert yaml.safe_load((folder / "profile.yaml").read_text())["model"] == "llama-3.1-8b"
    assert yaml.safe_load((folder / "cluster.yaml").read_text())["workers"][0]["tp"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cluster", "init", "--preset", "qwen3-8b-2p1d", "--force"), "--preset: no 'qwen3-8b-2p1d'; did you mean"),
        (("cluster", "init", "--gpu", "l20y", "--force"), "--gpu: no 'l20y'"),
        (("cluster", "init", "-o", "a.yaml", "--profile", "a.yaml"), "--profile: a.yaml is what --output writes, too"),
        (("cluster", "init", "-o", "a.txt"), "--output: a.txt has no known suffix; allowed: .yaml, .yml"),
        ((*RUN[:-1], "run.csv"), "--output: run.csv has no known suffix; allowed: .nc"),
        ((*RUN[:2], "none.jsonl", *RUN[3:]), "none.jsonl: No such file"),
        ((*RUN[:4], "none.yaml", *RUN[5:]), "none.yaml: No such file"),
        (("cluster", "summary", "trace.jsonl"), "trace.jsonl: not a NetCDF file"),
        (("cluster", "summary", "run.nc", "--slo", "ttft"), "--slo: ttft: '' is not a number"),
        (("cluster", "summary", "run.nc", "--slo", "p95=3"), "--slo: 'p95=3'; allowed: ttft=, tpot=, e2e="),
        (("cluster", "summary", "run.nc", "--slo", "ttft=0"), "is out of range; allowed: more than 0"),
    ],
)
def test_bad_input_is_one_line(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_the_uncompiled_source_gives_the_same_bytes(folder: Path) -> None:
    command = [sys.executable, "-m", "kvsweep", *RUN, "-q", "--force"]
    made = run("trace", "generate", "--preset", "qa", "--sessions", "3", "-o", "trace.jsonl", "-q", "--force")
    assert made.exit_code == 0
    found = []
    for disabled in ("0", "1"):
        environment = {**os.environ, "NUMBA_DISABLE_JIT": disabled, "SOURCE_DATE_EPOCH": "1000000000"}
        subprocess.run(command, check=True, env=environment)
        found.append((folder / "run.nc").read_bytes())
    assert found[0] == found[1]


def test_a_sweep_is_no_cluster_run(folder: Path) -> None:
    assert run("sweep", "--stack", "h200", "--hit-ratio", "0:1:0.5", "-o", "sweep.nc", "-q").exit_code == 0
    done = run("cluster", "summary", "sweep.nc")
    assert done.exit_code == 2 and "sweep.nc: not a cluster run" in done.stderr


def test_a_result_is_not_overwritten_unasked(folder: Path) -> None:
    assert run(*RUN, "-q").exit_code == 0
    assert "run.nc exists" in run(*RUN, "-q").stderr
    assert run(*RUN, "-q", "--force", "--check").exit_code == 0


def test_the_event_log(folder: Path) -> None:
    assert run(*RUN, "-q", "--events", "events.nc").exit_code == 0
    assert run(*RUN, "-q", "--force", "--events", "events.json").exit_code == 0
    with kvsweep.open(folder / "events.nc") as log, kvsweep.open(folder / "run.nc") as ds:
        kinds = log["event_kind"].attrs["flag_meanings"].split()
        assert (log["event_time"].diff("event") >= 0.0).all()
        finished = log.sel(event=log["event_kind"] == kinds.index("finished"))
        by_request = finished.sortby("event_request")
        assert (by_request["event_time"].values == ds["finish"].values).all()
        assert (by_request["event_worker"].values == ds["decode_worker"].values).all()
        n_requests = ds.sizes["request"]
    spans = json.loads((folder / "events.json").read_text())["traceEvents"]
    assert [span["args"]["name"] for span in spans if span["ph"] == "M"][-1] == "decode0"
    assert len({span["tid"] for span in spans if span["ph"] == "X"}) == n_requests
    assert {span["name"] for span in spans} >= {"prefill", "hand off", "decode"}
    done = run(*RUN, "--force", "--events", "run.nc")
    assert done.exit_code == 2 and "--events: run.nc is what --output writes, too" in done.stderr


def test_a_dropped_file_is_chosen_by_its_name(folder: Path) -> None:
    (folder / "mine.py").write_text('kind, name = "gateway", "mine"\n\ndef cost(ctx):\n    return ctx.worker\n')
    text = (folder / "cluster.yaml").read_text().replace("policy: round_robin", "policy: mine")
    (folder / "cluster.yaml").write_text(text)
    assert run(*RUN, "-q", "--policy-file", "mine.py").exit_code == 0
    with kvsweep.open(folder / "run.nc") as ds:
        assert ds.attrs["kvsweep_gateway"] == "mine (policy file mine.py)"
        assert set(ds["prefill_worker"].values) == {0}
    done = run(*RUN, "-q", "--force")
    assert done.exit_code == 2 and "gateway: policy: no 'mine'" in done.stderr
    assert "choose from round_robin, random" in done.stderr
