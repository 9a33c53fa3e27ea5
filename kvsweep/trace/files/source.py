"""The records of a trace: one file of JSON, CSV or parquet, packed or not, or a folder of them.

Nothing in a file is ever executed or unpickled. A record knows its place, so that every complaint names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from kvsweep.errors import InputError
from kvsweep.trace.files.packed import opened, optional
from kvsweep.trace.files.record import Record
from kvsweep.trace.files.text import records
from kvsweep.trace.model import Notes
from kvsweep.trace.options import ReadOptions

SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
"""Ends of the names of the files that are read of a folder; .gz and .zst may follow."""
_PACKED = (".gz", ".zst", ".zstd")


def trace_files(path: Path) -> list[Path]:
    """Return the files of a trace in the order of their names; raises InputError for a folder without any."""
    if not path.is_dir():
        return [path]
    found = [file for file in sorted(path.iterdir()) if file.is_file() and _plain_suffix(file) in SUFFIXES]
    if not found:
        raise InputError(f"{path}: a folder without traces; allowed: one with files that end in {', '.join(SUFFIXES)}, "
                         "packed by gzip or zst or not")  # fmt: skip
    return found


def _plain_suffix(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    while suffixes and suffixes[-1] in _PACKED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


class Source:
    """The records of a trace, read once, and the notes on reading it."""

    def __init__(self, path: Path, files: Sequence[Path], options: ReadOptions) -> None:
        self.path, self.files, self.options = path, files, options
        self.notes = Notes()
        self.check: Callable[[Record], None] = lambda first: None
        """Called with the first record of every file after the first one."""
        left = sorted(file.name for file in path.iterdir() if file not in files) if path.is_dir() else []
        if left:
            names = ", ".join(left[:5]) + (", …" if len(left) > 5 else "")
            self.notes.dropped(f"what else is in the folder: {names}", len(left))
        if len(self.files) > 1:
            self.notes.taken("files of the folder, one after the other on one clock", len(self.files))
        self._records = chain.from_iterable(map(self._of, self.files))
        first = next(self._records, None)
        if first is None:
            raise InputError(f"{path}: holds no requests; allowed: at least one")
        self.first: Record = first

    def __iter__(self) -> Iterator[Record]:
        """Yield every record, the first included."""
        return chain((self.first,), self._records)

    def _of(self, path: Path) -> Iterator[Record]:
        found = self._opened(path)
        if path != self.files[0]:
            for first in found:
                self.check(first)
                yield first
                break
        yield from found

    def _opened(self, path: Path) -> Iterator[Record]:
        with opened(path) as (packing, file):
            yield from _parquet(path) if packing == "parquet" else records(path, file, self.notes)


def _parquet(path: Path) -> Iterator[Record]:
    parquet = optional("pyarrow.parquet", path)
    try:
        number = 0
        with parquet.ParquetFile(path) as table:
            for batch in table.iter_batches():
                for row in batch.to_pylist():
                    number += 1
                    yield Record(f"{path}: row {number}", {str(name): value for name, value in row.items()})
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: damaged parquet file: {error}") from error
