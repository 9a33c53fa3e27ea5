"""Strict reading of CSV measurements: named columns of numbers, every fault with file, line and column."""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvsweep.errors import InputError, shown

Row = dict[str, float]


def read_rows(path: Path, numbers: Sequence[str], texts: Sequence[str] = ()) -> list[tuple[dict[str, str], Row]]:
    """Return the rows of a CSV file: its `texts` and its `numbers`, all not negative; further columns are passed over.

    Raises InputError for a file that cannot be read, a missing column and a cell that is no number.
    """
    lines = read_text(path).splitlines()
    reader = csv.reader(lines)
    header = [name.strip() for name in next(reader, [])]
    missing = [name for name in (*texts, *numbers) if name not in header]
    if missing:
        raise InputError(f"{path}:1: no column {missing[0]!r}; allowed: a header with {', '.join((*texts, *numbers))}")
    places = {name: header.index(name) for name in (*texts, *numbers)}
    rows = []
    for line, cells in enumerate(reader, start=2):
        if not cells:
            continue
        if len(cells) < len(header):
            raise InputError(f"{path}:{line}: {len(cells)} cells; allowed: {len(header)}, as in the header")
        found = {name: number(cells[places[name]], f"{path}:{line}: {name}") for name in numbers}
        rows.append(({name: cells[places[name]].strip() for name in texts}, found))
    if not rows:
        raise InputError(f"{path}: no rows; allowed: one measurement a line under the header")
    return rows


def number(text: str, where: str) -> float:
    """Return the number not negative that `text` states."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value < math.inf:
        raise InputError(f"{where}: {shown(text)} is not a number from 0 on")
    return value


def read_text(path: Path) -> str:
    """Return the text of a file; raises InputError for one that cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from error


def json_object(text: str, where: str) -> dict[str, Any]:
    """Return the JSON object that `text` holds; raises InputError, which calls it `where`."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InputError(f"{where}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InputError(f"{where}: {shown(value)} is not an object; allowed: {{…}}")
    return value


def digest(*paths: Path) -> str:
    """Return the SHA-256 of the files, one after the other, in hexadecimal."""
    total = hashlib.sha256()
    for path in paths:
        total.update(path.read_bytes())
    return total.hexdigest()
