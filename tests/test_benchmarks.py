"""Every benchmark runs once, tiny; tables are made from kept figures."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks import figures, readme, run


@pytest.mark.parametrize("area", run.areas())
def test_benchmarks_run_tiny(area: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = run.measure(area, tiny=True)
    assert found and all(math.isfinite(figure.value) and figure.unit for figure in found)
    figures.print_figures(area, found)
    assert found[0].name in capsys.readouterr().out


def test_figures_survive_keeping(tmp_path: Path) -> None:
    kept = {"grid": [figures.Figure("a", 1.5, "s", "b", 2.0, 0.75, "<= 1", True), figures.Figure("c", 2.0, "s")]}
    figures.save(kept, tmp_path / "results.json")
    assert figures.load(tmp_path / "results.json")[1] == kept


@pytest.mark.parametrize(("ratios", "code"), [([1.2], 0), ([1.7, 1.2], 0), ([1.7, 1.6], 1)])
def test_a_bar_counts_as_missed_when_it_is_missed_twice(
    ratios: list[float], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left = [[figures.Figure("slow", ratio, "s", ratio=ratio).at_most(1.5)] for ratio in ratios]
    monkeypatch.setattr(run, "measure", lambda area, tiny: left.pop(0))
    monkeypatch.setattr(figures, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(figures, "save", lambda areas: None)
    assert run.main(["grid"]) == code and left == []
    assert ("bars missed twice: slow" in capsys.readouterr().out) == bool(code)


def test_ratios_are_of_works_run_in_turn() -> None:
    """A machine that slows down takes both works along: the ratio stands, those of medians apart would not."""
    ticks = iter([1.0, 2.0, 3.0, 6.0, 8.0, 16.0])
    one, other = figures.in_turn([lambda: next(ticks), lambda: next(ticks)], 3)
    figure = figures.beside("work", "ms", "other", (one, other), 1e3)
    assert (one, other) == ([1.0, 3.0, 8.0], [2.0, 6.0, 16.0])
    assert (figure.value, figure.baseline_value, figure.ratio) == (3000.0, 6000.0, 0.5)
    assert figure.at_most(0.5).passed and not figure.at_least(0.6).passed


def test_an_unknown_area_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["nothing"]) == 2
    assert "no area nothing; choose from" in capsys.readouterr().err


def test_the_readme_holds_the_tables_of_the_kept_figures() -> None:
    text = readme.README.read_text()
    assert "<!-- bench grid:" in text
    assert readme.filled(text) == text
