"""The paper's studies beside what it found: ``python -m benchmarks.paper_studies``.

Runs ``kvsweep study affinity`` and ``ttl`` by both fidelities, five seeds each, on generated sessions and on recorded
ones below KVSWEEP_DATA, without which those are kept. Writes `paper_studies.json` and the table of the studies' README.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kvsweep.errors import ResultError
from kvsweep.studies.shipped import affinity, retention
from kvsweep.studies.shipped.beside import differs, rows_of
from kvsweep.studies.shipped.published import FIDELITIES, coding_trace, profiles, recorded_sessions

SEEDS = 5
RESULTS = Path(__file__).with_name("paper_studies.json")
README = Path(__file__).parents[1] / "kvsweep" / "studies" / "README.md"
TITLES = {
    "uncached_change": "affinity: uncached input", "e2e_change": "affinity: mean E2E",
    "occupancy_change": "TTL 60 s: KV held over time", "ttft_change": "TTL 60 s: mean TTFT",
}  # fmt: skip
TRACES = {"generated": "generated sessions", "recorded": "recorded sessions (weka)"}
MODELS = ("8B", "32B")

Rows = list[dict[str, Any]]


def run(recorded: Path | None, seeds: int = SEEDS) -> Rows:
    """Return the rows of both studies at the paper's rates, on recorded sessions or on generated ones.

    Raises ResultError where a check of theirs does not hold.
    """
    spec, models, found = coding_trace(recorded), profiles({}), []
    studies = (
        (affinity.affinity, affinity.checks, affinity.CHANGES, {}),
        (retention.retention, retention.checks, retention.CHANGES, retention.AT),
    )
    for study, checks, names, at in studies:
        ds = study(models, spec, tuple(range(seeds)), FIDELITIES, ("paper",))
        broken = [what for what, holds in checks(ds).items() if not holds]
        if broken:
            raise ResultError(f"{spec.label}: does not hold: {'; '.join(broken)}")
        found += [_plain(row) for row in rows_of(ds, names, at)]
    return found


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: round(value, 12) if isinstance(value, float) else value for name, value in row.items()}


def table(found: Mapping[str, Rows]) -> str:
    """Return what the paper found and what these workloads give, 8B and 32B, as a Markdown table."""
    head = ("| | paper, 8B and 32B |", *(f" {title} |" for title in TRACES.values()))
    lines = ["".join(head), "|---" * (2 + len(TRACES)) + "|"]
    for name, title in TITLES.items():
        rows = [row for row in found["generated"] if name in row and row["fidelity"] == "paper"]
        said = ", ".join(_percent(_of(rows, size)[f"{name}_paper_simulated"]) for size in MODELS)
        cells = [", ".join(_cell(found[trace], name, size) for size in MODELS) for trace in TRACES]
        lines.append(f"| {title} | {said} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(rows: Rows, name: str, size: str) -> str:
    """Return a change with its interval, and that of the engine where it differs by more than 2 %."""
    paper, engine = (
        _of([row for row in rows if name in row and row["fidelity"] == fidelity], size) for fidelity in FIDELITIES
    )
    text = _percent(paper[name], paper[f"{name}_interval"])
    if differs(engine[name], paper[name]):
        text += f" (engine {_percent(engine[name], engine[f'{name}_interval'])})"
    return text


def _of(rows: Sequence[dict[str, Any]], size: str) -> dict[str, Any]:
    return next(row for row in rows if row["model"] == size)


def _percent(value: float, half: float | None = None) -> str:
    digits = 2 if half is None and abs(value) < 0.02 else 1
    text = f"{100 * value:+.{digits}f}".replace("-", "−")
    return f"{text} %" if half is None else f"{text} ± {100 * half:.1f} %"


def filled(text: str, found: Mapping[str, Rows]) -> str:
    """Return the README text with the table made anew, between its markers."""
    made = f"<!-- studies -->\n{table(found)}\n<!-- end -->"
    return re.sub(r"<!-- studies -->.*?<!-- end -->", lambda match: made, text, flags=re.S)


def main() -> int:
    recorded = recorded_sessions()
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if recorded is None and "recorded" not in kept:
        print("KVSWEEP_DATA names no folder with recorded sessions (weka/*.jsonl.gz)", file=sys.stderr)
        return 1
    found = {"generated": run(None), "recorded": run(recorded) if recorded else kept["recorded"]}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    README.write_text(filled(README.read_text(), found))
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
