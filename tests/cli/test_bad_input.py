"""Everything a user can get wrong on the command line: one line that names the option or file, and nothing written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvsweep.cli.options import dashed
from kvsweep.costs.inputs import NUMBER_FIELDS, PART_FIELDS
from tests.cli_runner import GOOD_POLICY, done, refused, run

COMMANDS = ("simulate", "sweep")
ZERO_IS_FINE = {"setup_seconds", "total_blocks", "miss_blocks", "hit_ratio"}
INFINITY_IS_FINE = {"disk_capacity"}


@pytest.fixture(autouse=True)
def nothing_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in a folder that must hold the same files afterwards as when the command started."""
    monkeypatch.chdir(tmp_path)
    yield
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".nc", ".csv", ".json")]


def bad_numbers() -> Iterator[tuple[str, str]]:
    for name, field in NUMBER_FIELDS.items():
        yield from (
            (name, value) for value in ("-1", "nan", "-inf", "", " ", "many", "1 parsec", "1,,2", "1_0", "0x10")
        )
        if name not in ZERO_IS_FINE:
            yield name, "0"
        if name not in INFINITY_IS_FINE:
            yield from ((name, value) for value in ("inf", "1e300"))
        if field.whole:
            yield name, "1.5"
        yield from ((name, value) for value in ("1:2", "1:2:0", "2:1:1", "1:2:3:4", "1:2:n0", "1:2:nx", "log:0:1:n3"))
        yield from (
            (name, value) for value in ("1:2:1,3", "1,1", "1:1:n2", "0:1e308:1", "log:1:2:1", "nan:1:1", "1:inf:n3")
        )


@pytest.mark.parametrize("command", COMMANDS)
def test_bad_numbers_are_refused_by_name(command: str, tmp_path: Path) -> None:
    output = tmp_path / ("x.json" if command == "simulate" else "x.nc")
    for name, value in bad_numbers():
        message = refused(command, f"{dashed(name)}={value}", "--output", output)
        assert message.startswith(f"{dashed(name)}: "), (name, value, message)
        assert "allowed" in message or "is not a number" in message or "needs" in message, (name, value, message)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", [*PART_FIELDS, "policies"])
@pytest.mark.parametrize("value", ["", ",", "nonsense", "A100,", "x" * 300, "1"])
def test_bad_names_are_refused_by_name(command: str, name: str, value: str) -> None:
    message = refused(command, f"{dashed(name)}={value}")
    assert message.startswith(f"{dashed(name)}: ")
    assert "choose from" in message or "allowed" in message


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--stack", "h20", "did you mean 'h200'?"),
        ("--gpu", "A1000", "did you mean 'A100'?"),
        ("--policies", "default", "did you mean 'default_policy'?"),
        ("--policies", "all_compute,all_compute", "twice"),
        ("--stack", "h200,h200", "twice"),
        ("--placement", "disc", "allowed: disk, auto, manual:V,D,K"),
        ("--placement", "", "allowed: disk"),
        ("--placement", "manual:1,2", "allowed"),
        ("--placement", "manual:1,2,-3", "allowed"),
        ("--placement", "manual:nan,0,1", "allowed"),
        ("--placement", "simplex:0", "allowed"),
        ("--placement", "simplex:1e9", "allowed"),
        ("--placement", "disk,disk", "twice"),
        ("--hardware", "nowhere", "not a directory"),
        ("--hardware", "", "no catalog file"),
        ("--policy-file", "nowhere.py", "no such file"),
        ("--policy-file", "", "no such file"),
        ("--format", "yaml", "'table', 'json', 'csv'"),
        ("--output", "", "allowed"),
        ("--output", "x", "allowed"),
        ("--output", "x.parquet", "allowed"),
    ],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_bad_settings_are_refused_by_name(command: str, option: str, value: str, said: str) -> None:
    message = refused(command, f"{option}={value}")
    assert option in message and said in message


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--threads", "0", "allowed: a whole number 1 to 1024"),
        ("--threads", "-1", "allowed"),
        ("--threads", "1e9", "integer"),
        ("--threads", "99999999999999999999", "allowed"),
        ("--threads", "", "integer"),
        ("--dtype", "f2", "'f4', 'f8'"),
        ("--dtype", "", "'f4', 'f8'"),
        ("--reduce", "", "allowed"),
        ("--reduce", "succes_rate", "did you mean 'success_rate'?"),
        ("--reduce", "sufficient,sufficient", "twice"),
        ("--reduce-over", "hit_ratio", "without --reduce"),
    ],
)
def test_bad_settings_of_a_sweep_are_refused_by_name(option: str, value: str, said: str) -> None:
    message = refused("sweep", f"{option}={value}")
    assert option in message and said in message


@pytest.mark.parametrize("value", ["", "hit_rate", "miss_blocks", "hit_ratio,hit_ratio"])
def test_reducing_over_dims_that_are_not_there(value: str) -> None:
    assert refused("sweep", "--reduce=success_rate", f"--reduce-over={value}").startswith("--reduce-over: ")


