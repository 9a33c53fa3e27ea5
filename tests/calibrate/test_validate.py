"""Measured runs: their formats, the replay of one that is known, errors and components."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kvsweep.calibrate.fits.compose import compose
from kvsweep.calibrate.kernels.layers import Parallel
from kvsweep.calibrate.kernels.profile import read_kernels
from kvsweep.calibrate.runs.measured import MeasuredRun, read_run
from kvsweep.calibrate.runs.measures import measures, reuse, windows
from kvsweep.calibrate.runs.replay import captured_graphs, limits_of, replay
from kvsweep.catalog import load
from kvsweep.cluster.inputs.step_profile import StepProfile, step_profile_text, step_times
from kvsweep.cluster.inputs.vllm_defaults import assumed_blocks
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.simulation.lone_worker import Arrival, Served, run
from kvsweep.cluster.vllm import columns as c
from kvsweep.cluster.vllm.limits import Limits
from kvsweep.cluster.vllm.steptime import StepTimes
from kvsweep.errors import InputError
from tests.calibrate.kernel_samples import write_profile
from tests.calibrate.run_samples import GRAPHS, LIMITS, profile, serve, write_run
from tests.cli_runner import run as kvsweep


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> StepProfile:
    return profile(tmp_path_factory.mktemp("kernels"))


@pytest.fixture(scope="module")
def served(given: StepProfile) -> tuple[list[Arrival], Served]:
    return serve(given)


@pytest.fixture(scope="module")
def measured(served: tuple[list[Arrival], Served], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_run(tmp_path_factory.mktemp("run") / "vllm", *served)


def test_a_run_of_the_simulator_itself_is_predicted_exactly(
    given: StepProfile, served: tuple[list[Arrival], Served], measured: tuple[Path, Path]
) -> None:
    folder, workload = measured
    found = replay(read_run(folder, workload), given)
    assert (found.limits, found.graphs) == (LIMITS, tuple(GRAPHS))
    errors = measures(found)
    # Seconds on two clocks carry some nanoseconds of rounding.
    assert errors["e2e_mape"] < 1e-5 and errors["ttft_mae_seconds"] < 1e-5 and errors["tpot_mape"] < 1e-4
    assert errors["preemptions"] == served[1].request[:, c.PREEMPTIONS].sum()
    assert errors["hit_ratio"] > 0.05
    assert {"running", "waiting", "kv_cache_pct"} <= set(errors["components"]["means"])
    assert errors["aggregate"]["e2e"]["p90"]["error"] == pytest.approx(0.0, abs=1e-4)


def test_a_profile_of_two_ranks_replays(measured: tuple[Path, Path], given: StepProfile, tmp_path: Path) -> None:
    """The made-up ranks of TP 2 run as one does; 1 ms for each of 64 all-reduces makes every step 64 ms longer."""
    folder = write_profile(tmp_path, tp=(2,), skew=True)
    curve = (np.array([1.0, 1e9]), np.array([1e-3, 1e-3]))
    model = load().part("models", "llama-3.1-8b", "model")
    two = compose(read_kernels(folder, 2), model, Parallel(allreduce=curve))
    run = read_run(*measured)
    slow, fast = replay(run, two, n_blocks=200), replay(run, given, n_blocks=200)
    first = [each.served.steps[0] for each in (slow, fast)]
    assert (first[0][c.END] - first[1][c.END]) * 1e-12 == pytest.approx(64e-3, rel=0.02)
    assert slow.finish.max() > fast.finish.max()


def test_tokens_a_second_late_are_an_error_of_a_second(
    given: StepProfile, served: tuple[list[Arrival], Served], tmp_path: Path
) -> None:
    folder, workload = write_run(tmp_path / "late", *served, shift=1.0)
    errors = measures(replay(read_run(folder, workload), given))
    assert errors["ttft_mae_seconds"] == pytest.approx(1.0, abs=1e-4)
    assert errors["tpot_mape"] < 1e-4


def test_every_format_holds_the_same_run(measured: tuple[Path, Path], tmp_path: Path) -> None:
    run = read_run(*measured)
    decode = run.finish - run.first_token
    lists = {
        "input_lens": run.prompt_tokens.tolist(), "output_lens": run.output_tokens.tolist(),
        "ttfts": (run.first_token - run.arrival).tolist(), "itls": [[x / 2, x / 2] for x in decode.tolist()],
        "start_times": (run.arrival + 7.5).tolist(),
    }  # fmt: skip
    (tmp_path / "bench.json").write_text(json.dumps(lists))
    lines = []
    for i in reversed(range(len(run))):
        values = {
            "time_to_first_token": (lists["ttfts"][i] * 1e3, "ms"),
            "request_latency": (float(run.finish[i] - run.arrival[i]) * 1e3, "ms"),
            "input_sequence_length": (lists["input_lens"][i], "tokens"),
            "output_sequence_length": (lists["output_lens"][i], "tokens"),
            "usage_prompt_cache_read_tokens": (i, "tokens"),
        }
        metrics = {name: {"value": value, "unit": unit} for name, (value, unit) in values.items()}
        lines.append({"metadata": {"request_start_ns": 1e18 + run.arrival[i] * 1e9}, "metrics": metrics})
    lines.append({"error": "timeout"})
    (tmp_path / "profile_export.jsonl").write_text("\n".join(map(json.dumps, lines)))
    rows = [
        f"{run.arrival[i]},{run.prompt_tokens[i]},{run.output_tokens[i]},{lists['ttfts'][i]},"
        f"{run.finish[i] - run.arrival[i]},{i}"
        for i in range(len(run))
    ]
    (tmp_path / "run.csv").write_text("\n".join(["arrival,prompt_tokens,output_tokens,ttft,e2e,hit_tokens", *rows]))
    for name in ("bench.json", "profile_export.jsonl", "run.csv"):
        other = read_run(tmp_path / name)
        for field in ("arrival", "prompt_tokens", "output_tokens", "first_token", "finish"):
            np.testing.assert_allclose(getattr(other, field), getattr(run, field), atol=2e-6, err_msg=f"{name} {field}")
    for name in ("run.csv", "profile_export.jsonl"):
        hits = read_run(tmp_path / name).hit_tokens
        assert hits is not None and hits.tolist() == list(range(len(run)))
    assert read_run(tmp_path / "bench.json").hit_tokens is None
    text = (tmp_path / "profile_export.jsonl").read_text()
    (tmp_path / "profile_export.jsonl").write_text(text.replace('"unit": "ms"', '"unit": "min"'))
    with pytest.raises(InputError, match="time_to_first_token: unit: 'min'; allowed: ns, us, ms"):
        read_run(tmp_path / "profile_export.jsonl")


def test_workloads_may_be_lists_and_packed(measured: tuple[Path, Path], tmp_path: Path) -> None:
    folder, workload = measured
    rows = [json.loads(line)["input_tok_ids"] for line in workload.read_text().splitlines()]
    listed = json.dumps([{"prompt_token_ids": tokens} for tokens in rows])
    (tmp_path / "w.json.gz").write_bytes(gzip.compress(listed.encode()))
    assert read_run(folder, tmp_path / "w.json.gz").prompts == read_run(folder, workload).prompts


def test_broken_runs_say_where(measured: tuple[Path, Path], tmp_path: Path) -> None:
    def refused(path: Path, message: str, workload: Path | None = None) -> None:
        with pytest.raises(InputError, match=message):
            read_run(path, workload)

    refused(tmp_path, "no meta.json")
    refused(tmp_path / "x.pkl", "not a run kvsweep reads")
    (tmp_path / "w.jsonl").write_text('{"input_tok_ids": [1]}')
    refused(measured[0], "w.jsonl: line 1: input_tok_ids: not", tmp_path / "w.jsonl")


CSV = "arrival,prompt_tokens,output_tokens,ttft,e2e"
BENCH = {"input_lens": [5], "output_lens": [2], "ttfts": [1.0], "itls": [[0.5]], "start_times": [3.0]}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "", r"a.csv:1: no column 'arrival'"),
        ("a.csv", CSV, "no rows"),
        ("a.csv", f"{CSV}\n0,0,1,1,1", "a.csv:2: prompt tokens: 0; allowed: a whole number from 1"),
        ("a.csv", f"{CSV}\n\n0,1,2.5,1,1", "a.csv:3: output tokens: 2.5; allowed: a whole number"),
        ("a.csv", f"{CSV}\n0,1,1,1,1\n1e25,1,1,1,1", "a.csv:3: last token 1e\\+25 s after the first arrival"),
        ("a.csv", f"{CSV}\n0,1e12,1,1,1", r"a.csv:2: prompt tokens: 1e\+12"),
        ("a.csv", f"{CSV}\n0,1,1,1e400,1", "a.csv:2: ttft: '1e400' is not a number"),
        ("a.csv", f"{CSV}\n0,1,1,nan,1", "a.csv:2: ttft: 'nan' is not a number"),
        ("a.csv", f"{CSV}\n-1,1,1,1,1", "a.csv:2: arrival: '-1' is not a number"),
        ("a.csv", f"{CSV}\n0,1,1,2,1", "a.csv:2: last token -1 s after the first; allowed: not before"),
        ("a.csv", f"{CSV},ttft\n0,1,1,1,1,1", "a.csv:1: column 'ttft' twice"),
        ("a.csv", f"{CSV}\n0,1,1,1,1,9", "a.csv:2: 6 cells; allowed: 5"),
        ("a.csv", f'{CSV}\n"0,1,1,1,1', "a.csv:2: not CSV"),
        ("a.csv", f"{CSV},hit_tokens\n0,1,1,1,1,2", "a.csv:2: 2 hit tokens; allowed: at most"),
        ("a.csv", f"{CSV},l1_hit_tokens,l2_hit_tokens\n0,3,1,1,1,2,2", "a.csv:2: 4 hit tokens; allowed: at most"),
        ("a.csv", f"{CSV},l2_hit_tokens,hit_tokens\n0,1,1,1,1,0,0", "hit_tokens beside l2_hit_tokens"),
        ("a.csv", b"\xff\xfe0", "a.csv: not UTF-8 text$"),
        ("a.csv", b"\x1f\x8b\x08", "a.csv: not UTF-8 text; unpack it first"),
        ("a.json", "[]", r"a.json: \[\] is not an object"),
        ("a.json", "[" * 100_000, "a.json: not JSON"),
        ("a.json", '{"input_lens": [1]}', "start_times: missing; allowed: a result with per-request lists"),
        ("a.json", json.dumps(BENCH | {"ttfts": []}), "ttfts: 0 entries; allowed: 1"),
        ("a.json", json.dumps(BENCH | {"itls": [3]}), "a.json: request 0: itls: missing; allowed: a list"),
        ("a.json", json.dumps(BENCH | {"itls": [[None]]}), "request 0: entry 0: itls: None; allowed: a number"),
        ("a.json", json.dumps(BENCH | {"output_lens": [0]}), "a.json: request 0: output tokens: 0"),
        ("a.jsonl", "", "a.jsonl: no lines"),
        ("a.jsonl", '{"error": "x"}', "a.jsonl: no requests"),
        ("a.jsonl", '{"metadata": {}, "metrics": {}}', "a.jsonl:1: request_start_ns: None; allowed: a number"),
    ],
)
def test_broken_files_say_where(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message):
        read_run(tmp_path / name)


def test_limits_that_a_run_does_not_state(given: StepProfile) -> None:
    known = replace(given, memory_bytes=24e9, weights_bytes=16e9, kv_bytes_per_token=131072.0)
    limits, notes = limits_of({}, known)
    step = 2048 * 2 * (2 * 4096 + 3 * 14336) + 256 * 128256 * 12 + 0.5e9
    assert limits.n_blocks == (0.9 * 24e9 - 16e9 - step) // (16 * 131072)
    assert any("assumed" in note for note in notes)
    with pytest.raises(InputError, match="memory_bytes: not known"):
        assumed_blocks(given, 16)
    with pytest.raises(InputError, match="leave no room"):
        assumed_blocks(replace(known, memory_bytes=10e9), 16)
    assert captured_graphs({}, 128)[-1] == 256 and captured_graphs({}, 256)[-1] == 512
    assert captured_graphs({}, 4) == (1, 2, 4, 8)
    assert limits_of({}, given, n_blocks=77)[0].n_blocks == 77  # nothing else has to be known


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("kv_cache", "num_gpu_blocks", "many"),
        ("kv_cache", "num_gpu_blocks", -3),
        ("kv_cache", "block_size", 0),
        ("kv_cache", "enable_prefix_caching", 1),
        ("engine_kwargs", "max_num_seqs", 2.5),
        ("engine_kwargs", "max_num_batched_tokens", True),
    ],
)
def test_a_broken_meta_file_says_where(given: StepProfile, part: str, field: str, value: object) -> None:
    with pytest.raises(InputError, match=f"meta.json: {field}: .*; allowed: "):
        limits_of({part: {field: value}}, given, 10 if field != "num_gpu_blocks" else None)


def test_reuse_is_counted_by_tokens() -> None:
    found = reuse(np.array([10, 0, 30]), np.array([10, 5, 20]), np.array([100, 50, 50]))
    assert found["hit_ratio_error"] == pytest.approx(-5 / 200)
    assert found["exact_match_ratio"] == pytest.approx(1 / 3)
    assert found["token_volume_error"] == pytest.approx(-5 / 40)
    assert found["attribution_match_ratio"] == pytest.approx(2 / 3)


def test_reuse_by_tier(given: StepProfile, tmp_path: Path) -> None:
    """Two alone of three requests find 32 tokens; measured are 32 and 16 on the device and 16 and 0 on the host."""
    head = "arrival,prompt_tokens,output_tokens,ttft,e2e,l1_hit_tokens,l2_hit_tokens"
    path = tmp_path / "run.csv"
    path.write_text("\n".join([head, "0,40,2,1,2,0,0", "20,40,2,1,2,16,0", "10,40,2,1,2,32,8"]))
    run = read_run(path)
    assert run.hit_tokens is not None and run.hit_tokens.tolist() == [0, 40, 16]
    assert {tier: hits.tolist() for tier, hits in run.tier_hits.items()} == {"l1": [0, 32, 16], "l2": [0, 8, 0]}
    found = measures(replay(replace(run, prompts=[[7] * 40] * 3), given, n_blocks=100))
    assert found["hit_tokens"] == {"l1": {"measured": 48, "predicted": 64}, "l2": {"measured": 8, "predicted": 0}}
    device, host = found["reuse"]["l1"], found["reuse"]["l2"]
    assert device["hit_ratio_error"] == pytest.approx(16 / 120) and device["exact_match_ratio"] == pytest.approx(2 / 3)
    assert device["token_volume_error"] == pytest.approx(1 / 3) and device["attribution_match_ratio"] == 1.0
    assert host["hit_ratio_error"] == pytest.approx(-8 / 120) and host["attribution_match_ratio"] == pytest.approx(
        2 / 3
    )
    assert host["token_volume_error"] == -1.0
    assert found["reuse"]["all"]["token_volume_error"] == pytest.approx(64 / 56 - 1.0)
    assert any("no tier l2" in note for note in found["notes"])


def test_a_run_of_single_tokens_has_no_tpot(given: StepProfile, tmp_path: Path) -> None:
    (tmp_path / "run.csv").write_text(f"{CSV}\n0,10,1,0.5,0.5\n1,10,1,0,0\n")
    found = measures(replay(read_run(tmp_path / "run.csv"), given, n_blocks=100))
    assert found["tpot_mape"] is None and found["e2e_mape"] is not None
    assert found["aggregate"]["tpot"]["p90"] == {"measured": None, "predicted": None, "error": None}
    path = tmp_path / "profile.yaml"
    path.write_text(step_profile_text(given))
    done = kvsweep("validate", str(tmp_path / "run.csv"), "--profile", str(path), "--blocks", "100")
    assert done.exit_code == 0 and "–" in done.stdout, done.output


def test_windows_count_requests_and_tokens() -> None:
    run = MeasuredRun(
        "x", np.array([0.0, 4.0]), np.array([1, 1]), np.array([11, 1]), np.array([1.0, 6.0]), np.array([11.0, 6.0])
    )
    found = windows(run, run.first_token, run.finish)
    assert found["outstanding"].tolist() == [2, 1, 0] and found["completed_requests"].tolist() == [0, 1, 1]
    assert found["delivered_tokens"].sum() == pytest.approx(12.0)


def dealt(requests: list[Arrival], limits: Limits, times: StepTimes, workers: int) -> list[Served]:
    """Return what becomes of requests that are dealt to equal workers in turn, each served alone."""
    return [run(requests[place::workers], limits, times) for place in range(workers)]


def test_a_profile_of_one_worker_serves_many(given: StepProfile, served: tuple[list[Arrival], Served]) -> None:
    """Calibration is reused: each of three workers runs as it would alone, with other capacities, too."""
    requests = served[0]
    times, limits = step_times(given, GRAPHS), replace(LIMITS, n_blocks=200)
    for place, found in enumerate(dealt(requests, limits, times, 3)):
        np.testing.assert_array_equal(found.request, run(requests[place::3], limits, times).request)
    burst = [replace(each, arrival=0.0) for each in requests]
    last = [
        max(each.request[:, col.FINISHED].max() for each in dealt(burst, capacity, times, count))
        for capacity, count in ((LIMITS, 1), (limits, 3))
    ]
    assert last[1] < last[0]


def test_the_command(given: StepProfile, measured: tuple[Path, Path], tmp_path: Path) -> None:
    folder, workload = measured
    path = tmp_path / "profile.yaml"
    path.write_text(step_profile_text(given))
    options = ("--profile", str(path), "--workload", str(workload))
    printed = kvsweep("validate", str(folder), *options)
    assert printed.exit_code == 0 and "components that are off: " in printed.stdout
    (tmp_path / "figures").mkdir()
    done = kvsweep(
        "validate", str(folder), *options, "--format", "json", "-o", str(tmp_path / "pairs.csv"),
        "--figures", str(tmp_path / "figures"),
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    errors = json.loads(done.stdout)
    assert {"run", "requests", "e2e_mape", "ttft_mae_seconds", "tpot_mape", "aggregate", "extrapolated_ratio"} <= set(
        errors
    )
    assert errors["e2e_mape"] < 0.01  # five digits of the profile's file
    assert len((tmp_path / "pairs.csv").read_text().splitlines()) == errors["requests"] + 1
    assert len(list((tmp_path / "figures").glob("*.svg"))) == 3


def test_the_command_refuses(measured: tuple[Path, Path], tmp_path: Path) -> None:
    refused = kvsweep("validate", str(measured[0]), "--profile", "rtx4090-llama")
    assert refused.exit_code == 2 and "did you mean 'rtx4090-llama-3.1-8b'" in refused.output
    refused = kvsweep(
        "validate", str(measured[0]), "--profile", "rtx4090-llama-3.1-8b", "--figures", str(tmp_path / "x")
    )
    assert refused.exit_code == 2 and "x is not a folder" in refused.output and not refused.stdout
    refused = kvsweep("validate", str(measured[0]), "--profile", str(tmp_path / "none.yaml"))
    assert refused.exit_code == 2 and "none.yaml: No such file" in refused.output
