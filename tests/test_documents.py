"""Documents say what is so: every command runs from top to bottom, examples are true, names are complete."""

from __future__ import annotations

import doctest
import re
import shlex
import socket
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given

from kvsweep.policies import Context, load_policies
from kvsweep.results.names import NAMES
from tests.calibrate.run_samples import profile, serve, write_run
from tests.calibrate.test_database import write_database
from tests.calibrate.test_services import splitwise_csv
from tests.cli_runner import run
from tests.policies.test_policies import granularity, requests

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
DOCUMENTS = (
    "README.md",
    "CONTRIBUTING.md",
    *(str(path.relative_to(ROOT)) for path in ROOT.glob("kvsweep/**/README.md")),
)
NOT_RUN = ("make ", "bash .ci/run")
"""Commands of the checkout, which run this test."""
# A billion points take half a minute and are measured by the benchmarks.
TOO_LARGE = "n1000 --request-rate"


def blocks(document: str) -> list[tuple[str, str]]:
    """Return the code blocks of a document: what stands behind the fence, and the text."""
    return re.findall(r"^```([^\n]*)\n(.*?)^```$", (ROOT / document).read_text(), flags=re.S | re.M)


def files(document: str) -> dict[str, str]:
    """Return the files whose text a document shows: named in the first line (# study.yaml), or behind the fence."""
    found = {}
    for fence, text in blocks(document):
        first = re.match(r"# (\S+\.\w+)\n", text)
        if first or len(fence.split()) == 2:
            found[first[1] if first else fence.split()[1]] = text
    return found


def commands(document: str = "README.md") -> list[str]:
    """Return every command of a document as one line: blocks without a language, or of bash, hold nothing else."""
    text = "\n".join(text for fence, text in blocks(document) if fence in ("", "bash")).replace("\\\n", " ")
    lines = [re.split(r"\s+# ", line)[0].strip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return what gives the folder a document is followed in, with the files it shows and the measurements it names."""

    @cache
    def of(document: str) -> Path:
        path = tmp_path_factory.mktemp("document")
        for name, text in files(document).items():
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).write_text(text)
        if any(re.search(r"RUN/|DATABASE/", line) for line in commands(document)):
            _measure(path)
        return path

    return of


def _measure(folder: Path) -> None:
    """Put made measurements where the documents name published ones, or one's own."""
    steps = profile(folder / "KERNEL_PROFILE")
    write_database(folder / "DATABASE")
    splitwise_csv(folder / "perf_model.csv")
    _, workload = write_run(folder / "RUN", *serve(steps))
    workload.rename(folder / "workload.jsonl")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_runs(document: str, folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """From top to bottom, in an empty folder with the files the document shows, without a network."""
    monkeypatch.chdir(folder(document))
    monkeypatch.setattr(socket.socket, "connect", _no_network)
    for command in commands(document):
        if command.startswith(NOT_RUN) or TOO_LARGE in command:
            continue
        assert command.startswith("kvsweep "), f"no command of kvsweep: {command}"
        result = run(*shlex.split(command)[1:])
        assert result.exit_code == 0, f"{command}\n{result.output}"


def _no_network(*_: object) -> None:
    raise OSError("the network is off")


def test_the_shown_output_is_the_real_one() -> None:
    shown = next(text for fence, text in blocks("README.md") if fence == "text")
    command = next(line for line in commands() if line.startswith("kvsweep simulate --stack h200 --total-blocks"))
    assert run(*shlex.split(command)[1:]).stdout.strip() == shown.strip()


def test_the_python_examples_are_true() -> None:
    failed, tried = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert tried >= 4 and failed == 0


@given(ctx=requests())
def test_the_worked_example_takes_the_least_k_that_meets_the_slo(ctx: Context, folder: Callable[[str], Path]) -> None:
    policy = load_policies([folder("README.md") / "greedy_restore.py"])["greedy_restore"]
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
