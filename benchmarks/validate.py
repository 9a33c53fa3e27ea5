"""Holds kvsweep against published figures: ``python -m benchmarks.validate [AREA…]``.

An area is a module of `benchmarks.validations`. It prints every figure beside its reference, and says "skipped" where
the data it needs is not there (KVSWEEP_DATA names their folder). Exits with 1 where a figure is off and nothing
explains it.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

from benchmarks import figures
from benchmarks.data import Skipped


def areas() -> list[str]:
    """Return the areas there are."""
    return [module.name for module in pkgutil.iter_modules([str(Path(__file__).with_name("validations"))])]


def main(wanted: list[str]) -> int:
    unknown = set(wanted) - set(areas())
    if unknown:
        print(f"no area {', '.join(sorted(unknown))}; choose from {', '.join(areas())}", file=sys.stderr)
        return 2
    missed = []
    for area in wanted or areas():
        try:
            found: list[figures.Figure] = importlib.import_module(f"benchmarks.validations.{area}").measure()
        except Skipped as reason:
            print(f"\n{area}\n  skipped: {reason}")
            continue
        if found:
            figures.print_figures(area, found)
        missed += [figure.name for figure in found if figure.passed is False]
    if missed:
        print(f"\noff and unexplained: {'; '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
