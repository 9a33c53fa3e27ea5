"""``kvsweep sweep``: files, study files, summaries, dry runs, and that failures leave nothing behind."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import kvsweep
from kvsweep.cli.options import dashed
from kvsweep.costs.inputs import NUMBER_FIELDS, PART_FIELDS
from kvsweep.errors import ResultError
from tests.cli_runner import GOOD_POLICY, done, refused, run

SMALL = ("--hit-ratio", "0,0.5,1", "--request-rate", "0.01,0.02", "--p95-seconds", "5:20:5")


def as_json(*arguments: str | Path, **options: Any) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(done("sweep", *arguments, "--format", "json", **options).stdout)
    return loaded


def summary_of(**options: Any) -> dict[str, float]:
    ds = kvsweep.sweep(**options)
    rates = ds.kvsweep.success_rate([dim for dim in ds["meets_slo"].dims if dim != "policy"])
    return {str(name): float(rate) for name, rate in zip(ds["policy"].values, rates.values, strict=True)}


# Files


def test_netcdf_holds_what_python_returns(tmp_path: Path) -> None:
    file = tmp_path / "sweep.nc"
    result = done("sweep", *SMALL, "--stack", "h200,a5000", "--output", file)
    assert result.stdout == "" and result.stderr.splitlines()[-1].startswith(f"wrote {file} (")
    expected = kvsweep.sweep(stack="h200,a5000", hit_ratio="0,0.5,1", request_rate="0.01,0.02", p95_seconds="5:20:5")
    with kvsweep.open(file) as ds:
        assert ds.drop_attrs().equals(expected.drop_attrs())
        assert ds.attrs["kvsweep_config"] == expected.attrs["kvsweep_config"]
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.nc"]


def test_a_report_is_written_beside_the_file(tmp_path: Path) -> None:
    page = tmp_path / "sweep.html"
    result = done("sweep", *SMALL, "--report", page)
    assert result.stdout == "" and f"wrote {page} (" in result.stderr
    assert "<!doctype html>" in page.read_text().lower()
    assert "exists; give another name, or --force" in refused("sweep", *SMALL, "--report", page)
    done("sweep", *SMALL, "--report", page, "--force")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--report", "x.pdf"), "--report: x.pdf does not end in .html"),
        (("--report", "x.html", "--reduce", "success_rate"), "--report: a reduction has no points"),
        (("--report", "no/x.html"), "--report: the folder no does not exist"),
        (("--report", "x.html", "--hit-ratio", "0:1:n20000"), "grid points"),
    ],
)
def test_a_report_that_cannot_be_made_is_refused_first(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refused("sweep", *SMALL, "--request-rate", "0.1:1:n50", *arguments, "--p95-seconds", "1:9:n5")
    assert not list(tmp_path.iterdir())


def test_csv_has_a_row_for_each_policy_and_point(tmp_path: Path) -> None:
    file = tmp_path / "sweep.csv"
    done("sweep", *SMALL, "--dtype", "f8", "--output", file)
    rows = list(csv.DictReader(io.StringIO(file.read_text())))
    ds = kvsweep.sweep(hit_ratio="0,0.5,1", request_rate="0.01,0.02", p95_seconds="5:20:5", dtype="f8")
    assert len(rows) == ds["total_time"].size
    assert np.array_equal([float(row["total_time"]) for row in rows], ds["total_time"].values.ravel())
    row = rows[-1]
    point = ds.sel(policy=row["policy"]).sel({dim: float(row[dim]) for dim in ds["total_time"].dims[1:]})
    assert float(row["reassigned_hit_blocks"]) == float(point["reassigned_hit_blocks"])
    assert float(row["miss_blocks"]) == float(point["miss_blocks"])
    assert row["decision_mode"] == ds["decision_mode"].attrs["flag_meanings"].split()[int(point["decision_mode"])]
    assert (row["stack"], row["placement"]) == ("a100_ddr5_nvme", "disk")


def test_csv_of_a_reduction_has_the_dims_it_kept(tmp_path: Path) -> None:
    file = tmp_path / "reduced.csv"
    done("sweep", *SMALL, "--reduce", "success_rate", "--output", file)
    header, *rows = file.read_text().splitlines()
    assert header == "policy,stack,total_blocks,placement,hit_ratio,miss_blocks,success_rate"
    assert len(rows) == 3 * len(kvsweep.policies.load_policies().unasked(False))


def test_csv_past_a_million_rows_needs_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.csv"
    message = refused("sweep", "--p95-seconds", "1:1000:1", "--request-rate", "0.01:1:0.001", "--output", file)
    assert message.startswith(f"--output: {file} would have 43") and "--force" in message
    monkeypatch.setattr("kvsweep.results.table.MAX_ROWS", 10)
    assert "10 rows" in refused("sweep", *SMALL, "--output", file)
    done("sweep", *SMALL, "--output", file, "--force")
    assert file.exists()


def test_a_file_is_overwritten_only_by_force(tmp_path: Path) -> None:
    file = tmp_path / "x.nc"
    file.write_text("mine")
    assert "--force" in refused("sweep", *SMALL, "--output", file)
    assert file.read_text() == "mine"
    done("sweep", *SMALL, "--output", file, "--force")
    kvsweep.open(file).close()


# Axes and study files


@pytest.mark.parametrize("name", [*PART_FIELDS, *NUMBER_FIELDS])
def test_every_input_may_be_an_axis(name: str, tmp_path: Path) -> None:
    two = {
        "stack": "h200,a5000", "gpu": "H200,A100", "dram": "DDR5,DDR4", "disk": "SATA,NVMe", "link": "PCIe3,PCIe4",
        "model": "llama-3.1-8b,llama-3.1-70b", "hit_ratio": "0.5,1", "gpu_eta": "0.25:0.5:0.25",
        "attention_eta": "0.25,0.5", "memory_utilization": "0.5,0.9",
    }.get(name, "1:2:n2")  # fmt: skip
    file = tmp_path / "x.nc"
    done("sweep", dashed(name), two, "--output", file)
    with kvsweep.open(file) as ds:
        assert ds.sizes[name] == 2


def test_placements_repeat_and_expand(tmp_path: Path) -> None:
    file = tmp_path / "x.nc"
    done("sweep", *SMALL, "--placement", "disk,auto", "--placement", "manual:1,2,3", "--output", file)
    with kvsweep.open(file) as ds:
        assert ds["placement"].values.tolist() == ["disk", "auto", "manual:1,2,3"]
    assert as_json(*SMALL, "--placement", "simplex:3")["points"] == 24 * 10


STUDY = "stack: h200\nhit_ratio: [0, 0.5, 1]\nrequest_rate: 0.01,0.02\np95_seconds: '5:20:5'\n"


def test_a_study_is_the_same_as_its_options(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(STUDY)
    assert as_json(study) == as_json(*SMALL, "--stack", "h200")


def test_options_override_the_study(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(STUDY + "reduce: success_rate\n")
    assert as_json(study, "--stack", "a5000", "--p95-seconds", "5")["points"] == 6
    message = refused("sweep", study, "--hit-ratio", "2")
    assert message.startswith("--hit-ratio: 2")


@pytest.mark.parametrize(("of_file", "given"), [("hit_ratio", "miss_blocks"), ("miss_blocks", "hit_ratio")])
def test_hits_and_misses_replace_each_other(tmp_path: Path, of_file: str, given: str) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(f"{of_file}: 1\n")
    file = tmp_path / "x.nc"
    done("sweep", study, dashed(given), "0,1", "--output", file)
    with kvsweep.open(file) as ds:
        assert ds.sizes[given] == 2


@pytest.mark.parametrize("reduce", [(), ("--reduce", "success_rate,total_time_max", "--reduce-over", "hit_ratio")])
def test_the_stored_configuration_is_a_study(tmp_path: Path, reduce: tuple[str, ...]) -> None:
    policy = tmp_path / "mine.py"
    policy.write_text(GOOD_POLICY)
    first, second, study = tmp_path / "1.nc", tmp_path / "2.nc", tmp_path / "study.yaml"
    settings = ("--policy-file", policy, "--placement", "auto", "--placement", "simplex:2", "--dtype", "f8")
    done("sweep", *SMALL, *settings, "--link-bandwidth", "64GB/s", *reduce, "--output", first)
    with kvsweep.open(first) as ds:
        study.write_text(ds.attrs["kvsweep_config"])
        again = kvsweep.sweep(**yaml.safe_load(ds.attrs["kvsweep_config"]))
        assert again.drop_attrs().equals(ds.drop_attrs())
        done("sweep", study, "--output", second)
        with kvsweep.open(second) as other:
            assert other.drop_attrs().equals(ds.drop_attrs())
            assert other.attrs["kvsweep_config"] == ds.attrs["kvsweep_config"]


def test_policy_files_of_the_environment_yield_to_the_study(tmp_path: Path) -> None:
    for name in ("mine", "yours"):
        (tmp_path / f"{name}.py").write_text(GOOD_POLICY.replace("mine", name))
    study = tmp_path / "study.yaml"
    environment = {"KVSWEEP_POLICY_FILE": str(tmp_path / "yours.py")}
    study.write_text(STUDY)
    assert "yours" in as_json(study, env=environment)["policies"]
    study.write_text(STUDY + f"policy_files: {tmp_path / 'mine.py'}\n")
    policies = as_json(study, env=environment)["policies"]
    assert "mine" in policies and "yours" not in policies


def test_a_study_says_which_code_it_runs_before_it_runs_it(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    policy = "import os, pathlib\npathlib.Path(__file__).with_name('ran').touch()\n" + GOOD_POLICY
    (tmp_path / "far" / "mine.py").write_text(policy)
    study, ran = tmp_path / "far" / "study.yaml", tmp_path / "far" / "ran"
    for entry in ("policy_files: mine.py\n", "policy_files: [mine.py]\n"):
        study.write_text(STUDY + entry)
        message = refused("sweep", study, "--no-policy-files", "--dry-run")
        assert f"study.yaml: policy_files: {study.with_name('mine.py')}; allowed with --no-policy-files" in message
        assert not ran.exists()
    result = done("sweep", study, "--dry-run", "-q")  # beside the study, wherever the command is given
    assert (
        result.stderr == f"{study}: policy_files: runs {study.with_name('mine.py')}; --no-policy-files refuses that\n"
    )
    assert ran.exists()
    study.write_text(STUDY)
    done("sweep", study, "--no-policy-files", "--dry-run", "--policy-file", tmp_path / "far" / "mine.py")


def test_hardware_of_a_study_is_beside_it(tmp_path: Path) -> None:
    (tmp_path / "hw").mkdir()
    (tmp_path / "hw" / "links.yaml").write_text("slow: {name: Slow, bandwidth: 1.0e+9}\n")
    study = tmp_path / "study.yaml"
    study.write_text(STUDY + "hardware: hw\nlink: slow\n")
    done("sweep", study, "--dry-run")


# Summaries


def test_summary_json(tmp_path: Path) -> None:
    printed = as_json("--hit-ratio", "0:1:0.5", "--output", tmp_path / "x.nc", "--summary")
    assert printed["points"] == 3 * 30 * 12
    expected = summary_of(hit_ratio="0:1:0.5")
    assert {name: policy["success_rate"] for name, policy in printed["policies"].items()} == expected
    rates = kvsweep.sweep(hit_ratio="0:1:0.5").kvsweep.success_rate()
    for name, policy in printed["policies"].items():
        assert policy["success_rate_by_hit_ratio"] == rates.sel(policy=name).values.tolist()


def test_success_by_hit_ratio_needs_that_axis() -> None:
    def by_hit_ratio(*arguments: str) -> Any:
        return as_json(*arguments)["policies"]["all_compute"]["success_rate_by_hit_ratio"]

    assert len(by_hit_ratio(*SMALL)) == 3
    assert len(by_hit_ratio("--hit-ratio", "0.5")) == 1
    assert by_hit_ratio("--miss-blocks", "0,5") is None
    assert len(by_hit_ratio(*SMALL, "--reduce", "success_rate")) == 3
    assert by_hit_ratio(*SMALL, "--reduce", "success_rate", "--reduce-over", "hit_ratio") is None
    assert by_hit_ratio(*SMALL, "--reduce", "total_time_max") is None


def test_reductions_summarise_as_the_stored_grid_does() -> None:
    stored = as_json(*SMALL, "--dtype", "f8")["policies"]
    reduced = as_json(*SMALL, "--reduce", "success_rate,sufficient,total_time_max,total_time_mean")["policies"]
    ds = kvsweep.sweep(hit_ratio="0,0.5,1", request_rate="0.01,0.02", p95_seconds="5:20:5", dtype="f8")
    for name, policy in reduced.items():
        assert policy["success_rate"] == pytest.approx(stored[name]["success_rate"])
        assert policy["sufficient_share"] == pytest.approx(stored[name]["sufficient_share"])
        assert policy["total_time_max"] == float(ds["total_time"].sel(policy=name).max())
        assert policy["total_time_mean"] == pytest.approx(float(ds["total_time"].sel(policy=name).mean()))


def test_shares_of_the_simplest_sufficient_policy_are_those_of_the_accessor() -> None:
    printed = as_json()["policies"]
    indices = kvsweep.sweep().kvsweep.sufficient.values
    for index, policy in enumerate(printed.values()):
        assert policy["sufficient_share"] == np.mean(indices == index)


def test_summary_csv_has_a_row_overall_and_for_each_hit_ratio() -> None:
    rows = list(csv.DictReader(io.StringIO(done("sweep", *SMALL, "--format", "csv").stdout)))
    assert [row["hit_ratio"] for row in rows[:4]] == ["", "0.0", "0.5", "1.0"]


def test_the_table_says_in_words_which_policy_passes_most() -> None:
    output = done("sweep").stdout
    assert output.startswith("World reference (GPU A100")
    assert output.splitlines()[2].startswith("3960 points x")
    assert "IO-aware policy and Slowest tier first meet the SLO most often, at 34.7 % of the points:" in output
    assert "At 65.3 % of the points no policy does." in output
    assert "45.8 % (hit ratio 0.6)" in output
    assert max(map(len, output.splitlines())) <= 120
    assert "No policy meets the SLO at any point:" in done("sweep", "--p95-seconds", "1e-6").stdout


def test_a_result_always_appears(tmp_path: Path) -> None:
    assert done("sweep", *SMALL).stdout
    assert not done("sweep", *SMALL, "--output", tmp_path / "1.nc").stdout
    assert done("sweep", *SMALL, "--output", tmp_path / "2.nc", "--summary").stdout
    assert done("sweep", *SMALL, "--output", tmp_path / "3.nc", "--format", "table").stdout


def test_notes_are_on_stderr_and_quiet_hides_them(tmp_path: Path) -> None:
    arguments = ("sweep", *SMALL, "--dram", "DDR4", "--output", tmp_path / "x.nc", "--force")
    assert "--dram has no effect with placement disk" in done(*arguments).stderr.splitlines()
    assert done(*arguments, "--quiet").stderr == ""


def test_precision_without_effect_is_said() -> None:
    arguments = ("sweep", *SMALL, "--reduce", "success_rate", "--dtype", "f4")
    assert "--dtype has no effect with --reduce" in done(*arguments).stderr


def test_weights_larger_than_hbm_are_flagged(tmp_path: Path) -> None:
    file = tmp_path / "x.nc"
    assert "weights do not fit in HBM" in done("sweep", *SMALL, "--model-params", "1e12", "--output", file).stderr
    with kvsweep.open(file) as ds:
        assert int(ds["weights_fit"]) == 0


@pytest.mark.parametrize("threads", ["1", "2"])
def test_threads_do_not_change_the_result(threads: str) -> None:
    assert as_json("--threads", threads) == as_json()


# Dry runs


@pytest.mark.parametrize("suffix", ["nc", "csv"])
def test_a_dry_run_bounds_the_size_and_writes_nothing(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"x.{suffix}"
    arguments = ("--placement", "simplex:3", "--stack", "h200,a5000", "--output", file)
    expected = as_json("--dry-run", *arguments)
    assert list(tmp_path.iterdir()) == []
    assert expected["points"] == 20 * 3960 and expected["rows"] == expected["points"] * expected["policies"]
    done("sweep", *arguments)
    assert expected["file_bytes"] >= file.stat().st_size
    assert expected["seconds"] > 0.0


def test_a_dry_run_of_a_reduction_counts_what_is_kept() -> None:
    expected = as_json("--dry-run", "--reduce", "success_rate", "--request-rate", "0.01:1:n1000")
    assert expected["rows"] == 11 * expected["policies"] and expected["memory_bytes"] == 8 * expected["rows"]


def test_a_dry_run_in_words() -> None:
    names = [line.split()[0] for line in done("sweep", "--dry-run").stdout.splitlines()]
    assert names == ["points", "policies", "rows", "memory", "file", "time"]


def test_a_dry_run_makes_the_same_checks(tmp_path: Path) -> None:
    assert "does not exist" in refused("sweep", "--dry-run", "--output", tmp_path / "no" / "x.nc")
    assert refused("sweep", "--dry-run", "--gpu-eta", "2").startswith("--gpu-eta: ")


def test_grids_larger_than_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvsweep.grid.evaluate.available_memory", lambda: 1000.0)
    assert "of memory" in refused("sweep")
    result = run("sweep", "--dry-run")  # prints the numbers all the same
    assert result.exit_code == 2 and "memory" in result.stdout and "of memory" in result.stderr


# Failures


@pytest.mark.parametrize("suffix", ["nc", "csv"])
def test_a_full_disk_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    def full(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("xarray.Dataset.dump_to_store", full)
    monkeypatch.setattr("kvsweep.results.table.csv_rows", full)
    file = tmp_path / f"x.{suffix}"
    assert refused("sweep", *SMALL, "--output", file, code=1) == f"cannot write {file}: No space left on device"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="needs limits on the size of files")
@pytest.mark.parametrize("suffix", ["nc", "csv"])
def test_a_write_the_system_refuses_leaves_nothing(tmp_path: Path, suffix: str) -> None:
    code = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "import kvsweep.jit.policies\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))\n"
        f"from kvsweep.cli import main; main(['sweep', '--output', 'x.{suffix}'])"
    )
    done("sweep")  # kernels are compiled, so that only the result is written
    process = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert process.returncode == 1, process.stderr
    assert process.stderr.startswith(f"kvsweep: error: cannot write x.{suffix}: ")
    assert len(process.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="needs SIGINT")
@pytest.mark.parametrize("suffix", ["nc", "csv"])
def test_ctrl_c_leaves_nothing(tmp_path: Path, suffix: str) -> None:
    done("sweep", *SMALL)  # kernels are compiled
    code = (
        "import kvsweep.grid.evaluate as evaluate\n"
        "from kvsweep.cli import main\n"
        "slabs = evaluate.slabs\n"
        "def telling(*arguments):\n"
        "    print('evaluating', flush=True)\n"
        "    return slabs(*arguments)\n"
        "evaluate.slabs = telling\n"
        "main(['sweep', '--total-blocks', '1:100000:1', '--p95-seconds', '1:1000:1', '--request-rate', '0.01:1:0.01',\n"
        f"      '--hit-ratio', '1', '--reduce', 'success_rate', '--output', 'x.{suffix}'])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "evaluating\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert stderr == "kvsweep: error: interrupted\n"
    assert list(tmp_path.iterdir()) == []


def test_result_errors_are_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise ResultError("no luck")

    monkeypatch.setattr("kvsweep.grid.sweep.run_plan", fail)
    assert refused("sweep", code=1) == "no luck"


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_the_file_is_written_leaves_nothing(number: int, code: int, tmp_path: Path) -> None:
    axes = ["--hit-ratio", "0:1:n400", "--request-rate", "0.01:0.3:n200", "--p95-seconds", "5:60:n100", "-o", "x.nc"]
    command = [sys.executable, "-m", "kvsweep", "sweep", "-q", *axes]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        try:
            while process.poll() is None and not any(size > 100_000 for size in _sizes(tmp_path)):
                time.sleep(0.005)
            process.send_signal(number)
            assert process.wait(timeout=60) == code
        finally:
            process.kill()
    assert not list(tmp_path.iterdir())


def _sizes(folder: Path) -> list[int]:
    return [os.stat(path).st_size for path in folder.glob(".kvsweep-*") if path.exists()]


def test_the_summary_says_none_and_all_of_none_and_all_alone() -> None:
    """Axes of names are told one by one; blocks in tokens; a default that simulate has another of, as such."""
    easy = done("sweep", "--total-blocks", "10", "--stack", "h200,a5000").stdout
    assert "At every point at least one policy does." in easy and "stack           h200, a5000\n" in easy
    hard = done("sweep", "--total-blocks", "10000,90000", "--p95-seconds", "0.001", "--hit-ratio", "0.5").stdout
    assert "No policy meets the SLO at any point:" in hard and " 0 %" not in hard
    assert "total_blocks    10,000 to 90,000 (2) blocks of 16 tokens: 160,000 to 1,440,000 tokens\n" in hard
    assert "10,000 blocks of 16 tokens: 160,000 tokens; the default (of simulate: 50,000)\n" in done("sweep").stdout
