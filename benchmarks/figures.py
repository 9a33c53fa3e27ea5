"""What a benchmark yields, how it is timed, printed and kept."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results.json")


@dataclass(frozen=True)
class Figure:
    """One measured figure beside a baseline of the same run.

    `ratio` is what a bar is set on, as `bar` says in words and `passed` answers; None where there is no bar. No bar is
    a time: a slower or busier machine must not miss it.
    """

    name: str
    value: float
    unit: str
    baseline: str = ""
    baseline_value: float | None = None
    ratio: float | None = None
    bar: str = ""
    passed: bool | None = None

    def at_most(self, limit: float, of: str = "") -> Figure:
        """Return the figure with a bar: its ratio is at most `limit`, whose words may go on with `of`."""
        assert self.ratio is not None
        return replace(self, bar=f"<= {limit:g}{of}", passed=self.ratio <= limit)

    def at_least(self, limit: float, of: str = "") -> Figure:
        """Return the figure with a bar: its ratio is at least `limit`, whose words may go on with `of`."""
        assert self.ratio is not None
        return replace(self, bar=f">= {limit:g}{of}", passed=self.ratio >= limit)

    def unjudged(self) -> Figure:
        """Return a figure without bar, of sizes too small to judge."""
        return replace(self, bar="", passed=None)


def better(one: Sequence[Figure], two: Sequence[Figure]) -> list[Figure]:
    """Return of each figure that was measured twice the one that meets its bar, the second where neither does."""
    return [first if first.passed is not False else second for first, second in zip(one, two, strict=True)]


def best_seconds(work: Callable[[], Any], repeats: int = 7) -> float:
    """Return the least wall time [s] of `repeats` calls: noise of a shared machine only ever adds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def in_turn(works: Sequence[Callable[[], float]], rounds: int) -> list[list[float]]:
    """Return what each work says it took [s] in each round, run in turn so that drift of the machine hits all alike."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for kept, work in zip(times, works, strict=True):
            kept.append(work())
    return times


def beside(name: str, unit: str, baseline: str, times: Sequence[Sequence[float]], scale: float = 1.0) -> Figure:
    """Return the median of the first of two lists of `times` beside the second's, and the median of their ratios.

    Both are times of `in_turn`; values are shown times `scale`, in `unit`.
    """
    value, other = (statistics.median(rounds) * scale for rounds in times)
    return Figure(name, value, unit, baseline, other, median_ratio(*times))


def median_ratio(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the median over the rounds of what was measured of `one` by what was measured of the `other`."""
    return statistics.median(first / max(second, 1e-9) for first, second in zip(one, other, strict=True))


def wall(work: Callable[[], Any]) -> Callable[[], float]:
    """Return a work that says how long [s] `work` took by the wall clock."""

    def timed() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return timed


def processor(command: Sequence[str], **how: Any) -> Callable[[], float]:
    """Return a work that runs a command and says its processor time [s], to which other processes add little.

    `how` goes to `subprocess.run`.
    """

    def timed() -> float:
        before = os.times()
        done = subprocess.run(command, capture_output=True, text=True, **how)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    return timed


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
