"""Puts the tables of `results.json` into the README, between its markers: ``python -m benchmarks.readme``."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks import figures

README = Path(__file__).parents[1] / "README.md"


def table() -> str:
    """Return the figures of all areas that have a bar as a Markdown table; `results.json` holds the rest."""
    host, areas = figures.load()
    rows = [("area", *figures.HEADER), ("---",) * (len(figures.HEADER) + 1)]
    rows += [(area, *figures.cells(figure)) for area, found in areas.items() for figure in found if figure.bar]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([*lines, "", f"Measured on {host['cpu']}, {host['cores']} cores, Python {host['python']}."])


def filled(text: str) -> str:
    """Return the README text with its ``<!-- bench -->`` block made anew."""
    block = f"<!-- bench -->\n{table()}\n<!-- end -->"
    return re.sub(r"<!-- bench -->.*?<!-- end -->", lambda match: block, text, flags=re.S)


if __name__ == "__main__":
    README.write_text(filled(README.read_text()))
