"""`make validate`: the README holds the kept errors, and without measurements there is nothing to do."""

from __future__ import annotations

import json

import pytest

from benchmarks import accuracy


def test_the_readme_holds_the_table_of_the_kept_errors() -> None:
    found = json.loads(accuracy.RESULTS.read_text())
    text = accuracy.README.read_text()
    assert "<!-- accuracy -->" in text
    assert accuracy.filled(text, found) == text


def test_the_kept_errors_meet_the_bars() -> None:
    found = json.loads(accuracy.RESULTS.read_text())
    assert all(value <= limit for value, limit in accuracy.bars(found).values())
    assert "MISSED" not in accuracy.printed(found)
    assert set(found["ablation"]) == set(accuracy.ABLATIONS)


def test_without_measurements_it_says_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KVSWEEP_DATA", raising=False)
    assert accuracy.main() == 0
    assert "skipped: KVSWEEP_DATA" in capsys.readouterr().err
