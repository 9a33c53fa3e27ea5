"""`read_trace`: the format is found by the first record, the trace by its reader or in the cache."""

from __future__ import annotations

import importlib
import os
from dataclasses import replace
from pathlib import Path

from kvsweep.errors import InputError, unknown_name
from kvsweep.trace import cached
from kvsweep.trace.files.record import Record
from kvsweep.trace.files.source import Source, trace_files
from kvsweep.trace.formats import FORMATS, Shape, recognised
from kvsweep.trace.model import Trace
from kvsweep.trace.options import ReadOptions
from kvsweep.trace.readers import ragpulse

__all__ = ["ReadOptions", "read_trace"]


def read_trace(path: str | os.PathLike[str], options: ReadOptions | None = None, *, cache: bool = True) -> Trace:
    """Return the trace in a file, or in the files of a folder; how it was read is in its `notes`.

    With `cache` a parsed trace is kept in the user's cache directory by the hash of all it depends on. Raises
    InputError naming file, line and field.
    """
    file, options = Path(path), options or ReadOptions()
    if options.format is not None and options.format not in FORMATS:
        raise unknown_name("trace format", options.format, FORMATS)
    files = trace_files(file)
    companions = ragpulse.companions(file)
    names = sorted(each.name for each in file.iterdir()) if file.is_dir() else []  # they stand in the notes
    cache = cache and all(each.is_file() for each in files)  # a pipe can be read but once
    entry = cached.entry(files, companions, (file.name, names, options)) if cache else None
    trace = cached.load(entry) if entry else None
    if trace is None:
        trace = _read(file, [each for each in files if each not in companions], options)
        if entry:
            cached.store(entry, trace)
    return trace


def _read(path: Path, files: list[Path], options: ReadOptions) -> Trace:
    source = Source(path, files, options)
    format, shape = recognised(source.first.where, source.first.values, options.format)
    _check_options(path, shape, options)

    def check(first: Record) -> None:
        found, _ = recognised(first.where, first.values, options.format)
        if found is not format:
            raise InputError(f"{first.where}: is {found.name}, and {files[0].name} {format.name}; allowed: a folder of "
                             "one format")  # fmt: skip

    source.check = check
    try:
        trace: Trace = importlib.import_module(f"kvsweep.trace.readers.{format.module}").read(source, shape)
    except InputError as error:
        if str(path) in str(error):
            raise
        raise InputError(f"{path}: {error}") from error
    if not len(trace):
        reasons = "; ".join(str(note) for note in trace.notes) or "only a header"
        raise InputError(f"{path}: holds no requests that could be replayed: {reasons}")
    return trace if format.states_its_source else replace(trace, source=f"{format.name} {path.name}")


def _check_options(path: Path, shape: Shape, options: ReadOptions) -> None:
    """Refuse options that say of a file what it states itself."""
    whole = {"full": "whole prompts", "delta": "what is new", None: ""}[shape.sessions]
    if shape.clock is None and options.time_unit is not None:
        problem = f"--time-unit: {options.time_unit}; {path} states its times"
    elif options.sessions is not None and shape.sessions not in (None, options.sessions):
        problem = f"--sessions: {options.sessions}; {path} holds {whole}"
    elif shape.blocks == "" and options.block_size is not None:
        problem = f"--block-size: {options.block_size}; {path} names no blocks"
    else:
        return
    raise InputError(f"{problem} ({shape.tool}); allowed: without it")