@pytest.mark.parametrize("command", COMMANDS)
def test_hits_and_misses_exclude_each_other(command: str) -> None:
    message = refused(command, "--hit-ratio", "0.5", "--miss-blocks", "5")
    assert "--hit-ratio" in message and "--miss-blocks" in message


@pytest.mark.parametrize("command", COMMANDS)
def test_more_missing_than_there_are(command: str) -> None:
    message = refused(command, "--total-blocks", "100,200", "--miss-blocks", "150")
    assert message.startswith("--miss-blocks: 150 is more than --total-blocks 100")


@pytest.mark.parametrize("option", ["--request-rate", "--p95-seconds", "--gpu-count", "--gpu-eta"])
def test_simulate_takes_one_value_of_what_is_no_request_size(option: str) -> None:
    message = refused("simulate", f"{option}=0.5,1" if option == "--gpu-eta" else f"{option}=1,2")
    assert message.startswith(f"{option}: 2 points; allowed: one")


@pytest.mark.parametrize("value", ["simplex:2", "disk,auto"])
def test_simulate_takes_one_placement(value: str) -> None:
    assert refused("simulate", "--placement", value).startswith("--placement: ")


@pytest.mark.parametrize(
    ("study", "said"),
    [
        ("hit_ratio: [0, 0.5", "study.yaml:"),
        ("hit_ratio: 0\nhit_ratio: 1\n", "study.yaml:2: key 'hit_ratio' given twice"),
        ("hit_rate: 0.5\n", "study.yaml: no 'hit_rate'; did you mean 'hit_ratio'?"),
        ("hit_ratio:\n", "study.yaml: hit_ratio has no value"),
        ("hit_ratio: []\n", "study.yaml: hit_ratio: the axis has no points"),
        ("hit_ratio: 2\n", "study.yaml: hit_ratio: 2 is out of range"),
        ("hit_ratio: .nan\n", "study.yaml: hit_ratio: nan is out of range"),
        ("hit_ratio: {a: 1}\n", "study.yaml: hit_ratio: "),
        ("hit_ratio: [[0, 1]]\n", "study.yaml: hit_ratio: "),
        ("hit_ratio: true\n", "study.yaml: hit_ratio: "),
        ("p95_seconds: 2020-01-01\n", "study.yaml: p95_seconds: "),
        (f"total_blocks: 1{'0' * 400}\n", "study.yaml: total_blocks: "),
        ("hit_ratio: 0.5\nmiss_blocks: 3\n", "study.yaml: miss_blocks: give either"),
        ("stack: 5\n", "study.yaml: stack: 5 is not a name"),
        ("stack: [h200, 5]\n", "study.yaml: stack: 5 is not a name"),
        ("stack: [h20]\n", "study.yaml: stack: no 'h20'; did you mean 'h200'?"),
        ("placement: 5\n", "study.yaml: placement: 5 is not a placement"),
        ("placement: []\n", "study.yaml: placement: the axis has no points"),
        ("policies: []\n", "study.yaml: policies: "),
        ("policies: 5\n", "study.yaml: policies: "),
        ("policy_files: 5\n", "study.yaml: policy_files: "),
        ("policy_files: [nowhere.py]\n", "study.yaml: policy_files: nowhere.py: no such file"),
        ("hardware: {a: b}\n", "study.yaml: hardware: "),
        ("dtype: f2\n", "study.yaml: dtype: 'f2'; allowed: f4, f8"),
        ("dtype: [f4]\n", "study.yaml: dtype: "),
        ("squeeze: 'no'\n", "study.yaml: squeeze: 'no'; allowed: true, false"),
        ("threads: two\n", "study.yaml: threads: 'two'; allowed"),
        ("threads: true\n", "study.yaml: threads: True; allowed"),
        ("reduce: 5\n", "study.yaml: reduce: "),
        ("reduce: [nothing]\n", "study.yaml: reduce: no 'nothing'"),
        ("reduce_over: hit_ratio\n", "study.yaml: reduce_over: has no effect without"),
        ("output: x.nc\n", "study.yaml: no 'output'"),
        ("- hit_ratio\n", "study.yaml: "),
        ("1: 2\n", "study.yaml: key 1 is not text"),
        ("hit_ratio: !!python/object/apply:os.system ['touch owned.csv']\n", "study.yaml:1: "),
        ("&a [*a]\n", "study.yaml:1: a value that holds itself"),
        ("\x00", "study.yaml: "),
    ],
)
def test_bad_studies_are_refused_by_file_and_place(study: str, said: str) -> None:
    Path("study.yaml").write_text(study)
    assert refused("sweep", "study.yaml", "--output", "x.nc").startswith(said)


def test_a_study_that_is_not_there_or_no_file() -> None:
    assert refused("sweep", "nowhere.yaml") == "nowhere.yaml: No such file or directory"
    assert refused("sweep", ".") == ".: Is a directory"


