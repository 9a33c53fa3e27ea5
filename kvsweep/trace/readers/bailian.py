"""Qwen-Bailian JSONL: chats with parents, timestamp [s], lengths, ids of 16-token blocks by content.

Equal ids are equal content, not equal prefixes; the builder numbers them anew by their prefix. A parent that lies
outside the published window makes its chat a root.
"""

from __future__ import annotations

from kvsweep.trace.build import Builder
from kvsweep.trace.model import Trace
from kvsweep.trace.readers.sizes import fits, infer_block_size
from kvsweep.trace.record import Record
from kvsweep.trace.source import Source

NAME = "bailian"
WHAT = "JSON lines: chat_id, parent_chat_id, timestamp [s], input_length, output_length, hash_ids"
BLOCK_SIZE = 16
ROOT = -1


def matches(first: Record) -> bool:
    """Return whether the first record of a file is of this format."""
    return "chat_id" in first and "parent_chat_id" in first


def read(source: Source) -> Trace:
    """Return the trace; raises InputError naming line and field."""
    builder = Builder(source.notes)
    root_of: dict[str | int, str | int] = {}
    counts: list[tuple[int, int]] = []
    for record in source:
        chat, parent = record.label("chat_id"), record.label("parent_chat_id")
        if chat is None:
            raise record.error("chat_id", "is missing", "text or a whole number")
        if parent is not None and parent != ROOT and parent not in root_of:
            source.notes.assumed("parents outside the file: their chats taken as new sessions")
        session = chat if parent is None else root_of.get(parent, chat)
        root_of[chat] = session
        lengths = record.count("input_length"), record.count("output_length")
        ids = record.ids("hash_ids") if "hash_ids" in record else []
        if builder.add(record.number("timestamp"), lengths, runs=(ids, ()), session=session) and ids:
            if len(ids) > -(-lengths[0] // BLOCK_SIZE):
                raise record.error("hash_ids", f"{len(ids)} blocks for {lengths[0]} tokens",
                                   f"at most {-(-lengths[0] // BLOCK_SIZE)} blocks of {BLOCK_SIZE} tokens")  # fmt: skip
            counts.append((len(ids), lengths[0]))
    builder.settle_unit("s")
    size = infer_block_size(counts, BLOCK_SIZE) if counts else 0
    if size not in (0, BLOCK_SIZE):
        source.notes.assumed(f"blocks of {size} tokens, as the counts of hash_ids fit", len(counts))
    unshared = sum(not fits(*count, size) for count in counts) if size else 0
    source.notes.assumed("prompts with fewer hash_ids than blocks: the rest is shared with none", unshared)
    return builder.finish(size, f"{NAME} {source.path.name}")
