"""Mooncake JSONL, also as AIPerf, Dynamo and `vllm bench` extend it: timestamp [ms], lengths, hash_ids, sessions.

Source: FAST'25 artefact, kvcache-ai/Mooncake. Blocks are 512 tokens unless the counts of ids say otherwise.
"""

from __future__ import annotations

import math

from kvsweep.trace.build import Builder
from kvsweep.trace.model import Trace
from kvsweep.trace.readers.sizes import fits, infer_block_size
from kvsweep.trace.record import Record
from kvsweep.trace.source import Source

NAME = "mooncake"
WHAT = "JSON lines: timestamp [ms], input_length, output_length, hash_ids, session_id, delay [ms]"
BLOCK_SIZE = 512
PER_SECOND = 1000.0


def matches(first: Record) -> bool:
    """Return whether the first record of a file is of this format."""
    return "input_length" in first and ("timestamp" in first or "delay" in first) and not first.textual


def read(source: Source) -> Trace:
    """Return the trace; raises InputError naming line and field."""
    builder = Builder(source.notes)
    latest: dict[str | int, float] = {}
    counts: list[tuple[int, int, Record]] = []
    for record in source:
        session = record.label("session_id")
        think = record.number("delay", PER_SECOND) if "delay" in record else math.nan
        arrival = _arrival(record, session, think, latest, source)
        lengths = record.count("input_length"), record.count("output_length")
        ids = record.ids("hash_ids") if "hash_ids" in record else []
        if builder.add(arrival, lengths, runs=(ids, ()), session=session, think=think) and ids:
            counts.append((len(ids), lengths[0], record))
        if session is not None:
            latest[session] = arrival
    builder.settle_unit("ms")
    return builder.finish(_block_size(source, counts), f"{NAME} {source.path.name}")


def _arrival(
    record: Record, session: str | int | None, think: float, latest: dict[str | int, float], source: Source
) -> float:
    """Return the time of a request [s]; later turns of a closed-loop session may state their delay only."""
    if "timestamp" in record or session not in latest or math.isnan(think):
        return record.number("timestamp", PER_SECOND)
    source.notes.assumed("turns without a time: arrival taken as that of the previous turn plus the delay")
    assert session is not None
    return latest[session] + think


def _block_size(source: Source, counts: list[tuple[int, int, Record]]) -> int:
    if not counts:
        return 0
    size = infer_block_size([(n_ids, n_input) for n_ids, n_input, _ in counts], BLOCK_SIZE)
    if size != BLOCK_SIZE:
        source.notes.assumed(f"blocks of {size} tokens, as the counts of hash_ids fit", len(counts))
    for n_ids, n_input, record in counts:
        if not fits(n_ids, n_input, size):
            most = -(-n_input // size)
            if n_ids > most:
                raise record.error(
                    "hash_ids", f"{n_ids} blocks for {n_input} tokens", f"at most {most} blocks of {size} tokens"
                )
            source.notes.assumed("prompts with fewer hash_ids than blocks: the rest is shared with none")
    return size