BROKEN_POLICIES = {
    "syntax": ("def decide(ctx:\n", "SyntaxError in line 1"),
    "no metadata": ("def decide(ctx):\n    return 0.0, 'a'\n", "name is missing"),
    "raises at import": ("1 / 0\n", "ZeroDivisionError"),
    "exits at import": ("import sys; sys.exit(3)\n", "SystemExit: 3"),
    "binary": ("\x00", "left out"),
    "taken name": (GOOD_POLICY.replace("mine", "all_compute"), "already taken"),
    "cannot be compiled": (GOOD_POLICY.replace("0.5 *", "float(open('x').read()) *"), "mine"),
    "raises": (GOOD_POLICY.replace("0.5 *", "[][0] *"), "mine"),
    "NaN": (GOOD_POLICY.replace("0.5 *", "float('nan') *"), "mine"),
    "unknown mode": (GOOD_POLICY.replace('hits, "half"', 'hits, "whole"').replace(', "half"\n', ', "whole"\n'), "mine"),
    "mode out of range": (GOOD_POLICY.replace(', "half"\n', ", 7\n"), "mine"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", BROKEN_POLICIES)
def test_a_broken_policy_is_named_and_breaks_no_other(command: str, kind: str) -> None:
    source, reason = BROKEN_POLICIES[kind]
    Path("broken.py").write_text(source)
    arguments = (command, "--policy-file", "broken.py", "--format", "json")
    result = done(*arguments)
    left_out = [line for line in result.stderr.splitlines() if "left out" in line]
    assert len(left_out) == 1 and "broken.py" in left_out[0] and reason in left_out[0]
    assert '"default_policy"' in result.stdout and '"mine"' not in result.stdout
    assert run(*arguments, "--quiet").stderr.splitlines() == left_out


@pytest.mark.parametrize("command", COMMANDS)
def test_only_a_broken_policy_is_an_error(command: str) -> None:
    Path("broken.py").write_text(BROKEN_POLICIES["NaN"][0])
    message = refused(command, "--policy-file", "broken.py", "--policies", "mine", "--quiet")
    assert message.startswith("no policy can be evaluated: left out: policy mine (policy file broken.py)")


@pytest.mark.parametrize("command", COMMANDS)
def test_outputs_are_checked_before_any_work(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*args: object, **options: object) -> None:
        raise AssertionError("computed before the output was checked")

    monkeypatch.setattr("kvsweep.grid.simulate.simulate_plan", forbidden)
    monkeypatch.setattr("kvsweep.grid.sweep.run_plan", forbidden)
    suffix = ".json" if command == "simulate" else ".nc"
    folder = tmp_path / f"folder{suffix}"
    folder.mkdir()
    assert "is a folder" in refused(command, "--output", folder)
    folder.rmdir()
    there = tmp_path / "there"
    there.write_text("a file, no folder")
    assert "does not exist" in refused(command, "--output", tmp_path / "nowhere" / f"x{suffix}")
    assert "does not exist" in refused(command, "--output", there / f"x{suffix}")
    assert "too long" in refused(command, "--output", tmp_path / f"{'x' * 300}{suffix}")
    assert there.read_text() == "a file, no folder"


@pytest.mark.parametrize("name", ["disk_bandwidth", "link_bandwidth", "model_params", "bytes_per_block", "gpu_eta"])
def test_numbers_too_small_to_divide_by_are_refused(name: str) -> None:
    assert refused("simulate", dashed(name), "1e-320").startswith(f"{dashed(name)}: 1e-320 is out of range; allowed: ")


def test_colons_in_a_study_are_no_base_60(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text("gpu_count: 1:8:1\ntotal_blocks: 010\n")
    output = done("sweep", "study.yaml").stdout
    assert "gpu_count       1 to 8 (8)" in output and "total_blocks    10 blocks" in output
    (tmp_path / "study.yaml").write_text("p95_seconds: 1:30.5\n")
    assert refused("sweep", "study.yaml").startswith("study.yaml: p95_seconds: '1:30.5' is not an axis")


@pytest.mark.parametrize("name", ["dtype", "squeeze", "hardware", "policy_files", "threads", "gpu", "hit_ratio"])
def test_aliases_that_multiply_are_refused_at_once(name: str, tmp_path: Path) -> None:
    bomb = "&a [1, 1, 1, 1, 1, 1, 1, 1, 1]"
    for last, this in zip("abcd", "bcde", strict=True):
        bomb += f", &{this} [{', '.join([f'*{last}'] * 9)}]"
    (tmp_path / "study.yaml").write_text(f"{name}: [{bomb}]\n")
    assert refused("sweep", "study.yaml").startswith(f"study.yaml: {name}: ")


@pytest.mark.parametrize("value", ["{0.5: 1}", "{a: [0.5]}"])
def test_what_has_no_order_of_points_is_no_axis(value: str, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(f"hit_ratio: {value}\n")
    assert "is not an axis; allowed: a number, a list" in refused("sweep", "study.yaml")


@pytest.mark.parametrize("epoch", ["soon", "9" * 20])
def test_a_time_that_is_none_is_refused_before_any_work(epoch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    assert refused("sweep", "--output", "x.nc").startswith(f"SOURCE_DATE_EPOCH: '{epoch}'; allowed: ")
