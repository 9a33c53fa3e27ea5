"""Strict reading of measurements, CSV and JSON: named numbers, every fault with file, line and column."""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kvsweep.errors import InputError, shown

Row = dict[str, float]
MAX_BYTES = 1 << 29
"""Longest file of measurements [byte]."""
LARGEST = 1e30
"""Largest number taken for a measurement: what is beyond is a fault of the file."""


def read_rows(path: Path, numbers: Sequence[str], texts: Sequence[str] = ()) -> list[tuple[dict[str, str], Row]]:
    """Return the rows of a CSV file: its `texts` and its `numbers`, all not negative; further columns are passed over.

    Raises InputError for a file that cannot be read, a missing or doubled column and a cell that is no number.
    """
    return [(line.texts, line.numbers) for line in read_lines(path, numbers, texts)]


class Line(NamedTuple):
    """A row of a CSV file; `where` is its ``file:line``."""

    where: str
    texts: dict[str, str]
    numbers: Row


def read_lines(
    path: Path, numbers: Sequence[str], texts: Sequence[str] = (), optional: Sequence[str] = ()
) -> list[Line]:
    """Return the rows of a CSV file as `read_rows` does, with the numbers of those `optional` columns it has."""
    reader = csv.reader(read_text(path).splitlines(), strict=True)
    lines = []
    try:
        header = [name.strip() for name in next(reader, [])]
        places = _places(header, (*texts, *numbers), optional, path)
        for cells in reader:
            if not cells:
                continue
            where = f"{path}:{reader.line_num}"
            if len(cells) != len(header):
                raise InputError(f"{where}: {len(cells)} cells; allowed: {len(header)}, as in the header")
            found = {name: number(cells[at], f"{where}: {name}") for name, at in places.items() if name not in texts}
            lines.append(Line(where, {name: cells[places[name]].strip() for name in texts}, found))
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: not CSV: {error}") from error
    if not lines:
        raise InputError(f"{path}: no rows; allowed: one measurement a line under the header")
    return lines


def read_header(path: Path) -> list[str]:
    """Return the names of the columns of a CSV file."""
    return [name.strip() for name in (read_text(path).splitlines() or [""])[0].split(",")]


def _places(header: Sequence[str], needed: Sequence[str], optional: Sequence[str], path: Path) -> dict[str, int]:
    """Return where the columns stand in the header."""
    missing = [name for name in needed if name not in header]
    if missing:
        raise InputError(f"{path}:1: no column {missing[0]!r}; allowed: a header with {', '.join(needed)}")
    wanted = [*needed, *(name for name in optional if name in header)]
    twice = [name for name in wanted if header.count(name) > 1]
    if twice:
        raise InputError(f"{path}:1: column {twice[0]!r} twice; allowed: once")
    return {name: header.index(name) for name in wanted}


def number(text: str, where: str) -> float:
    """Return the number not negative that `text` states."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= LARGEST:
        raise InputError(f"{where}: {shown(text)} is not a number from 0 to {LARGEST:g}")
    return value


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file; raises InputError for one that cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise InputError(f"{path}: longer than allowed: {MAX_BYTES} bytes")
    return data


def read_text(path: Path) -> str:
    """Return the text of a file; raises InputError for one that is not UTF-8."""
    data = read_bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        packed = "; unpack it first" if data[:2] == b"\x1f\x8b" else ""
        raise InputError(f"{path}: not UTF-8 text{packed}") from error


def json_object(text: str, where: str) -> dict[str, Any]:
    """Return the JSON object that `text` holds; raises InputError, which calls it `where`."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InputError(f"{where}: {shown(value)} is not an object; allowed: {{…}}")
    return value


def json_lines(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return the JSON objects of a file, one a line, each with ``file:line``; raises InputError for none."""
    lines = enumerate(read_text(path).splitlines(), start=1)
    rows = [(f"{path}:{i}", json_object(line, f"{path}:{i}")) for i, line in lines if line.strip()]
    if not rows:
        raise InputError(f"{path}: no lines; allowed: one JSON object a line")
    return rows


def json_number(row: Mapping[str, Any], name: str, where: str) -> float:
    """Return the number not negative in a field of a JSON object; raises InputError for anything else."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= LARGEST:
        raise InputError(f"{where}: {name}: {shown(value)}; allowed: a number from 0 to {LARGEST:g}")
    return float(value)


def json_inside(row: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    """Return the object in a field of a JSON object; raises InputError for anything else."""
    value = row.get(name)
    if not isinstance(value, dict):
        raise InputError(f"{where}: {name}: {shown(value)}; allowed: an object")
    return value


def json_numbers(row: Mapping[str, Any], name: str, where: str, count: int | None = None) -> list[float]:
    """Return the list of numbers not negative in a field, `count` of them; raises InputError for anything else."""
    values = row.get(name)
    if not isinstance(values, list):
        raise InputError(f"{where}: {name}: missing; allowed: a list of numbers")
    if count is not None and len(values) != count:
        raise InputError(f"{where}: {name}: {len(values)} entries; allowed: {count}")
    return [json_number({name: value}, name, f"{where}: entry {i}") for i, value in enumerate(values)]


def digest(*paths: Path) -> str:
    """Return the SHA-256 of the files, one after the other, in hexadecimal."""
    total = hashlib.sha256()
    for path in paths:
        total.update(path.read_bytes())
    return total.hexdigest()
