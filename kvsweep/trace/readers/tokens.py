"""Plain JSONL with token ids, hashed into prefix-chained blocks; names and units of the fields vary by tool.

A length beside the ids counts, as it does in LLMServingSim: what has no ids is shared with none.
"""

from __future__ import annotations

from kvsweep.trace.files.record import Record
from kvsweep.trace.files.source import Source
from kvsweep.trace.formats import Clock, Columns, Shape
from kvsweep.trace.model import Trace
from kvsweep.trace.readers.rows import clock_reading, output_by_option
from kvsweep.trace.settle.clock import named_unit
from kvsweep.trace.settle.draft import Draft, Labels
from kvsweep.trace.settle.hashing import PrefixIds, token_blocks

TOKENS = ("input_tok_ids", "prompt_token_ids", "input_token_ids", "input_ids", "token_ids")
COLUMNS = Columns(
    time=("arrival_time_ns", "arrival_time_ms", "timestamp_ms", "timestamp_ns", "arrival_time", "arrival", "timestamp"),
    input=("input_toks", "input_length", "input_tokens", "input_len", "prompt_len"),
    output=("output_toks", "output_length", "output_tokens", "output_len", "max_tokens", "max_new_tokens"),
    session=("session_id", "session", "conversation_id"),
)
OUTPUT_IDS = ("output_tok_ids", "output_token_ids", "output_ids")


def read(source: Source, shape: Shape) -> Trace:
    """Return the trace; raises InputError naming line and field."""
    draft = Draft(source, shape)
    ids, size = PrefixIds(), draft.made_size()
    name = source.first.first(COLUMNS.time)
    for record in source:
        tokens = record.ids(record.first(TOKENS) or TOKENS[0])
        time = clock_reading(draft, record, name) if name else 0.0
        session = record.label(label) if (label := record.first(COLUMNS.session)) else None
        n_output = _output(draft, record)
        if n_output is None:
            draft.leave_out(session, time)
            continue
        n_input = _input(draft, record, tokens)
        blocks = ids.chain(token_blocks(tokens[:n_input], size))
        draft.row(record, time, (n_input, n_output), runs=(blocks, ()), labels=Labels(session))
    if name is None:
        draft.notes.assumed("no times: requests taken as arriving at once", len(draft))
    draft.notes.assumed(f"token ids hashed into blocks of {size} tokens; what fills none is not shared", len(draft))
    unit = named_unit(name) if name else None
    return draft.trace(Clock(unit) if unit else shape.clock, draft.checked_size(size))


def _input(draft: Draft, record: Record, tokens: list[int]) -> int:
    name = record.first(COLUMNS.input)
    n_input = record.count(name) if name else len(tokens)
    if n_input > len(tokens):
        draft.notes.assumed("prompts with fewer token ids than their length: the rest is shared with none")
    elif n_input < len(tokens):
        draft.notes.assumed("prompts with more token ids than their length: cut to it")
    return n_input


def _output(draft: Draft, record: Record) -> int | None:
    name, listed = record.first(COLUMNS.output), record.first(OUTPUT_IDS)
    if name is not None:
        return record.count(name)
    return len(record.ids(listed)) if listed is not None else output_by_option(draft)
