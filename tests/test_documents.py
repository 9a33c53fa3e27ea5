"""README and NOMENCLATURE say what is so: examples run, names are complete."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given

from kvsweep.policies import Context, load_policies
from kvsweep.results.names import NAMES
from tests.cli_runner import run
from tests.policies.test_policies import granularity, requests

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, flags=re.S)

# A billion points take half a minute and are measured by the benchmarks.
TOO_LARGE = "n1000 --request-rate"


def commands() -> list[str]:
    """Return every kvsweep command of the README as one line."""
    text = "\n".join(body for language, body in BLOCKS if not language).replace("\\\n", " ")
    lines = [line.split("  #")[0].strip() for line in text.splitlines() if line.startswith("kvsweep ")]
    return [line for line in lines if TOO_LARGE not in line]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files the commands of the README name."""
    path = tmp_path_factory.mktemp("readme")
    (policy,) = (body for language, body in BLOCKS if body.startswith("# greedy_restore.py"))
    (path / "greedy_restore.py").write_text(policy)
    (path / "study.yaml").write_text("stack: h200\nhit_ratio: '0:1:0.5'\n")
    axes = "axes:\n  gateway: [round_robin, random]\n  ttl: [1, .inf]\n"
    (path / "grid.yaml").write_text(f"cluster: cluster.yaml\nprofile: profile.yaml\ntrace: coding.jsonl\n{axes}")
    (path / "my-hardware").mkdir()
    (path / "my-hardware" / "disks.yaml").write_text(
        "MyDrive:\n  name: My drive\n  bandwidth: 1.2e+10\n  capacity: 4.0e+12\n"
    )
    return path


@pytest.mark.parametrize("command", commands())
def test_every_command_runs(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    result = run(*shlex.split(command)[1:])
    assert result.exit_code == 0, result.output


def test_the_shown_output_is_the_real_one() -> None:
    shown = next(body for _, body in BLOCKS if body.startswith("Deployment"))
    command = next(line for line in commands() if line.startswith("kvsweep simulate --stack h200 --total-blocks"))
    assert run(*shlex.split(command)[1:]).stdout.strip() == shown.strip()


def test_the_python_examples_are_true() -> None:
    failed, tried = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert tried >= 4 and failed == 0


@given(ctx=requests())
def test_the_worked_example_takes_the_least_k_that_meets_the_slo(ctx: Context, folder: Path) -> None:
    policy = load_policies([folder / "greedy_restore.py"])["greedy_restore"]
    k, mode = policy.choose(ctx)
    splits = [ctx.hit_blocks * step / 64 for step in range(65)]
    if mode == "greedy":
        assert ctx.max_violation(k) == 0.0
        assert all(ctx.max_violation(less) > 0.0 for less in splits if less < k * (1 - 1e-9))
    else:
        hair = granularity(ctx) * max(ctx.request_rate, 1.0 / ctx.p95_seconds)
        assert all(ctx.max_violation(k) <= ctx.max_violation(other) * (1 + 1e-9) + hair for other in splits)


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 220


def test_every_name_in_files_is_explained() -> None:
    text = (ROOT / "NOMENCLATURE.md").read_text()
    for name, (units, meaning) in NAMES.items():
        assert f"| `{name}` | {units or 'text'} | {meaning} |" in text
