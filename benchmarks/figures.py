"""What a benchmark yields, how it is timed, printed and kept."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results.json")


@dataclass(frozen=True)
class Figure:
    """One measured figure beside a baseline of the same run.

    `ratio` is what a bar is set on, as `bar` says in words and `passed` answers; None where there is no bar.
    """

    name: str
    value: float
    unit: str
    baseline: str = ""
    baseline_value: float | None = None
    ratio: float | None = None
    bar: str = ""
    passed: bool | None = None


def best_seconds(work: Callable[[], Any], repeats: int = 7) -> float:
    """Return the least wall time [s] of `repeats` calls: noise of a shared machine only ever adds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def alternating_seconds(works: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    """Return the median wall time [s] of each work, run in turn so that drift of the machine hits all alike."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for kept, work in zip(times, works, strict=True):
            start = time.perf_counter()
            work()
            kept.append(time.perf_counter() - start)
    return [sorted(kept)[len(kept) // 2] for kept in times]


def host() -> dict[str, str]:
    """Return what the figures were measured on."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return {"cpu": model, "cores": str(os.cpu_count()), "python": platform.python_version()}


def print_figures(area: str, figures: Iterable[Figure]) -> None:
    """Print one area as an aligned table."""
    print(f"\n{area}")
    print_rows([HEADER, *(cells(figure) for figure in figures)])


def print_rows(rows: Sequence[tuple[str, ...]]) -> None:
    """Print `rows` as an aligned table, indented."""
    for line in _aligned(rows):
        print("  " + line)


HEADER = ("figure", "value", "baseline", "ratio", "bar")


def cells(figure: Figure) -> tuple[str, ...]:
    """Return a figure as the cells of a table under `HEADER`."""
    baseline = f"{figure.baseline}: {figure.baseline_value:.4g}" if figure.baseline_value is not None else ""
    ratio = "" if figure.ratio is None else f"{figure.ratio:.3g}"
    verdict = {None: "", True: " (met)", False: " (MISSED)"}[figure.passed]
    return figure.name, f"{figure.value:.4g} {figure.unit}", baseline, ratio, figure.bar + verdict


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def save(areas: dict[str, list[Figure]], path: Path = RESULTS) -> None:
    """Write the figures of all areas and the host to `path`."""
    kept = {area: [asdict(figure) for figure in figures] for area, figures in areas.items()}
    path.write_text(json.dumps({"host": host(), "areas": kept}, indent=1, ensure_ascii=False) + "\n")


def load(path: Path = RESULTS) -> tuple[dict[str, str], dict[str, list[Figure]]]:
    """Return (host, figures of each area) as `save` wrote them."""
    kept = json.loads(path.read_text())
    return kept["host"], {area: [Figure(**figure) for figure in figures] for area, figures in kept["areas"].items()}
