"""What long commands tell of how far they are, where stderr is no terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvsweep.cli import progress
from tests.cli_runner import done
from tests.studies.samples import written


def test_a_line_tells_what_is_left_at_the_speed_so_far(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first call starts the clock: what was done before it took no time here."""
    now = iter([100.0, 105.0, 112.0, 113.0, 130.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    lines = progress.Lines("simulating")
    for finished in (40, 45, 52, 53, 70):
        lines.move(finished, 100)
    told = capsys.readouterr().err.splitlines()
    assert told == ["simulating: 52 of 100, about 48 s left", "simulating: 70 of 100, about 30 s left"]


def test_without_an_end_in_sight_the_count_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.0)
    lines = progress.Lines("sizes simulated")
    lines.move(1)
    lines.move(2)
    assert capsys.readouterr().err == "sizes simulated: 2\n"


def test_a_piped_study_tells_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.0)
    path = written(tmp_path)
    assert "simulating: 4 of 4, about 0 s left\n" in done("cluster", "sweep", path).stderr
    assert "simulating" not in done("cluster", "sweep", path, "-q").stderr
