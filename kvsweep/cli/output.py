"""Printing of results: aligned tables with units in the header, standard JSON, and CSV with one header.

Numbers that JSON cannot hold (not a number, infinite) are null there, an empty cell in CSV and a dash in tables.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from textwrap import fill
from typing import Any

import click

from kvsweep.errors import printable

FORMATS = ("table", "json", "csv")
"""Choices of --format."""
TABLE_WIDTH = 120
"""Widest table [columns]; text is shortened to stay within it."""

LONGEST_NAME = 40
"""Characters of the name of a policy beyond which it is shortened."""

_GAP = "  "
_NOTHING = "–"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: its header with the unit, and what of a row it shows in that unit."""

    header: str
    value: Callable[[Any], object]


def wrapped(line: str, indent: int) -> str:
    """Return `line` broken between words to TABLE_WIDTH, what follows the first line indented by `indent` spaces."""
    following = " " * indent
    return fill(line, TABLE_WIDTH, subsequent_indent=following, break_long_words=False, break_on_hyphens=False)


def print_table(rows: Iterable[Any], columns: Sequence[Column], most: int | None = TABLE_WIDTH) -> None:
    """Print `rows` under `columns` to stdout: text to the left, numbers to the right with four digits.

    A table wider than `most` [columns] has its text shortened; None shortens nothing.
    """
    values = [[column.value(row) for column in columns] for row in rows]
    right = [any(_is_number(line[i]) for line in values) for i in range(len(columns))]
    cells = [[column.header for column in columns], *([_cell(value) for value in line] for line in values)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    if most is not None:
        widths = _fitted(widths, right, most)
    for line in cells:
        parts = (_padded(cell, width, number) for cell, width, number in zip(line, widths, right, strict=True))
        click.echo(_GAP.join(parts).rstrip())


def print_wide_table(rows: Sequence[Any], keys: Sequence[Column], columns: Sequence[Column]) -> None:
    """Print `rows` under `keys` and `columns`, as several tables with the same keys where one would be too wide.

    Nothing is shortened: a table is wider than TABLE_WIDTH only where one column beside the keys is.
    """
    widths = {id(column): _width(rows, column) for column in (*keys, *columns)}
    room = TABLE_WIDTH - sum(widths[id(column)] + len(_GAP) for column in keys)
    parts: list[list[Column]] = [[]]
    for column in columns:
        used = sum(widths[id(each)] + len(_GAP) for each in parts[-1])
        if parts[-1] and used + widths[id(column)] > room:
            parts.append([])
        parts[-1].append(column)
    for index, part in enumerate(parts):
        if index:
            click.echo()
        print_table(rows, [*keys, *part], most=None)


def shortened(text: str, longest: int) -> str:
    """Return a text of somebody else on one line of at most `longest` characters, all of which a terminal can show."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def to_json(obj: object) -> str:
    """Return `obj` (dataclasses, mappings, sequences, scalars) as standard JSON, indented."""
    return json.dumps(_standard(obj), indent=2, ensure_ascii=False, allow_nan=False)


def to_csv(rows: Iterable[object]) -> str:
    """Return `rows` (dataclasses or mappings) as CSV with the fields of all of them; groups become ``group.field``."""
    flat = [_flattened(_standard(row)) for row in rows]
    names = list(dict.fromkeys(name for line in flat for name in line))
    groups = {name.rpartition(".")[0] for name in names}
    text = io.StringIO()
    # A group that is null in one row and stated in another has its columns already.
    header = [name for name in names if name not in groups]
    writer = csv.DictWriter(text, header, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue().rstrip("\n")


def _width(rows: Iterable[Any], column: Column) -> int:
    return max(len(column.header), *(len(_cell(column.value(row))) for row in rows))


def _fitted(widths: list[int], fixed: Sequence[bool], most: int) -> list[int]:
    """Return `widths` with the widest text columns narrowed until the table is at most `most` wide.

    The first column stays whole: it holds what the user types back.
    """
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - most
    free = [i for i in range(1, len(widths)) if not fixed[i]]
    while excess > 0 and free:
        widest = max(free, key=lambda i: widths[i])
        widths[widest] -= 1
        excess -= 1
    return widths


def _padded(cell: str, width: int, number: bool) -> str:
    if len(cell) > width:
        return cell[: width - 1] + "…"
    return cell.rjust(width) if number else cell.ljust(width)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: object) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return _NOTHING
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    return printable(str(value))


def _standard(value: object) -> Any:
    """Return `value` made of what JSON knows."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(name): _standard(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_standard(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _flattened(row: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            flat |= _flattened(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = json.dumps(value) if isinstance(value, list | bool) else value
    return flat
