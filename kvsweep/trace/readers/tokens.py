"""Plain JSONL with token ids, hashed into prefix-chained blocks; names and units of the fields vary by tool."""

from __future__ import annotations

from collections.abc import Iterable

from kvsweep.trace.build import Builder
from kvsweep.trace.model import Trace
from kvsweep.trace.readers.hashing import PrefixIds, token_blocks
from kvsweep.trace.record import Record
from kvsweep.trace.source import Source

NAME = "tokens"
WHAT = "JSON lines: input_tok_ids, prompt_token_ids, input_ids or token_ids; output_toks …; arrival_time [s] …"

TOKENS = ("input_tok_ids", "prompt_token_ids", "input_token_ids", "input_ids", "token_ids")
OUTPUTS = ("output_toks", "output_length", "output_tokens", "output_len", "max_tokens", "max_new_tokens")
OUTPUT_TOKENS = ("output_tok_ids", "output_token_ids", "output_ids")
TIMES = {
    "arrival_time_ns": 1e9, "arrival_time_ms": 1e3, "timestamp_ms": 1e3, "timestamp_ns": 1e9, "arrival_time": 1.0,
    "arrival": 1.0, "timestamp": 1.0,
}  # fmt: skip
"""Names of the arrival with how many of its unit are a second; those without a unit are in seconds."""
SESSIONS = ("session_id", "session", "conversation_id")


def matches(first: Record) -> bool:
    """Return whether the first record of a file is of this format."""
    return _first(first, TOKENS) is not None


def read(source: Source) -> Trace:
    """Return the trace; raises InputError naming line and field."""
    builder = Builder(source.notes)
    ids, size = PrefixIds(), source.options.block_size
    time = _first(source.first, TIMES)
    for record in source:
        tokens = record.ids(_first(record, TOKENS) or TOKENS[0])
        if time is None:
            source.notes.assumed("no times: requests taken as arriving at once")
        arrival = record.number(time, TIMES[time]) if time else 0.0
        session = _first(record, SESSIONS)
        builder.add(
            arrival, (len(tokens), _output(record)), runs=(ids.chain(token_blocks(tokens, size)), ()),
            session=record.label(session) if session else None,
        )  # fmt: skip
    source.notes.assumed(f"token ids hashed into blocks of {size} tokens; what fills none is not shared", len(builder))
    if time in ("arrival_time", "arrival", "timestamp"):
        builder.settle_unit("s")
    return builder.finish(size, f"{NAME} {source.path.name}")


def _output(record: Record) -> int:
    name = _first(record, OUTPUTS)
    listed = _first(record, OUTPUT_TOKENS)
    if name is None and listed is not None:
        return len(record.ids(listed))
    return record.count(name or OUTPUTS[0])


def _first(record: Record, names: Iterable[str]) -> str | None:
    return next((name for name in names if name in record), None)
