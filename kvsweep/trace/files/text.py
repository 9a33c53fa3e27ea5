"""Text as records: JSON values on lines or over several of them, one after the other; tables of any separator."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from kvsweep.errors import InputError, shown
from kvsweep.trace.files.packed import damages
from kvsweep.trace.files.record import Record
from kvsweep.trace.model import Notes

MAX_LINE = 64 * 2**20
"""Longest line [byte]: a prompt of ten million token ids."""
MAX_DOCUMENT = 512 * 2**20
"""Largest file that is one JSON document, which is held whole [byte]."""
SEPARATORS = ",;\t"
"""What may stand between the cells of a table; the one the header has most of does."""

_Line = tuple[int, str]


def records(path: Path, file: BinaryIO, notes: Notes) -> Iterator[Record]:
    """Yield the records of a text file; raises InputError naming its line."""
    lines = _lines(path, file, notes)
    begin = next(lines, None)
    if begin is None:
        return
    if begin[1].lstrip()[0] not in "{[":
        yield from _table(path, chain((begin,), lines))
        return
    try:
        _values(begin[1])
    except ValueError as error:
        yield from _document(path, begin[1], lines, error)
        return
    for number, line in chain((begin,), lines):
        where = f"{path}: line {number}"
        try:
            values = _values(line)
        except ValueError as error:
            raise InputError(f"{where}: not JSON: {error}; allowed: one JSON object a line") from None
        for value in values:
            yield from _items(value, where, where)


def _lines(path: Path, file: BinaryIO, notes: Notes) -> Iterator[_Line]:
    """Yield (number, text) of the lines that are not blank."""
    number, damaged = 0, damages()
    while True:
        number += 1
        where = f"{path}: line {number}"
        # A file that is one line is a document.
        most = MAX_LINE if number > 1 else MAX_DOCUMENT
        try:
            raw = file.readline(most + 1)
        except damaged as error:
            raise InputError(f"{where}: damaged file: {error}") from error
        if not raw:
            return
        if len(raw) > most:
            raise InputError(f"{where}: longer than allowed: {most} bytes")
        if b"\0" in raw:
            raise InputError(f"{where}: binary data; allowed: text, gzip, zst or parquet")
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip("\r\n")
        except UnicodeDecodeError as error:
            raise InputError(f"{where}: not UTF-8 text ({error.reason} at byte {error.start})") from error
        if text.strip():
            yield number, text
        else:
            notes.dropped("blank lines")


def _document(path: Path, first: str, lines: Iterable[_Line], error: ValueError) -> Iterator[Record]:
    """Yield the records of JSON values over several lines: objects, or lists of them."""
    parts, size = [first], len(first)
    for _, line in lines:
        parts.append(line)
        size += len(line)
        if size > MAX_DOCUMENT:
            raise InputError(f"{path}: one JSON document larger than allowed: {MAX_DOCUMENT} bytes")
    try:
        values = _values("\n".join(parts))
    except ValueError as whole:
        # What a file of JSON lines has wrong is in its first line; an indented document has no such line.
        raise InputError(f"{path}: line 1: not JSON: {error if len(first) > 2 else whole}") from None
    for number, value in enumerate(values, 1):
        yield from _items(value, f"{path}: value {number}" if len(values) > 1 else str(path), str(path))


def _items(value: Any, where: str, of_list: str) -> Iterator[Record]:
    """Yield the records of a JSON value: itself, or the objects it lists."""
    if isinstance(value, list):
        for number, item in enumerate(value, 1):
            place = f"{of_list}: item {number}"
            yield Record(place, _object(item, place))
    else:
        yield Record(where, _object(value, where))


def _table(path: Path, lines: Iterable[_Line]) -> Iterator[Record]:
    place = [0]

    def texts() -> Iterator[str]:
        for number, line in lines:
            place[0] = number
            yield line

    rows = texts()
    try:
        first = next(rows)
        separator = max(SEPARATORS, key=first.count)
        reader = csv.reader(chain((first,), rows), strict=True, delimiter=separator)
        header = [name.strip() for name in next(reader)]
        if len(set(header)) < len(header):
            raise InputError(f"{path}: line {place[0]}: a column stands there twice: {shown(header)}")
        for row in reader:
            where = f"{path}: line {place[0]}"
            if len(row) != len(header):
                raise InputError(f"{where}: {len(row)} cells; allowed: {len(header)}, as in the header")
            yield Record(where, dict(zip(header, row, strict=True)), textual=True)
    except csv.Error as error:
        raise InputError(f"{path}: line {place[0]}: not CSV: {error}") from error


def _values(text: str) -> list[Any]:
    """Return the JSON values of `text`, which may follow each other; raises ValueError as `_loaded` does."""
    try:
        return [_loaded(text)]
    except json.JSONDecodeError as error:
        if not error.msg.startswith("Extra data"):
            raise
        after = error
    values: list[Any] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        if values and text[at] not in "{[":
            raise after
        value, at = _DECODER.raw_decode(text, at)
        values.append(value)
        space = _SPACE.match(text, at)
        at = space.end() if space else at
    return values


def _loaded(text: str) -> Any:
    """Return the JSON value of `text`; raises ValueError for what is not standard JSON or names a key twice."""
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_not_finite)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {shown(twice)} stands there twice")
    return values


def _not_finite(name: str) -> Any:
    raise ValueError(f"{name} is no number JSON allows")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_not_finite)
_SPACE = re.compile(r"\s*")


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where}: {shown(value)} is not a JSON object")
    return value
