"""The `kvsweep` group: help, version, errors and exit codes, quick imports, pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

import kvsweep
from kvsweep.cli import app
from kvsweep.errors import InputError, ResultError
from tests.cli_runner import GOOD_POLICY, done, refused, run

HEAVY = ("numpy", "numba", "xarray", "matplotlib", "netCDF4")


def python(*arguments: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
    # Unbuffered, Python itself swallows the error of a half written line.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.Popen([sys.executable, *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True, env=env)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], *([name, "-h"] for name in app.COMMANDS)], ids=" ".join
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; from kvsweep.cli import main\n"
        f"try: main({arguments})\nexcept SystemExit as end: assert not end.code\n"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    process = python("-c", code)
    _, stderr = process.communicate(timeout=60)
    assert stderr.strip() == "[]"


def test_help_lists_every_command_with_its_purpose() -> None:
    output = done("-h").stdout
    for name in app.COMMANDS:
        line = next(line for line in output.splitlines() if line.strip().startswith(name))
        assert len(line.split()) > 3


def test_version() -> None:
    assert done("--version").stdout == f"kvsweep {kvsweep.__version__}\n"


def test_runs_as_a_module() -> None:
    process = python("-m", "kvsweep", "--version")
    assert process.communicate(timeout=60) == (f"kvsweep {kvsweep.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["simulat"], "did you mean 'simulate'?"),
        (["swep"], "did you mean 'sweep'?"),
        (["qqq"], "choose from catalog, simulate, sweep"),
        (["--debu"], "'--debug'"),
        (["simulate", "--pu"], "--pu"),
        (["simulate", "--request-rte", "1"], "'--request-rate'"),
        (["sweep", "--hit-ration", "1"], "'--hit-ratio'"),
        (["simulate", "extra"], "extra"),
        (["sweep", "--stack"], "--stack"),
    ],
)
def test_usage_errors_are_one_line_and_suggest_the_nearest(arguments: list[str], said: str) -> None:
    assert said in refused(*arguments)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """A list whose exception `kvsweep simulate` then raises."""
    raised: list[BaseException] = []

    @click.command
    def simulate() -> None:
        raise raised[0]

    monkeypatch.setattr("kvsweep.cli.analytic.simulate.simulate", simulate)
    return raised


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (InputError("--gpu: no"), 2, "--gpu: no"),
        (ResultError("cannot write x"), 1, "cannot write x"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 1, "out of memory"),
        (OSError(28, "No space left on device", "x.nc"), 1, "No space left on device: x.nc"),
        (ZeroDivisionError("two\nlines"), 1, "unexpected ZeroDivisionError: two lines"),
    ],
)
def test_every_failure_is_one_line_and_a_code(
    failing: list[BaseException], error: BaseException, code: int, message: str
) -> None:
    failing.append(error)
    assert refused("simulate", code=code).startswith(message)


def test_debug_shows_the_traceback_wherever_it_stands(failing: list[BaseException]) -> None:
    failing.append(ZeroDivisionError("why"))
    for arguments in (["--debug", "simulate"], ["simulate", "--debug"]):
        result = run(*arguments)
        assert result.exit_code == 1
        assert "Traceback" in result.stderr
        assert result.stderr.splitlines()[-1].startswith("kvsweep: error: unexpected ZeroDivisionError")


def test_a_reader_that_leaves_is_no_error() -> None:
    process = python("-m", "kvsweep", "simulate", "--total-blocks", "1:3000:1", "--format", "json")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=60) == 1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /dev/full")
def test_a_full_stdout_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        process = python("-m", "kvsweep", "--version", stdout=full.fileno())
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert stderr == "kvsweep: error: No space left on device\n"


@pytest.mark.parametrize("closing", ["os.close(1)", "os.close(2)", "os.close(1); os.close(2)"])
def test_closed_streams_are_no_error(closing: str) -> None:
    run_in_it = f"{closing}; os.execv(sys.executable, [sys.executable, '-m', 'kvsweep', 'sweep', '--format', 'json'])"
    process = python("-c", f"import os, sys; {run_in_it}")
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr


def test_no_arguments_show_the_help() -> None:
    assert done().stdout == done("--help").stdout


def test_a_full_disk_behind_stderr_loses_neither_result_nor_exit_code(tmp_path: Path) -> None:
    output = tmp_path / "s.json"
    with open("/dev/full", "w") as full:
        for arguments, code in ((("--gpu", "none"), 2), (("-o", str(output)), 0)):
            command = [sys.executable, "-m", "kvsweep", "simulate", *arguments]
            ended = subprocess.run(command, stderr=full, stdout=subprocess.DEVNULL, timeout=60)
            assert ended.returncode == code
    assert output.is_file()


def test_empty_entries_of_a_variable_with_files_are_none(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(GOOD_POLICY)
    variable = f"{tmp_path / 'p.py'}{os.pathsep}"
    result = done("simulate", "--policies", "mine", "-q", "--format", "json", env={"KVSWEEP_POLICY_FILE": variable})
    assert '"mine"' in result.stdout
