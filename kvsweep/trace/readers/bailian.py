"""Qwen-Bailian JSONL: chats with parents, timestamp [s], lengths, ids of 16-token blocks by content.

Equal ids are equal content, not equal prefixes; the builder numbers them anew by their prefix. A parent that lies
outside the published window makes its chat a root.
"""

from __future__ import annotations

from kvsweep.trace.files.source import Source
from kvsweep.trace.formats import Columns, Shape
from kvsweep.trace.model import Trace
from kvsweep.trace.readers.rows import clock_reading, lengths_of
from kvsweep.trace.settle.draft import Draft, Labels

ROOT = -1
COLUMNS = Columns(("timestamp",), ("input_length",), ("output_length",), ids=("hash_ids",))


def read(source: Source, shape: Shape) -> Trace:
    """Return the trace; raises InputError naming line and field."""
    draft = Draft(source, shape)
    root_of: dict[str | int, str | int] = {}
    for record in source:
        chat, parent = record.label("chat_id"), record.label("parent_chat_id")
        if chat is None:
            raise record.error("chat_id", "is missing", "text or a whole number")
        if parent is not None and parent != ROOT and parent not in root_of:
            source.notes.assumed("parents outside the file: their chats taken as new sessions")
        session = chat if parent is None else root_of.get(parent, chat)
        root_of[chat] = session
        lengths = lengths_of(draft, record, COLUMNS)
        if lengths is not None:
            ids = record.ids("hash_ids") if "hash_ids" in record else []
            draft.row(
                record, clock_reading(draft, record, "timestamp"), lengths, runs=(ids, ()), labels=Labels(session)
            )
    return draft.trace()
