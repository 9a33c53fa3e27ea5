"""Opening of files: gzip and zst are unpacked, what could run code or holds several files is refused."""

from __future__ import annotations

import contextlib
import gzip
import importlib
import io
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

from kvsweep.errors import InputError

_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zst", b"PAR1": "parquet"}
_PICKLE = "a pickle, which could run code; convert it where it was written"
_REFUSED = {
    b"PK\x03\x04": "a zip archive; unpack it first",
    **{bytes((0x80, version)): _PICKLE for version in (2, 3, 4, 5)},
}


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tuple[str, BinaryIO]]:
    """Yield what packs a file (``gzip``, ``zst``, ``parquet`` or, for text, nothing), and it unpacked, parquet apart.

    It is opened once and read from front to end, since it may be a pipe; archives put one after the other are read
    through. Raises InputError for what is refused or missing.
    """
    with contextlib.ExitStack() as stack:
        try:
            file: BinaryIO = stack.enter_context(path.open("rb"))
            head = file.read(8)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from error
        for magic, what in _REFUSED.items():
            if head.startswith(magic):
                raise InputError(f"{path}: is {what}")
        packing = next((name for magic, name in _MAGIC.items() if head.startswith(magic)), "")
        if not packing and b"\0" in head:  # a device that has no end would else be read for one
            raise InputError(f"{path}: line 1: binary data; allowed: text, gzip, zst or parquet")
        if file.seekable():
            file.seek(0)
        elif packing == "parquet":
            raise InputError(f"{path}: is parquet from a pipe, and that is not read from front to end; allowed: a file")
        else:
            file = io.BufferedReader(_Rejoined(head, file))
        yield packing, stack.enter_context(_unpacked(file, packing, path))


def _unpacked(file: BinaryIO, packing: str, path: Path) -> AbstractContextManager[BinaryIO]:
    if packing == "gzip":
        return gzip.open(file, "rb")  # type: ignore[return-value]
    if packing == "zst":
        decompressor = optional("zstandard", path).ZstdDecompressor()
        return io.BufferedReader(decompressor.stream_reader(file, read_across_frames=True))
    return file


class _Rejoined(io.RawIOBase):
    """What was read of a stream before, and then the rest of it."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        """Return that this can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into `buffer`; return the number of bytes."""
        data = self._head or self._rest.read1(len(buffer))  # type: ignore[attr-defined]
        data, self._head = data[: len(buffer)], data[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


def optional(module: str, path: Path) -> Any:
    """Return a module of the extra `data`; raises InputError that tells how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        name = module.partition(".")[0]
        raise InputError(f"{path}: needs {name}; install it with: pip install 'kvsweep[data]'") from None


def damages() -> tuple[type[Exception], ...]:
    """Return what reading a damaged file may raise."""
    try:
        error: type[Exception] = importlib.import_module("zstandard").ZstdError
    except ImportError:
        error = EOFError
    return OSError, EOFError, zlib.error, error
