"""kvsweep's own JSONL: a header line, then a request a line with times in seconds and blocks as runs of ids."""

from __future__ import annotations

import math

from kvsweep.errors import InputError
from kvsweep.trace.build import Builder
from kvsweep.trace.files.record import Record
from kvsweep.trace.files.source import Source
from kvsweep.trace.formats import Shape
from kvsweep.trace.model import Trace

NAME = "kvsweep"
VERSION = 1
MAX_FIRST = 2**62
"""Largest id a run may begin with."""


def read(source: Source, shape: Shape) -> Trace:
    """Return the trace; raises InputError naming line and field."""
    builder = Builder(source.notes)
    records = iter(source)
    header = next(records)
    header.count(f"{NAME}_trace", VERSION, VERSION)
    block_size, n_requests = header.count("block_size"), header.count("requests")
    n_read = 0
    for record in records:
        runs = record.ids("blocks") if "blocks" in record else []
        lengths = record.count("input_tokens"), record.count("output_tokens")
        _check_runs(record, runs, sum(lengths), block_size)
        builder.add(
            record.number("arrival"), lengths, runs=(runs[::2], runs[1::2]),
            session=record.label("session"), group=record.label("group"),
            think=record.number("think") if "think" in record else math.nan,
        )  # fmt: skip
        n_read += 1
    if n_read != n_requests:
        raise InputError(f"{source.path}: {n_read} requests; allowed: {n_requests}, as the header says")
    return builder.finish(block_size, str(header.label("source") or ""))


def _check_runs(record: Record, runs: list[int], n_tokens: int, block_size: int) -> None:
    if len(runs) % 2:
        raise record.error("blocks", f"{len(runs)} numbers", "pairs of first block id and count")
    most = -(-n_tokens // block_size) if block_size else 0
    if sum(runs[1::2]) > most:
        raise record.error("blocks", f"{sum(runs[1::2])} blocks for {n_tokens} tokens", f"at most {most}")
    if any(first > MAX_FIRST for first in runs[::2]):
        raise record.error("blocks", "ids too large", f"0 to {MAX_FIRST}")
