"""Every benchmark runs once, tiny; tables are made from kept figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import figures, readme, run


@pytest.mark.parametrize("area", run.areas())
def test_benchmarks_run_tiny(area: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = run.measure(area, tiny=True)
    assert found and all(figure.value >= 0 and figure.unit for figure in found)
    figures.print_figures(area, found)
    assert found[0].name in capsys.readouterr().out


def test_figures_survive_keeping(tmp_path: Path) -> None:
    kept = {"grid": [figures.Figure("a", 1.5, "s", "b", 2.0, 0.75, "<= 1", True), figures.Figure("c", 2.0, "s")]}
    figures.save(kept, tmp_path / "results.json")
    assert figures.load(tmp_path / "results.json")[1] == kept


def test_an_unknown_area_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["nothing"]) == 2
    assert "no area nothing; choose from" in capsys.readouterr().err


def test_the_readme_holds_the_tables_of_the_kept_figures() -> None:
    text = readme.README.read_text()
    assert "<!-- bench grid:" in text
    assert readme.filled(text) == text
