"""``kvsweep simulate``: what is printed, what is saved, and that every option acts."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

import kvsweep
from kvsweep.cli.options import dashed
from kvsweep.costs.inputs import NUMBER_FIELDS, PART_FIELDS
from kvsweep.errors import ResultError
from kvsweep.policies.registry import load_policies
from tests.cli_runner import GOOD_POLICY, done, refused, run

SLOWEST_FIRST = (
    "--stack h200 --placement auto --total-blocks 200000 --miss-blocks 500 --request-rate .02 --p95-seconds 10"
)


def as_json(*arguments: str | Path, **options: Any) -> dict[str, Any]:
    def no_constant(name: str) -> None:
        raise AssertionError(f"{name} is not standard JSON")

    loaded: dict[str, Any] = json.loads(
        done("simulate", *arguments, "--format", "json", **options).stdout, parse_constant=no_constant
    )
    return loaded


def test_json_is_the_result_of_python_without_the_warnings() -> None:
    result = kvsweep.simulate(stack="h200", placement="auto", total_blocks=1000, hit_ratio=0.5)
    assert list(as_json("--stack", "h200", "--placement", "auto", "--total-blocks", "1000", "--hit-ratio", "0.5")) == [
        "hardware", "experiment", "results", "slo_summary",
    ]  # fmt: skip
    printed = as_json("--stack", "h200", "--placement", "auto", "--total-blocks", "1000", "--hit-ratio", "0.5")
    del result["warnings"]
    assert printed == result


def test_defaults() -> None:
    printed = as_json()
    assert printed["hardware"]["stack_key"] == "a100_ddr5_nvme"
    assert printed["experiment"]["total_blocks"] == [50_000] and printed["experiment"]["miss_blocks"] == [0]


def test_what_is_not_finite_is_null() -> None:
    printed = as_json("--total-blocks", "0", "--disk-capacity", "inf")
    assert printed["results"][0]["speedups"]["default_policy"]["all_compute"] is None


def test_a_stack_is_a_preset_that_single_parts_override() -> None:
    assert as_json("--stack", "h200")["hardware"]["gpu_key"] == "H200"
    changed = as_json("--stack", "h200", "--disk", "SATA")
    assert changed["hardware"]["gpu_key"] == "H200" and changed["hardware"]["disk_key"] == "SATA"
    assert changed["results"][0]["storage_throughput"] < as_json("--stack", "h200")["results"][0]["storage_throughput"]


KEYS = {"stack": "h200", "gpu": "H200", "dram": "DDR3-1600", "disk": "SATA", "link": "PCIe3", "model": "llama-3.1-8b"}


@pytest.mark.parametrize("name", [*PART_FIELDS, *NUMBER_FIELDS])
def test_every_option_of_the_model_acts(name: str) -> None:
    base = ("--placement", "auto", "--total-blocks", "200000")  # more than VRAM and DRAM hold
    if name in ("attention_eta", "setup_seconds"):
        base = (*base, "--gpu", "h100-sxm", "--model", "llama-3.1-8b", "--overlap", "serial")
    if name in ("max_model_len", "step_tokens"):
        base = (*base, "--gpu", "h200-sxm", "--model", "gpt-oss-120b")
    shares = ("hit_ratio", "gpu_eta", "attention_eta", "memory_utilization")
    value = KEYS.get(name, "0.25" if name in shares else "30000" if name in ("max_model_len", "step_tokens") else "3")
    assert as_json(*base)["results"] != as_json(*base, dashed(name), value)["results"]


@pytest.mark.parametrize("option", ["--dram", "--dram-count", "--dram-bandwidth", "--hbm-capacity"])
def test_options_without_effect_say_so(option: str) -> None:
    value = "DDR4" if option == "--dram" else "3"
    line = f"{option} has no effect with placement disk"
    assert line in done("simulate", option, value).stderr.splitlines()
    assert done("simulate", option, value, "--quiet").stderr == ""
    assert line not in done("simulate", option, value, "--placement", "auto").stderr


def test_weights_larger_than_hbm_are_flagged() -> None:
    arguments = ("--model-params", "1e12", "--placement", "auto")
    result = done("simulate", *arguments)
    assert "weights do not fit in HBM" in result.stderr and "weights do not fit in HBM" in result.stdout
    assert as_json(*arguments)["experiment"]["weights_fit"] is False


def test_units_are_read() -> None:
    plain = as_json("--link-bandwidth", "64e9", "--p95-seconds", "0.5", "--request-rate", "0.5")
    assert as_json("--link-bandwidth", "64GB/s", "--p95-seconds", "500ms", "--request-rate", "30/min") == plain


def test_several_requests_make_a_row_each() -> None:
    assert len(as_json("--total-blocks", "1000:3000:1000", "--miss-blocks", "0,10")["results"]) == 6
    assert [row["miss_blocks"] for row in as_json("--hit-ratio", "0:1:n3")["results"]] == [50_000, 25_000, 0]


def test_the_table_explains_the_case_where_only_slowest_first_passes() -> None:
    output = done("simulate", *SLOWEST_FIRST.split()).stdout
    lines = output.splitlines()
    assert lines[0].startswith("World       reference (GPU H200")
    assert lines[2].startswith("Deployment  h200: 1 x H200, 4 x DDR5, NVMe, NVLink")
    assert any(line.startswith("Rates") and "blocks/s" in line for line in lines)
    row = {line.split("  ")[0]: line for line in lines}
    assert row["Slowest tier first"].endswith("pass") and "8.541" in row["Slowest tier first"]
    assert row["IO-aware policy"].endswith("fail: latency")
    assert row["Restore"].endswith("fail: latency storage")
    assert "Simplest policy that meets the SLO: Slowest tier first" in output
    assert "Fastest: Slowest tier first, 2.236 x as fast as IO-aware policy" in output
    assert max(map(len, lines)) <= 160


def test_the_table_says_when_none_passes() -> None:
    assert "No policy meets the SLO." in done("simulate").stdout


def test_csv_has_a_row_for_each_request_and_policy() -> None:
    text = done("simulate", "--total-blocks", "1000,2000", "--format", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 2 * len(kvsweep.policies.load_policies().unasked(False))
    first = kvsweep.simulate(total_blocks=1000)["results"][0][rows[0]["policy"]]
    assert float(rows[0]["total_time"]) == first["total_time"] and rows[0]["total_blocks"] == "1000"


def test_output_is_saved_by_suffix_and_printed(tmp_path: Path) -> None:
    for suffix in ("json", "csv"):
        file = tmp_path / f"result.{suffix}"
        result = done("simulate", "--output", file)
        assert "Deployment" in result.stdout and result.stderr.splitlines()[-1] == f"wrote {file}"
        assert file.read_text() == done("simulate", "--format", suffix).stdout
    assert {path.name for path in tmp_path.iterdir()} == {"result.json", "result.csv"}


def test_a_file_is_overwritten_only_by_force(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text("mine")
    assert "--force" in refused("simulate", "--output", file)
    assert file.read_text() == "mine"
    done("simulate", "--output", file, "--force")
    assert json.loads(file.read_text())["results"]


def test_a_failing_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **options: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    file = tmp_path / "x.json"
    assert refused("simulate", "--output", file, code=1) == f"cannot write {file}: No space left on device"
    assert list(tmp_path.iterdir()) == []


def test_policies_are_chosen_and_added(tmp_path: Path) -> None:
    assert list(as_json("--policies", "all_compute,default_policy")["slo_summary"]) == ["default_policy", "all_compute"]
    file = tmp_path / "mine.py"
    file.write_text(GOOD_POLICY)
    assert as_json("--policy-file", file)["results"][0]["mine"]["decision_mode"] == "half"
    assert "mine" in as_json(env={"KVSWEEP_POLICY_FILE": str(file)})["slo_summary"]


def test_hardware_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "links.yaml").write_text("Mine: {bandwidth: 1.0e+10}\n")
    assert as_json("--hardware", tmp_path, "--link", "Mine")["hardware"]["link_key"] == "Mine"
    environment = {"KVSWEEP_HARDWARE": str(tmp_path)}
    assert as_json("--link", "Mine", env=environment)["hardware"]["link_key"] == "Mine"


def test_catalog_names_are_completed() -> None:
    result = run(
        env={"_KVSWEEP_COMPLETE": "bash_complete", "COMP_WORDS": "kvsweep simulate --stack h2", "COMP_CWORD": "3"}
    )
    assert result.stdout.split() == ["plain,h200"]


def test_result_errors_are_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(plan: object) -> None:
        raise ResultError("no luck")

    monkeypatch.setattr("kvsweep.grid.simulate.simulate_plan", fail)
    assert refused("simulate", code=1) == "no luck"


def test_without_a_request_the_reference_s_is_taken_and_told() -> None:
    told = done("simulate").stderr
    assert "no request given; taken is the reference's: 50,000 blocks" in told and "--total-blocks" in told
    assert done("simulate", "--total-blocks", "100").stderr == "" == done("simulate", "--quiet").stderr


def test_where_no_policy_passes_the_slo_that_would_do_is_told_and_does() -> None:
    """Equal times are a tie, which the IO-aware policy does not win by 1 x; what is told to pass does pass."""
    ids = {policy.label: policy.name for policy in load_policies().values()}
    for options in ((), ("--stack", "h200", "--total-blocks", "77777"), ("--gpu-eta", "0.031", "--miss-blocks", "9")):
        lines = done("simulate", *options).stdout.splitlines()
        (line,) = (line for line in lines if line.startswith("No policy meets the SLO."))
        told = re.fullmatch(r"No policy .*\. (.+) would, with a target of (\S+) s and at most (\S+) requests/s\.", line)
        assert told, line
        allowed = "--p95-seconds", told[2], "--request-rate", told[3]
        assert as_json(*options, *allowed)["results"][0][ids[told[1]]]["meets_slo"]
        fastest = next(line for line in lines if line.startswith(("Fastest: ", "Equally fast: ")))
        assert " 1 x as fast" not in fastest
    assert "Fastest: IO-aware policy and Slowest tier first, 1.611 x as fast as Restore" in done("simulate").stdout


def test_many_policies_alike_are_counted() -> None:
    real = ("--gpu", "h100-sxm", "--model", "llama-3.1-8b", "--total-blocks", "6250", "--hit-ratio", "0.9")
    alike = done("simulate", *real).stdout
    assert "Fastest: 9 of 10 policies alike, " in alike and " x as fast as Recompute." in alike
    assert "Equally fast: all." in done("simulate", *real[:-1], "0").stdout


def test_blocks_are_told_in_tokens_too() -> None:
    lines = done("simulate", "--total-blocks", "1000", "--tokens-per-block", "64", "--placement", "auto").stdout
    assert "Request     1000 blocks (64,000 tokens): " in lines
    assert "Tier        vram: 1000 of " in lines and "blocks (64,000 tokens)" in lines


def test_policies_answer_to_id_and_label() -> None:
    by_label = done("simulate", "--total-blocks", "9", "--policies", "IO-aware policy,Recompute").stdout
    assert by_label == done("simulate", "--total-blocks", "9", "--policies", "performance_aware,all_compute").stdout
    assert "In files and options: IO-aware policy is performance_aware, Recompute is all_compute." in by_label


def test_what_fits_is_the_same_everywhere(tmp_path: Path) -> None:
    parts = ("--gpu", "h100-sxm", "--model", "llama-3.1-8b")
    tokens = as_json(*parts)["experiment"]["kv_tokens"]
    line = (
        f"{tokens:,.0f} tokens of KV: 0.9 of 85.52 GB, less 16.06 GB of weights and 2.91 GB for steps of 8,192 tokens"
    )
    assert f"Fits        {line}" in done("simulate", *parts).stdout
    assert f"Fits {line}." in done("sweep", *parts, "--hit-ratio", "0.5", "--request-rate", "1", "--summary").stdout
    files = ("-o", tmp_path / "c.yaml", "--profile", tmp_path / "p.yaml")
    assert line in done("cluster", "init", "--preset", "vllm", *files).stderr
    assert f"n_blocks: {int(tokens // 16)} " in (tmp_path / "c.yaml").read_text()
    own = ("-o", tmp_path / "d.yaml", "--profile", tmp_path / "q.yaml")
    assert line in done("cluster", "init", "--preset", "qwen3-8b-1p1d", *parts, "--tp", "1", *own).stderr


def test_numbers_of_kv_and_weights_change_what_fits_and_moves() -> None:
    parts = ("--gpu", "h100-sxm", "--gpu-count", "2", "--model", "qwen3-32b")
    whole, half = (as_json(*parts, "--kv-dtype", kind)["experiment"] for kind in ("bf16", "fp8"))
    assert half["kv_tokens"] == pytest.approx(2 * whole["kv_tokens"], abs=2)
    assert half["bytes_per_block"] == whole["bytes_per_block"] / 2 == 16 * 262_144 / 2
    light = as_json(*parts, "--weight-dtype", "fp8", "--memory-utilization", "0.65")["experiment"]
    assert light["kv_tokens"] == pytest.approx(150_012 + (65_524_246_528 - 34_326_243_328) / 262_144, abs=2)
    told = done("simulate", "--kv-dtype", "fp8").stderr
    assert "--kv-dtype has no effect in the reference world" in told


def test_memory_of_a_whole_server_is_not_multiplied() -> None:
    parts = ("--stack", "h200", "--placement", "auto", "--dram", "grace-lpddr5x-480")
    dram = [as_json(*parts, "--dram-count", n)["results"][0]["placement"]["tiers"][1] for n in ("1", "4")]
    assert dram[0]["capacity_blocks"] == dram[1]["capacity_blocks"]
