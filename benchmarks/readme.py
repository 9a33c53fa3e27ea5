"""Puts figures of `results.json` into the README, between its markers: ``python -m benchmarks.readme``.

``<!-- bench grid:6 overhead:3 -->`` asks for the first 6 figures with a bar of one area and 3 of another.
"""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks import figures

README = Path(__file__).parents[1] / "README.md"


def table(wanted: str) -> str:
    """Return the figures that `wanted` asks for as a Markdown table."""
    host, areas = figures.load()
    rows = [("area", *figures.HEADER), ("---",) * (len(figures.HEADER) + 1)]
    for area, count in (part.split(":") for part in wanted.split()):
        barred = [figure for figure in areas[area] if figure.bar]
        rows += [(area, *figures.cells(figure)) for figure in barred[: int(count)]]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([*lines, "", f"Measured on {host['cpu']}, {host['cores']} cores, Python {host['python']}."])


def filled(text: str) -> str:
    """Return the README text with every marked table made anew."""

    def block(match: re.Match[str]) -> str:
        return f"<!-- bench {match[1]} -->\n{table(match[1])}\n<!-- end -->"

    return re.sub(r"<!-- bench ([\w: ]+) -->.*?<!-- end -->", block, text, flags=re.S)


if __name__ == "__main__":
    README.write_text(filled(README.read_text()))
