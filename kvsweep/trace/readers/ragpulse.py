"""RAGPulse JSONL: requests that name their parts (system prompt, passages, history, search, input) by id.

The lengths of the parts lie in files beside the trace. Parts follow each other in the order of `PARTS` and are cut
into prefix-chained blocks, so a passage is shared only behind the same parts. Source: flashserve/RAGPulse.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kvsweep.trace.build import Builder
from kvsweep.trace.model import Trace
from kvsweep.trace.readers.hashing import PrefixIds
from kvsweep.trace.record import Record
from kvsweep.trace.source import ReadOptions, Source

NAME = "ragpulse"
WHAT = "JSON lines: timestamp [s], input_length, output_length, hash_ids {part: ids}, session_id"


class Part(NamedTuple):
    """A part of a prompt: its key in a request, the file with its lengths, the key of its id there."""

    key: str
    file: str
    id: str


PARTS = (
    Part("sys_prompt", "1_sys_prompt.jsonl", "sys_prompt_id"),
    Part("passages_ids", "2_passages.jsonl", "passage_id"),
    Part("history", "3_history.jsonl", "history_id"),
    Part("web_search", "5_web_search.jsonl", "web_search_id"),
    Part("user_input", "4_user_input.jsonl", "user_input_id"),
)


def matches(first: Record) -> bool:
    """Return whether the first record of a file is of this format."""
    return isinstance(first.values.get("hash_ids"), dict)


def companions(path: Path) -> list[Path]:
    """Return the files with the lengths of the parts beside a trace; empty unless all of them are there."""
    files = [path.parent / part.file for part in PARTS]
    return files if all(file.is_file() for file in files) else []


def read(source: Source) -> Trace:
    """Return the trace; without block ids where the lengths of the parts are missing. Raises InputError."""
    builder = Builder(source.notes)
    lengths_of = _lengths(source) if companions(source.path) else None
    size, ids = source.options.block_size, PrefixIds()
    for number, record in enumerate(source):
        lengths = record.count("input_length"), record.count("output_length")
        blocks: list[int] = []
        if lengths_of is not None:
            pieces = list(_pieces(record, lengths_of, source))
            blocks = ids.chain(_cut([*pieces, (("request", number), lengths[0])], lengths[0], size))
        # Times are written as text here.
        timed = Record(record.where, record.values, textual=True)
        builder.add(timed.number("timestamp"), lengths, runs=(blocks, ()), session=record.label("session_id"))
    if lengths_of is None:
        source.notes.assumed(f"no block ids: {PARTS[0].file} and the like are not beside the trace", len(builder))
    else:
        order = ", ".join(part.key for part in PARTS)
        source.notes.assumed(f"parts follow each other as {order}; blocks of {size} tokens", len(builder))
    return builder.finish(size if lengths_of is not None else 0, f"{NAME} {source.path.name}")


def _lengths(source: Source) -> dict[tuple[str, int], int]:
    lengths: dict[tuple[str, int], int] = {}
    for part in PARTS:
        for record in Source(source.path.parent / part.file, ReadOptions()):
            lengths[part.key, record.count(part.id, 0, 2**53)] = record.count("token_length")
    return lengths


def _pieces(
    record: Record, lengths_of: dict[tuple[str, int], int], source: Source
) -> Iterator[tuple[tuple[str, int], int]]:
    """Yield (identity, length [token]) of the parts of a prompt."""
    parts = record.part("hash_ids")
    for part in PARTS:
        for id_ in parts.ids(part.key) if part.key in parts else ():
            length = lengths_of.get((part.key, id_))
            if length is None:
                source.notes.assumed("parts of unknown length: taken as empty")
            else:
                yield (part.key, id_), length


def _cut(pieces: list[tuple[tuple[str, int], int]], n_tokens: int, size: int) -> list[tuple[object, ...]]:
    """Return the contents of the full blocks of the first `n_tokens`: which stretch of which piece they hold."""
    blocks: list[tuple[object, ...]] = []
    current: list[object] = []
    filled = 0
    for identity, length in pieces:
        at = 0
        while at < length and len(blocks) * size + filled < n_tokens:
            taken = min(length - at, size - filled)
            current.append((identity, at, taken))
            at, filled = at + taken, filled + taken
            if filled == size:
                blocks.append(tuple(current))
                current, filled = [], 0
    return blocks[: n_tokens // size]
