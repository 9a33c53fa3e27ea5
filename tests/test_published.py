"""Predictions beside public measurements, as they were last made; here without the data."""

import json
from typing import Any

import pytest

from benchmarks import published

FOUND: dict[str, Any] = json.loads(published.RESULTS.read_text())


def missed(kind: str, limit: float) -> set[str]:
    rows = (each for each in FOUND["judged"] if each["kind"] == kind and published.factor(each) > limit)
    return {" ".join(row["source"].split()[:2]) for row in rows}


@pytest.mark.parametrize("document", [published.README, published.COSTS])
def test_the_tables_are_the_last_run_s(document: Any) -> None:
    text = document.read_text()
    assert "<!-- published" in text and published.filled(text, FOUND) == text


def test_the_last_run_is_what_is_predicted_today() -> None:
    known = published.cases()
    for row in (*FOUND["judged"], *FOUND["apart"]):
        case = next(case for case in known if case.holds(row))
        tokens = 1000.0 if row["tokens"] == "-" else float(row["tokens"])
        found = case.quantity(tokens) if callable(case.quantity) else None
        if not callable(case.quantity):
            found = published.simulated(case.options, tokens)[case.quantity]
        assert (found, case.kind) == (pytest.approx(row["predicted"], rel=1e-9), row["kind"]), row["source"]
    assert [published._verdict(each)["predicted"] for each in published.VERDICTS] == [
        each["predicted"] for each in FOUND["verdicts"]
    ]


def test_what_is_missed_is_known() -> None:
    assert missed("recompute", published.CLOSE) == {"Mooncake docs", "dynamo issue", "sglang issue"}
    assert missed("recompute", published.FAR) == {"Mooncake docs"}
    assert missed("restore", published.CLOSE) == missed("capacity", 1.1) == missed("bytes", 1.1) == set()
    wrong = [each["source"] for each in FOUND["verdicts"] if each["predicted"] != each["measured"]]
    assert wrong == ["LMCache issue 1131"]


def test_rows_that_are_not_predicted_say_why(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVSWEEP_DATA", str(tmp_path))
    assert published.main() == 0
    table = tmp_path / "measured.csv"
    table.write_text(
        "source,hardware,model,tokens,what,value,unit,notes\n"
        "LMCache PR 1740 log,H100-class TP1,Qwen3-8B bf16,10010,CPU to GPU retrieve,33.43,ms,\n"
        "LMCache PR 1740 log,H100-class TP1,Qwen3-8B bf16,10010,GPU to CPU store,31.43,ms,\n"
        "somebody,8x GPU,-,-,hit rate,0.5,ratio,\n"
    )
    found = published.measure(table)
    assert [each["ratio"] for each in found["judged"]] == [pytest.approx(0.98, abs=0.01)]
    assert [each["reason"] for each in found["left"]] == [
        "storing is no part of the analytic model", "a whole workload"
    ]  # fmt: skip
