"""Opening of files: gzip and zst are unpacked, what could run code or holds several files is refused."""

from __future__ import annotations

import gzip
import importlib
import io
import zlib
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


def packing_of(path: Path) -> str:
    """Return ``gzip``, ``zst``, ``parquet`` or, for text, nothing; raises InputError for what is refused or missing."""
    try:
        with path.open("rb") as file:
            head = file.read(8)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    for magic, what in _REFUSED.items():
        if head.startswith(magic):
            raise InputError(f"{path}: is {what}")
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), "")


def unpacked(path: Path, packing: str) -> AbstractContextManager[BinaryIO]:
    """Return the file opened for reading, unpacked; archives put one after the other are read through."""
    if packing == "gzip":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    if packing == "zst":
        decompressor = optional("zstandard", path).ZstdDecompressor()
        stream = decompressor.stream_reader(path.open("rb"), closefd=True, read_across_frames=True)
        return io.BufferedReader(stream)
    return path.open("rb")


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
