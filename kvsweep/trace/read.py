"""`read_trace`: the format is found by the first record, the trace by its reader or in the cache."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

from kvsweep.errors import InputError, shown, unknown_name
from kvsweep.trace import cached
from kvsweep.trace.model import Trace
from kvsweep.trace.readers import agent, bailian, bench, mooncake, native, ragpulse, table, tokens
from kvsweep.trace.source import ReadOptions, Source

__all__ = ["READERS", "ReadOptions", "read_trace"]

# In the order in which they are asked: formats whose fields are a superset of another's come first.
READERS: dict[str, ModuleType] = {
    reader.NAME: reader for reader in (native, agent, ragpulse, bailian, tokens, bench, table, mooncake)
}
"""Reader modules by the name of their format."""


def read_trace(
    path: str | os.PathLike[str], options: ReadOptions | None = None, *, format: str | None = None, cache: bool = True
) -> Trace:
    """Return the trace in a file; what was dropped or assumed is in its `notes`.

    `format` is a key of `READERS`, found by the first record if None. With `cache` a parsed trace is kept in the
    user's cache directory by the hash of all it depends on. Raises InputError naming file, line and field.
    """
    file, options = Path(path), options or ReadOptions()
    if format is not None and format not in READERS:
        raise unknown_name("trace format", format, READERS)
    if file.is_dir():
        raise InputError(f"{file}: is a folder; allowed: a trace file")
    entry = cached.entry(file, ragpulse.companions(file), (format, options)) if cache else None
    trace = cached.load(entry) if entry else None
    if trace is None:
        trace = _read(file, options, format)
        if entry:
            cached.store(entry, trace)
    return trace


def _read(file: Path, options: ReadOptions, format: str | None) -> Trace:
    source = Source(file, options)
    reader = READERS[format] if format is not None else _reader(source)
    try:
        trace: Trace = reader.read(source)
    except InputError as error:
        if str(file) in str(error):
            raise
        raise InputError(f"{file}: {error}") from error
    if not len(trace):
        reasons = "; ".join(str(note) for note in trace.notes) or "only a header"
        raise InputError(f"{file}: holds no requests that could be replayed: {reasons}")
    return trace


def _reader(source: Source) -> ModuleType:
    for reader in READERS.values():
        if reader.matches(source.first):
            return reader
    fields = shown(", ".join(source.first.values), 200)
    raise InputError(f"{source.first.where}: no known trace format has the fields {fields}; "
                     f"allowed: {', '.join(READERS)}")  # fmt: skip
