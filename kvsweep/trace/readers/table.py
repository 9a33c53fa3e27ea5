"""CSV tables of lengths and arrivals without contents: Azure LLM inference traces, splitwise, BurstGPT."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from kvsweep.errors import shown
from kvsweep.trace.build import Builder
from kvsweep.trace.model import Trace
from kvsweep.trace.record import Record
from kvsweep.trace.source import Source

NAME = "table"
WHAT = "CSV: TIMESTAMP, ContextTokens, GeneratedTokens (Azure); Timestamp, Request tokens, Response tokens (BurstGPT)"


class Columns(NamedTuple):
    """Names of the columns of one kind of table."""

    time: str
    input: str
    output: str
    session: str = ""


AZURE = Columns("TIMESTAMP", "ContextTokens", "GeneratedTokens")
SPLITWISE = Columns("arrived_at", "num_prefill_tokens", "num_decode_tokens")
BURSTGPT = Columns("Timestamp", "Request tokens", "Response tokens", "Session ID")


def matches(first: Record) -> bool:
    """Return whether the first record of a file is of this format."""
    return _columns(first) is not None


def read(source: Source) -> Trace:
    """Return the trace, which has no block ids; raises InputError naming line and column."""
    builder = Builder(source.notes)
    columns = _columns(source.first)
    if columns is None:
        raise source.first.error(AZURE.time, "is missing", WHAT)
    for record in source:
        lengths = record.count(columns.input), record.count(columns.output)
        arrival = _moment(record) if columns is AZURE else record.number(columns.time)
        if columns is BURSTGPT and lengths[1] == 0:
            source.notes.dropped("failed requests (no response tokens)")
            continue
        builder.add(arrival, lengths, session=record.label(columns.session) if columns.session else None)
    source.notes.assumed("no block ids: the file has lengths and times only, so nothing is shared", len(builder))
    return builder.finish(0, f"{NAME} {source.path.name}")


def _columns(first: Record) -> Columns | None:
    return next((kind for kind in (AZURE, SPLITWISE, BURSTGPT) if set(kind[:3]) <= set(first.values)), None)


def _moment(record: Record) -> float:
    """Return a date and time as seconds since 1970; seven digits of a second and a time zone may follow."""
    text = str(record.get(AZURE.time))
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        allowed = "a date and time as in 2023-11-16 18:15:46.6805900"
        raise record.error(AZURE.time, f"{shown(text)} is no time", allowed) from None
    seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if seconds < 0:
        raise record.error(AZURE.time, f"{shown(text)} is before 1970", "later times")
    return seconds
