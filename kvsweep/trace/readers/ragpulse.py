"""RAGPulse JSONL: requests that name their parts (system prompt, passages, history, search, input) by id.

The lengths of the parts lie in files beside the trace. Parts follow each other in the order of `PARTS` and are cut
into prefix-chained blocks, so a passage is shared only behind the same parts. Source: flashserve/RAGPulse.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kvsweep.trace.files.record import Record
from kvsweep.trace.files.source import Source
from kvsweep.trace.formats import Shape
from kvsweep.trace.model import Trace
from kvsweep.trace.options import ReadOptions
from kvsweep.trace.settle.draft import MAX_TIME, NO_IDS, Draft, Labels
from kvsweep.trace.settle.hashing import PrefixIds
from kvsweep.trace.settle.sessions import Stream


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


def companions(path: Path) -> list[Path]:
    """Return the files with the lengths of the parts beside a trace, or in its folder; empty unless all are there."""
    files = [_beside(path) / part.file for part in PARTS]
    return files if all(file.is_file() for file in files) else []


def _beside(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def read(source: Source, shape: Shape) -> Trace:
    """Return the trace; without block ids where the lengths of the parts are missing. Raises InputError."""
    draft = Draft(source, shape)
    lengths_of = _lengths(source) if companions(source.path) else None
    size, ids = draft.made_size(), PrefixIds()
    for number, record in enumerate(source):
        lengths = record.count("input_length"), record.count("output_length")
        blocks: tuple[list[int], list[int]] = [], []
        if lengths_of is not None:
            stream = Stream(ids, size)
            for identity, length in (*_pieces(record, lengths_of, source), (("request", number), lengths[0])):
                stream.extend(identity, min(length, lengths[0] - stream.n_tokens))
            blocks = stream.blocks()
        # Times are written as text here.
        timed = Record(record.where, record.values, textual=True)
        draft.row(record, timed.number("timestamp", high=MAX_TIME), lengths, runs=blocks,
                  labels=Labels(record.label("session_id")))  # fmt: skip
    if lengths_of is None:
        draft.notes.assumed(f"{NO_IDS}; {PARTS[0].file} and the like are not beside the trace", len(draft))
        return draft.trace(size=0)
    order = ", ".join(part.key for part in PARTS)
    draft.notes.assumed(f"parts follow each other as {order}; blocks of {size} tokens", len(draft))
    return draft.trace(size=size)


def _lengths(source: Source) -> dict[tuple[str, int], int]:
    lengths: dict[tuple[str, int], int] = {}
    for part in PARTS:
        path = _beside(source.path) / part.file
        for record in Source(path, [path], ReadOptions()):
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
