"""The journal of a study: one line a finished cell, appended as it comes, so that nothing is lost to a kill.

A line is a checksum and a JSON record. What follows the last whole line, which a kill or a full disk may leave, is cut
off when the journal is next opened; a line before it that was damaged is passed over, and its cell run again. Numbers
are written so that they read back to the last bit.
"""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kvsweep.errors import InputError, ResultError

FORMAT = 1


def journal_path(output: Path) -> Path:
    """Return the journal of the study whose result is `output`."""
    return output.with_name(output.name + ".journal")


class Journal:
    """An open journal, owned by this process alone: records by key, and the place to add more."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise InputError(f"--output: cannot write {path}: {error.strerror or error}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise InputError(f"{path}: another process writes this study; allowed: one at a time") from None
        self.records, good = read_journal(path)
        os.ftruncate(self._file, good)
        os.lseek(self._file, good, os.SEEK_SET)
        if not good:
            self._write({"format": FORMAT})

    def add(self, key: str, record: dict[str, Any]) -> None:
        """Append a record; after this, a kill of the process does not lose it."""
        self._write({"key": key, **record})
        self.records[key] = record

    def _write(self, record: dict[str, Any]) -> None:
        body = json.dumps(record, separators=(",", ":"))
        line = f"{zlib.crc32(body.encode()):08x} {body}\n".encode()
        try:
            while line:
                line = line[os.write(self._file, line) :]
        except OSError as error:
            raise ResultError(f"cannot write {self.path}: {error.strerror or error}") from error

    def remove(self) -> None:
        """Remove the file: its study is whole and written."""
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Give the journal up."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_journal(path: Path) -> tuple[dict[str, dict[str, Any]], int]:
    """Return the records of a journal by key, and the length [byte] up to the end of its last whole line.

    Raises InputError for a file that is no journal of this format: it is not ours to cut.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    records: dict[str, dict[str, Any]] = {}
    end = good = 0
    for number, line in enumerate(data.splitlines(keepends=True)):
        record = _record(line)
        if number == 0 and (record is None or record.get("format") != FORMAT):
            if record is None and not line.endswith(b"\n") and len(line) < 64:
                return {}, 0  # killed while it began
            raise InputError(f"{path}: is no journal of this kvsweep; allowed: move it away, and the study begins anew")
        end += len(line)
        if record is None:
            continue
        if "key" in record and ("figures" in record or "failed" in record):
            records[str(record.pop("key"))] = record
        good = end
    return records, good


def _record(line: bytes) -> dict[str, Any] | None:
    """Return the record of a line, None where it is not whole."""
    if not line.endswith(b"\n") or len(line) < 11 or line[8:9] != b" ":
        return None
    body = line[9:-1]
    try:
        if int(line[:8], 16) != zlib.crc32(body):
            return None
        record = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
