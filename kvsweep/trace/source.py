"""Trace files as records: JSON lines, one JSON document, CSV or parquet, packed or not.

Nothing in a file is ever executed or unpickled. A record knows its place, so that every complaint names it.
"""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from kvsweep.errors import InputError, shown
from kvsweep.trace.model import Notes
from kvsweep.trace.record import Record

MAX_LINE = 64 * 2**20
"""Longest line [byte]: a prompt of ten million token ids."""
MAX_DOCUMENT = 512 * 2**20
"""Largest file that is one JSON document, which is held whole [byte]."""

_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zst", b"PAR1": "parquet"}
_REFUSED = {
    b"PK\x03\x04": "a zip archive; unpack it first",
    b"\x80\x02": "a pickle, which could run code; convert it where it was written",
    b"\x80\x03": "a pickle, which could run code; convert it where it was written",
    b"\x80\x04": "a pickle, which could run code; convert it where it was written",
    b"\x80\x05": "a pickle, which could run code; convert it where it was written",
}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a file does not say and its reader has to be told."""

    block_size: int = 16
    """Size of the blocks made of token ids or document ids [token]."""
    session_rate: float = 1 / 60
    """Rate at which sessions start whose file has no common clock [1/s]."""
    seed: int = 0
    """Seed of those starts."""


class Source:
    """The records of one trace file, read once, and the notes on reading it."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        self.options = options
        self.notes = Notes()
        self._records = self._opened()
        first = next(self._records, None)
        if first is None:
            raise InputError(f"{path}: holds no requests; allowed: at least one")
        self.first: Record = first

    def __iter__(self) -> Iterator[Record]:
        """Yield every record, the first included."""
        return chain((self.first,), self._records)

    def _opened(self) -> Iterator[Record]:
        head = _head(self.path)
        packing = next((name for magic, name in _MAGIC.items() if head.startswith(magic)), "")
        for magic, what in _REFUSED.items():
            if head.startswith(magic):
                raise InputError(f"{self.path}: is {what}")
        if packing == "parquet":
            yield from self._parquet()
            return
        with _unpacked(self.path, packing) as file:
            yield from self._text(file)

    def _text(self, file: BinaryIO) -> Iterator[Record]:
        lines = self._lines(file)
        begin = next(lines, None)
        if begin is None:
            return
        first = begin[1]
        if first.lstrip()[0] not in "{[":
            yield from self._csv(chain((begin,), lines))
            return
        try:
            _loaded(first)
        except ValueError as error:
            yield from self._document(first, lines, error)
            return
        for number, line in chain((begin,), lines):
            where = f"{self.path}: line {number}"
            yield Record(where, _object(_parsed(line, where), where))

    def _lines(self, file: BinaryIO) -> Iterator[tuple[int, str]]:
        """Yield (number, text) of the lines that are not blank."""
        number = 0
        while True:
            number += 1
            where = f"{self.path}: line {number}"
            try:
                raw = file.readline(MAX_LINE + 1)
            except (OSError, EOFError, zlib.error, _zstd_error()) as error:
                raise InputError(f"{where}: damaged file: {error}") from error
            if not raw:
                return
            if len(raw) > MAX_LINE:
                raise InputError(f"{where}: longer than allowed: {MAX_LINE} bytes")
            if b"\0" in raw:
                raise InputError(f"{where}: binary data; allowed: text, gzip, zst or parquet")
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip("\r\n")
            except UnicodeDecodeError as error:
                raise InputError(f"{where}: not UTF-8 text ({error.reason} at byte {error.start})") from error
            if text.strip():
                yield number, text
            else:
                self.notes.dropped("blank lines")

    def _document(self, first: str, lines: Iterable[tuple[int, str]], error: ValueError) -> Iterator[Record]:
        """Yield the records of a file that is one JSON value over several lines: an object, or a list of them."""
        parts, size = [first], len(first)
        for _, line in lines:
            parts.append(line)
            size += len(line)
            if size > MAX_DOCUMENT:
                raise InputError(f"{self.path}: one JSON document larger than allowed: {MAX_DOCUMENT} bytes")
        try:
            document = _loaded("\n".join(parts))
        except ValueError as whole:
            # What a file of JSON lines has wrong is in its first line; an indented document has no such line.
            raise InputError(f"{self.path}: line 1: not JSON: {error if len(first) > 2 else whole}") from None
        items = document if isinstance(document, list) else [document]
        for number, item in enumerate(items, 1):
            where = f"{self.path}: item {number}" if isinstance(document, list) else str(self.path)
            yield Record(where, _object(item, where))

    def _csv(self, lines: Iterable[tuple[int, str]]) -> Iterator[Record]:
        place = [0]

        def texts() -> Iterator[str]:
            for number, line in lines:
                place[0] = number
                yield line

        try:
            reader = csv.reader(texts(), strict=True)
            header = [name.strip() for name in next(reader)]
            if len(set(header)) < len(header):
                raise InputError(f"{self.path}: line {place[0]}: a column stands there twice: {shown(header)}")
            for row in reader:
                where = f"{self.path}: line {place[0]}"
                if len(row) != len(header):
                    raise InputError(f"{where}: {len(row)} cells; allowed: {len(header)}, as in the header")
                yield Record(where, dict(zip(header, row, strict=True)), textual=True)
        except csv.Error as error:
            raise InputError(f"{self.path}: line {place[0]}: not CSV: {error}") from error

    def _parquet(self) -> Iterator[Record]:
        parquet = _optional("pyarrow.parquet", self.path)
        try:
            number = 0
            with parquet.ParquetFile(self.path) as table:
                for batch in table.iter_batches():
                    for row in batch.to_pylist():
                        number += 1
                        yield Record(f"{self.path}: row {number}", {str(name): value for name, value in row.items()})
        except (OSError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{self.path}: damaged parquet file: {error}") from error


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(8)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def _unpacked(path: Path, packing: str) -> AbstractContextManager[BinaryIO]:
    if packing == "gzip":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    if packing == "zst":
        decompressor = _optional("zstandard", path).ZstdDecompressor()
        return io.BufferedReader(decompressor.stream_reader(path.open("rb"), closefd=True))
    return path.open("rb")


def _optional(module: str, path: Path) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        name = module.partition(".")[0]
        raise InputError(f"{path}: needs {name}; install it with: pip install 'kvsweep[data]'") from None


def _zstd_error() -> type[Exception]:
    try:
        error: type[Exception] = importlib.import_module("zstandard").ZstdError
        return error
    except ImportError:
        return EOFError


def _parsed(line: str, where: str) -> Any:
    try:
        return _loaded(line)
    except ValueError as error:
        raise InputError(f"{where}: not JSON: {error}; allowed: one JSON object a line") from None


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


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where}: {shown(value)} is not a JSON object")
    return value
