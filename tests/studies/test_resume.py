"""Studies that go on: kept files that were damaged, journals of other studies, failures that are tried again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kvsweep
from kvsweep.errors import ResultError
from kvsweep.studies.running.run import begin
from kvsweep.studies.running.workloads import Workloads
from kvsweep.studies.study import parse_study
from tests.cli_runner import done, refused, run
from tests.studies.samples import cluster, written
from tests.studies.samples import study as sample

KEEP = [{"gateway": "session_affinity", "host_tokens": 0}]


def stopped(monkeypatch: pytest.MonkeyPatch, path: Path, output: Path) -> None:
    """Run a study whose end is interrupted, so that its journal stays."""
    from kvsweep.studies.running import run as module

    with monkeypatch.context() as patch:
        patch.setattr(module, "CHECKPOINT_SECONDS", float("inf"))
        patch.setattr(module, "study_dataset", lambda outcome: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run("cluster", "sweep", path, "-o", output).exit_code == 130


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list that every simulation of a study from now on adds its number of requests to."""
    from kvsweep.studies.running import run as module

    calls: list[int] = []
    real = module.finish
    monkeypatch.setattr(module, "finish", lambda *a, **k: calls.append(len(a[0])) or real(*a, **k))
    return calls


def test_a_kept_file_that_was_damaged_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, output = written(tmp_path, keep=KEEP), tmp_path / "study.nc"
    stopped(monkeypatch, path, output)
    (kept,) = (tmp_path / "study.cells").iterdir()
    data = kept.read_bytes()
    kept.write_bytes(data[:-200])
    calls = counted(monkeypatch)
    done("cluster", "sweep", path, "-o", output, "-q")
    assert calls == [1, 79]
    with kvsweep.open(kept) as one:
        assert one.load().sizes["request"] > 1


def test_another_study_does_not_take_the_place_of_an_interrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, output = written(tmp_path), tmp_path / "study.nc"
    stopped(monkeypatch, path, output)
    journal = tmp_path / "study.nc.journal"
    before = journal.read_bytes()
    written(tmp_path, axes={"gateway": ["random", "round_robin"]})
    for more in ((), ("--partial",)):
        message = refused("cluster", "sweep", path, "-o", output, "-q", *more)
        assert "study.nc.journal: holds 4 simulations that are not of this study" in message
        assert "allowed: another --output, or --force" in message
    assert journal.read_bytes() == before and not output.exists()
    done("cluster", "sweep", path, "-o", output, "-q", "--force")
    with kvsweep.open(output) as ds:
        assert ds["gateway"].values.tolist() == ["random", "round_robin"] and not journal.exists()


def test_a_cell_without_memory_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kvsweep.studies.running import run as module

    path, output = written(tmp_path), tmp_path / "study.nc"
    real = module.finish

    def scarce(trace: Any, config: Any, *arguments: Any, **options: Any) -> Any:
        if len(trace) > 1 and config.gateway.policy == "session_affinity":
            raise MemoryError
        return real(trace, config, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(module, "finish", scarce)
        result = run("cluster", "sweep", path, "-o", output)
    assert result.exit_code == 1 and "out of memory; the same command tries it again" in result.stderr
    assert "resuming: 2 of 4" in done("cluster", "sweep", path, "-o", output).stderr
    with kvsweep.open(output) as ds:
        assert (ds["cell_state"] == 1).all() and not (tmp_path / "study.nc.journal").exists()


def test_figures_outlive_kept_files_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kvsweep.studies.running import run as module

    path, output, cells = written(tmp_path, keep=KEEP), tmp_path / "study.nc", tmp_path / "study.cells"
    cells.write_text("in the way")
    calls = counted(monkeypatch)
    assert "keep: cannot write" in refused("cluster", "sweep", path, "-o", output, "-q")
    assert calls == [] and not output.exists()
    cells.unlink()
    real = module.write_netcdf

    def full(ds: Any, file: Path) -> None:
        if file.parent == cells:
            raise ResultError(f"cannot write {file}: No space left on device")
        real(ds, file)

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_netcdf", full)
        message = refused("cluster", "sweep", path, "-o", output, "-q", code=1)
    assert "the requests of 1 cells could not be kept" in message and "No space left" in message
    with kvsweep.open(output) as ds:
        assert (ds["cell_state"] == 1).all()
    calls.clear()
    done("cluster", "sweep", path, "-o", output, "-q")
    assert calls == [1, 79] and len(list(cells.iterdir())) == 1


RETRIEVAL = """
name, label, description, color, order = "mine", "Mine", "Recomputes half.", "#123456", 50
recomputes, modes = "any", ("half", "none")
def decide(ctx):
    return 0.5 * ctx.hit_blocks, 0
"""
EDITS = [('"any"', '"tail"'), ('("half", "none")', '("none", "half")'), ("0.5", "0.25")]


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_policy_is_run_again(edit: tuple[str, str], tmp_path: Path) -> None:
    """In the same process, too: a notebook."""
    file = tmp_path / "mine.py"
    keys = []
    for text in (RETRIEVAL, RETRIEVAL, RETRIEVAL.replace(*edit)):
        file.write_text(text)
        study = parse_study(sample(cluster=cluster(retrieval={"policy": "mine"})), "study", policy_files=[file])
        keys.append(begin(study, Workloads(study)).keys)
    assert keys[0] == keys[1] and not set(keys[1]) & set(keys[2])
