"""Every command that reads a trace may be told what its file leaves open, and says how it was read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvsweep.errors import InputError
from kvsweep.studies.traces import read_spec, spec_mapping
from tests.cli_runner import done, refused
from tests.studies.samples import study, written

CASES = Path(__file__).parents[1] / "trace" / "cases"
BURST = str(CASES / "burst_half_ms.jsonl")
TAKEN = "taken (64): times in s (--time-unit); blocks of 512 tokens (as documented)"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    done("cluster", "init")
    return tmp_path


def test_traces_of_studies_are_told_of_in_the_study_file() -> None:
    stated = {"file": BURST, "label": "burst", "time_unit": "s", "sessions": "full", "output_tokens": 9}
    spec = read_spec(stated, "study: trace")
    assert spec.make(Path(), 0).duration == 31.5 and spec_mapping(spec) == stated
    assert read_spec({"file": BURST}, "study").make(Path(), 0).duration == 0.0315
    with pytest.raises(InputError, match="study: trace: time_unit: no 'min'; .*choose from s, ms, us, ns"):
        read_spec({"file": BURST, "time_unit": "min"}, "study: trace")
    with pytest.raises(InputError, match=r"^block_size: 16; .* has no block ids; allowed: without it"):
        read_spec({"file": str(CASES / "over_context.csv"), "block_size": 16}, "study").make(Path(), 0)


def test_sweeps_say_how_each_trace_was_read_and_what_is_beyond_the_context(folder: Path) -> None:
    trace = [
        {"file": BURST, "time_unit": "s", "label": "burst"},
        {"file": str(CASES / "over_context.csv"), "label": "long"},
    ]
    path = written(folder, trace=trace, axes={"gateway": ["round_robin"]})
    said = done("cluster", "sweep", path, "--format", "json").stderr
    assert f"trace burst: {TAKEN}" in said and "trace long: taken (2): times in s (as documented)" in said
    beyond = (
        "trace long: prompt and answer of up to 200020 tokens, beyond the context of 40960 tokens (profile qwen3-8b)"
    )
    assert f"{beyond}: refused, as the engine does" in said


def test_runs_and_plans_take_the_options_and_say_what_they_took(folder: Path) -> None:
    files = ("--config", "cluster.yaml", "--profile", "profile.yaml")
    said = done("cluster", "run", BURST, *files, "--time-unit", "s", "--format", "mooncake", "-o", "run.nc").stderr
    assert TAKEN in said
    planned = done("cluster", "plan", BURST, *files, "--time-unit", "s", "--slo", "ttft=100s", "--format", "json")
    assert TAKEN in planned.stderr and json.loads(planned.stdout)
    long = done("cluster", "plan", CASES / "over_context.csv", *files, "--slo", "ttft=100s", "--attainment", "0.5")
    assert "dropped (1): prompt and answer beyond the context of 40960 tokens: refused" in long.stderr


def test_pictures_take_the_options_with_a_trace_alone(folder: Path) -> None:
    said = done("study", "capacity", "--trace", BURST, "--time-unit", "s", "--format", "json").stderr
    assert TAKEN in said
    assert (
        refused("study", "capacity", "--time-unit", "s") == "--time-unit: has no effect without --trace; allowed: both"
    )
    assert refused("study", "ttl", "--from", "agent").startswith("--from: has no effect without --trace")


def test_keys_of_cells_hold_the_context(folder: Path) -> None:
    from kvsweep.studies.running.cells import cell_key, cells
    from kvsweep.studies.study import parse_study

    keys = set()
    for context in ({}, {"beyond": "serve"}, {"tokens": 100}, {"tokens": 40_960}):
        values = study(axes={"gateway": ["round_robin"]})
        values["cluster"]["context"] = context
        checked = parse_study(values, "study")
        keys.add(cell_key(cells(checked)[0], "trace", checked))
    assert len(keys) == 3  # 40 960 is what the catalog has
