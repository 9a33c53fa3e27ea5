"""Puts the tables of `results.json` into the README, between its markers: ``python -m benchmarks.readme``."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks import figures

README = Path(__file__).parents[1] / "README.md"


def table(area: str) -> str:
    """Return the figures of one area that have a bar as a Markdown table; `results.json` holds them all."""
    host, areas = figures.load()
    barred = [figures.cells(figure) for figure in areas[area] if figure.bar]
    rows = [figures.HEADER, ("---",) * len(figures.HEADER), *barred]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([*lines, "", f"Measured on {host['cpu']}, {host['cores']} cores, Python {host['python']}."])


def filled(text: str) -> str:
    """Return the README text with every ``<!-- bench AREA -->`` block made anew."""

    def block(match: re.Match[str]) -> str:
        return f"<!-- bench {match[1]} -->\n{table(match[1])}\n<!-- end -->"

    return re.sub(r"<!-- bench (\w+) -->.*?<!-- end -->", block, text, flags=re.S)


if __name__ == "__main__":
    README.write_text(filled(README.read_text()))
