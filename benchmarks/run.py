"""Runs all benchmarks, or those whose area is named: ``python -m benchmarks.run [AREA…]``.

Prints a table for each area and writes `results.json`; exits with 1 where a bar is missed twice in a row.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

from benchmarks import figures
from benchmarks.data import Skipped


def areas() -> list[str]:
    """Return the areas there are: the modules of `benchmarks.areas`."""
    return [module.name for module in pkgutil.iter_modules([str(Path(__file__).with_name("areas"))])]


def measure(area: str, tiny: bool) -> list[figures.Figure]:
    """Return the figures of one area; `tiny` runs every line of it on small sizes, which no bar is set on."""
    found: list[figures.Figure] = importlib.import_module(f"benchmarks.areas.{area}").measure(tiny)
    return [figure.unjudged() for figure in found] if tiny else found


def judged(area: str) -> list[figures.Figure]:
    """Return the figures of one area, measured again where a bar is missed: a shared machine misses some by chance."""
    found = measure(area, tiny=False)
    missed = [figure.name for figure in found if figure.passed is False]
    if missed:
        print(f"\n{area}: missed, measured again: {'; '.join(missed)}", file=sys.stderr)
        found = figures.better(found, measure(area, tiny=False))
    return found


def main(wanted: list[str]) -> int:
    unknown = set(wanted) - set(areas())
    if unknown:
        print(f"no area {', '.join(sorted(unknown))}; choose from {', '.join(areas())}", file=sys.stderr)
        return 2
    kept = figures.load()[1] if figures.RESULTS.exists() else {}
    missed = []
    for area in wanted or areas():
        try:
            kept[area] = judged(area)
        except Skipped as reason:
            print(f"\n{area}\n  skipped: {reason}")
            continue
        figures.print_figures(area, kept[area])
        missed += [figure.name for figure in kept[area] if figure.passed is False]
    figures.save({area: kept[area] for area in areas() if area in kept})
    if missed:
        print(f"\nbars missed twice: {'; '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
