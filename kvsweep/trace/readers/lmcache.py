"""LMCache's log of lookups: the hashes of the chunks a request asked for, and how long its prompt is.

Source: LMCache's ``lookup_hashes_*.jsonl``. Answers are not logged; they are taken as one token unless told otherwise.
"""

from __future__ import annotations

from kvsweep.trace.files.record import Record
from kvsweep.trace.files.source import Source
from kvsweep.trace.formats import Shape
from kvsweep.trace.model import Trace
from kvsweep.trace.readers.rows import clock_reading
from kvsweep.trace.settle.draft import Draft


def read(source: Source, shape: Shape) -> Trace:
    """Return the trace; raises InputError naming line and field."""
    draft, size, numbers = Draft(source, shape), 0, dict[str | int, int]()
    n_output = source.options.output_tokens or 1
    for record in source:
        stated = record.count("chunk_size", 1)
        if size not in (0, stated):
            raise record.error("chunk_size", f"is {stated}", f"{size}, as in the lookups before")
        size = stated
        ids = [numbers.setdefault(name, len(numbers)) for name in _hashes(record)]
        draft.row(
            record, clock_reading(draft, record, "timestamp"), (record.count("seq_len"), n_output), runs=(ids, ())
        )
    draft.notes.assumed(f"answers, which lookups do not log: {n_output} tokens (--output-tokens)", len(draft))
    return draft.trace(size=draft.checked_size(size))


def _hashes(record: Record) -> list[str | int]:
    found = record.get("chunk_hashes")
    if not isinstance(found, list) or not all(type(item) in (str, int) for item in found):
        raise record.error("chunk_hashes", "is no list of hashes", "a list of texts or whole numbers")
    return found
