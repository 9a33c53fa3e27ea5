"""The profiles that come with kvsweep: what they state, how they are named, and that one command makes each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import profiles
from kvsweep.cluster.inputs.profiles import find_profile, read_any_profile, shipped
from kvsweep.cluster.inputs.service_profile import Profile
from kvsweep.errors import InputError
from tests.cli_runner import run as kvsweep

LICENCES = ("MIT", "Apache-2.0")


@pytest.mark.parametrize("name", sorted(shipped()))
def test_a_shipped_profile_states_where_it_is_from(name: str) -> None:
    profile = read_any_profile(shipped()[name])
    assert any(licence in profile.note for licence in LICENCES)
    assert isinstance(profile, Profile) == name.endswith("-service")
    lines = json.loads(kvsweep("calibrate", "check", name, "--format", "json").stdout)
    measured = [line for line in lines if line["rows"]]
    assert all(line["source"] and line["boundary"] for line in lines)
    assert measured and all(line["rows"] >= line["held_out_rows"] > 0 for line in measured)
    assert all(line["held_out_error"] < 0.05 for line in measured)
    assert shipped()[name].stat().st_size < 80_000


def test_each_is_made_by_a_command_that_is_known() -> None:
    assert set(profiles.PROFILES) == set(shipped())


def test_differences_are_found_where_they_are() -> None:
    a = {"x": [1.0, 2.0], "y": {"z": "text", "n": 3}}
    assert profiles.difference(a, {"x": [1.0, 2.001], "y": {"z": "text", "n": 3}}) == ""
    assert profiles.difference(a, {"x": [1.0, 2.1], "y": {"z": "text", "n": 3}}) == "/x/1: 2.0 | 2.1"
    assert profiles.difference(a, {"x": [1.0], "y": {"z": "text", "n": 3}}) == "/x: 2 | 1 values"
    assert profiles.difference(a, {"x": [1.0, 2.0], "y": {"z": "other", "n": 3}}) == "/y/z: text | other"
    assert profiles.difference(a, {"x": [1.0, 2.0]}) == ": fields x, y | x"


def test_without_data_there_is_nothing_to_make(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KVSWEEP_DATA", raising=False)
    assert profiles.main([]) == 0 and "skipped: KVSWEEP_DATA" in capsys.readouterr().err


def test_names_and_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = "h100-sxm-llama-2-70b-tp8-service"
    assert find_profile(name) == shipped()[name]
    assert find_profile("none.yaml") == Path("none.yaml") and find_profile(f"x/{name}") == Path(f"x/{name}")
    (tmp_path / name).write_text("")
    assert find_profile(name) == Path(name)  # what exists goes before what is shipped
    with pytest.raises(InputError, match="did you mean 'h100-sxm-llama-2-70b-tp8-service'"):
        find_profile("h100-sxm-llama-2-70b-tp8-servise")


def test_a_cluster_runs_on_a_shipped_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert kvsweep("cluster", "init", "--tp", "8").exit_code == 0
    assert kvsweep("trace", "generate", "--preset", "qa", "--sessions", "3", "-o", "t.jsonl").exit_code == 0
    done = kvsweep(
        "cluster", "run", "t.jsonl", "--config", "cluster.yaml", "--profile", "h100-sxm-llama-2-70b-tp8-service",
        "-o", "run.nc",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    refused = kvsweep(
        "cluster", "run", "t.jsonl", "--config", "cluster.yaml", "--profile", "h100-sxm-llama-3.1-8b", "-o", "x.nc"
    )
    assert refused.exit_code == 2 and "allowed: a profile of service models" in refused.output
