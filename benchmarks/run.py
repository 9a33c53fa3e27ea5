"""Runs all benchmarks, or those whose area is named: ``python -m benchmarks.run [AREA…]``.

Prints a table for each area and writes `results.json`; exits with 1 where a bar is missed.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

from benchmarks import figures


def areas() -> list[str]:
    """Return the areas there are: the modules called bench_AREA."""
    names = [module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)])]
    return [name.removeprefix("bench_") for name in names if name.startswith("bench_")]


def measure(area: str, tiny: bool) -> list[figures.Figure]:
    """Return the figures of one area; `tiny` runs every line of it on small sizes."""
    return importlib.import_module(f"benchmarks.bench_{area}").measure(tiny)  # type: ignore[no-any-return]


def main(wanted: list[str]) -> int:
    unknown = set(wanted) - set(areas())
    if unknown:
        print(f"no area {', '.join(sorted(unknown))}; choose from {', '.join(areas())}", file=sys.stderr)
        return 2
    kept = figures.load()[1] if figures.RESULTS.exists() else {}
    for area in wanted or areas():
        kept[area] = measure(area, tiny=False)
        figures.print_figures(area, kept[area])
    figures.save({area: kept[area] for area in areas() if area in kept})
    missed = [figure.name for area in wanted or areas() for figure in kept[area] if figure.passed is False]
    if missed:
        print(f"\nbars missed: {'; '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
