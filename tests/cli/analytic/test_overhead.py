"""`kvsweep overhead` as users call it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

import kvsweep
from kvsweep.cli.analytic import overhead as command
from kvsweep.overhead.plan import make_overhead_plan
from tests.cli_runner import GOOD_POLICY, done, refused

TINY = (
    "overhead", "--pool-size", "5", "--combination-reps", "3", "--combination-rounds", "2", "--max-requests", "10",
    "--warmup-decisions", "5",
)  # fmt: skip
FIGURES = ("total", "per_request", "relative", "distribution")


def test_the_table_has_the_summary_of_each_path() -> None:
    out = done(*TINY).stdout
    assert "5 workload combinations x 3 reps x 2 rounds = 30 timed decisions" in out
    assert "Baseline (no decision logic): Restore, Recompute" in out
    for path in ("scalar", "jit_call", "jit_loop"):
        assert f"\n{path}: " in out
    for header in ("median", "mean", "p95", "max", "+median", "+mean", "x base", "% req", "Restore *"):
        assert header in out
    assert "IO-aware policy by decision mode: " in out
    assert "x base: mean cost over theirs" in out and "Harness: " in out


def test_files_and_figures(tmp_path: Path) -> None:
    output, prefix = tmp_path / "run.json", tmp_path / "run"
    result = done(*TINY, "-o", output, "--figure-prefix", prefix, "--paths", "jit_loop,scalar", "--stack", "h200")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["run.json", *(f"run_{name}.pdf" for name in FIGURES)]
    )
    assert all((tmp_path / f"run_{name}.pdf").read_bytes().startswith(b"%PDF") for name in FIGURES)
    assert f"wrote {output}" in result.stderr
    kept = json.loads(output.read_text())
    assert kept["hardware"]["gpu_key"] == "H200"
    assert kept["request_counts"] == [1, 3, 10]
    assert list(kept["summary"]) == ["scalar", "jit_loop"]
    summary = kept["summary"]["scalar"]["performance_aware"]
    assert set(summary["cost_us"]) == {"mean", "median", "p95", "min", "max", "stdev"}
    assert {"mean", "median", "p95", "max"} <= set(summary["added_us"])
    assert {"times_baseline", "percent_of_request_time"} <= set(summary)
    assert set(summary["by_decision_mode"]) <= {"balanced", "best_effort"}
    stream = kept["streams"]["scalar"]["performance_aware"]
    assert all(len(values) == 3 for values in stream.values())
    assert kept["host"]["cpu_model"] and kept["experiment"]["pool_size"] == 5


def test_netcdf_is_opened_and_json_and_csv_are_printed(tmp_path: Path) -> None:
    printed = done(*TINY, "--paths", "scalar", "--format", "json", "-o", tmp_path / "a.nc", "--quiet")
    assert printed.stderr == ""
    with kvsweep.open(tmp_path / "a.nc") as ds:
        assert ds.sizes["path"] == 1 and ds.sizes["request_count"] == 3
        assert ds.attrs["kvsweep_kind"] == "overhead"
    assert set(json.loads(printed.stdout)["summary"]) == {"scalar"}
    rows = list(csv.DictReader(io.StringIO(done(*TINY, "--paths", "scalar", "--format", "csv").stdout)))
    assert [row["policy"] for row in rows][:2] == ["performance_aware", "slowest_tier_first"]
    assert float(rows[0]["cost_us.median"]) > 0.0


def test_a_policy_of_the_user_is_timed_like_any_other(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(GOOD_POLICY)
    summary = json.loads(done(*TINY, "--policy-file", file, "--policies", "mine", "--format", "json").stdout)["summary"]
    assert {path: list(found) for path, found in summary.items()} == dict.fromkeys(
        ("scalar", "jit_call", "jit_loop"), ["default_policy", "all_compute", "mine"]
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--paths", "jit"), "--paths: no 'jit'"),
        (("--pool-size", "0"), "--pool-size: "),
        (("--max-requests", "many"), "--max-requests: "),
        (("--request-counts", "1,x"), "--request-counts: "),
        (("--request-counts", "11"), "--request-counts: 11 is more than --max-requests 10"),
        (("--seed", "1.5"), "--seed: "),
        (("--combination-reps", "-1"), "--combination-reps: "),
        (("--combination-rounds", "0"), "--combination-rounds: "),
        (("--warmup-decisions", "nan"), "--warmup-decisions: "),
        (("--baseline-policies", "default"), "did you mean 'default_policy'?"),
        (("--policies", "nobody"), "--policies: "),
        (("--gpu", "A1000"), "did you mean 'A100'?"),
        (("--gpu-count", "0"), "--gpu-count: "),
        (("--placement", "disc"), "--placement: "),
        (("--stack", "h200,a5000"), "--stack: 2 points"),
        (("--policy-file", "nowhere.py"), "--policy-file: nowhere.py: no such file"),
        (("--hardware", "nowhere"), "not a directory"),
        (("--output", "a.csv"), "--output: a.csv has no known suffix"),
        (("--output", "nowhere/a.nc"), "--output: the folder nowhere does not exist"),
        (("--figure-prefix", "nowhere/a"), "--figure-prefix: the folder nowhere does not exist"),
        (("--figure-prefix", "/"), "--figure-prefix: '/' is no prefix"),
        (("--format", "yaml"), "yaml"),
        (("--request-rate", "1"), "--request-rate"),
    ],
)
def test_what_cannot_be_used_is_refused_before_any_timing(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kvsweep.overhead.harness.run", lambda *given: pytest.fail("timed"))
    assert said in refused(*TINY, *arguments)
    assert not list(tmp_path.iterdir())


def test_files_are_kept_unless_forced(tmp_path: Path) -> None:
    for name in ("a.json", "a_relative.pdf"):
        (tmp_path / name).write_text("kept")
    assert "--output: " in refused(*TINY, "-o", tmp_path / "a.json")
    assert "--figure-prefix: " in refused(*TINY, "--figure-prefix", tmp_path / "a")
    assert (tmp_path / "a.json").read_text() == (tmp_path / "a_relative.pdf").read_text() == "kept"
    done(*TINY, "--paths", "scalar", "-o", tmp_path / "a.json", "--figure-prefix", tmp_path / "a", "--force")
    assert json.loads((tmp_path / "a.json").read_text())


def test_a_suffix_of_the_prefix_chooses_the_form(tmp_path: Path) -> None:
    done(*TINY, "--paths", "scalar", "--figure-prefix", tmp_path / "a.svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"a_{name}.svg" for name in FIGURES)


@pytest.mark.parametrize(
    ("seconds", "text"), [(180, "3 minutes"), (7200, "2 hours"), (3e5, "3 days"), (3.156e8, "10 years")]
)
def test_durations_have_the_unit_that_suits(seconds: float, text: str) -> None:
    assert command._duration(seconds) == text


def test_a_long_run_is_announced_and_a_short_one_is_not() -> None:
    small = {"max_requests": 10, "pool_size": 2, "combination_reps": 5}
    assert make_overhead_plan(small).seconds < command.LONG
    plan = make_overhead_plan({**small, "combination_reps": 1e9, "paths": "scalar"})
    assert plan.decisions == 400 * (1 + 3 + 10) + 3 * 2 * 10**9 and plan.seconds > command.LONG
