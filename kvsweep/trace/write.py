"""Traces as text: kvsweep's own JSONL, Mooncake JSONL, and CSV in the columns of the Azure traces."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from kvsweep.errors import InputError
from kvsweep.trace.model import Trace, run_lengths
from kvsweep.trace.readers import native

TABLE = "table"
AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
"""Columns of the Azure traces."""
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
"""Start of traces written with dates; readers take times after the first one."""


def native_lines(trace: Trace) -> Iterator[str]:
    """Yield the lines of kvsweep's own format: all a trace holds, times to the last bit."""
    header = {native.NAME + "_trace": native.VERSION, "block_size": trace.block_size, "requests": len(trace)}
    yield json.dumps({**header, "source": trace.source}, ensure_ascii=False)
    starts, counts, runs = run_lengths(trace.offsets, trace.blocks)
    pairs = list(zip(starts.tolist(), counts.tolist(), strict=True))
    bounds = runs.tolist()
    for i, row in enumerate(_rows(trace)):
        arrival, n_input, n_output, session, turn, group, think = row
        fields: dict[str, Any] = {"arrival": arrival, "input_tokens": n_input, "output_tokens": n_output}
        if session >= 0:
            fields |= {"session": session, "turn": turn}
        if group >= 0:
            fields["group"] = group
        if not math.isnan(think):
            fields["think"] = think
        if trace.block_size:
            fields["blocks"] = [number for pair in pairs[bounds[i] : bounds[i + 1]] for number in pair]
        yield json.dumps(fields)


def mooncake_lines(trace: Trace) -> Iterator[str]:
    """Yield the lines of Mooncake JSONL; times in whole microseconds, groups are lost."""
    bounds = trace.offsets.tolist()
    prompts = (trace.offsets[:-1] + trace.n_prompt_blocks).tolist()
    for i, (arrival, n_input, n_output, session, _, _, think) in enumerate(_rows(trace)):
        fields: dict[str, Any] = {
            "timestamp": _milliseconds(arrival), "input_length": n_input, "output_length": n_output,
            "hash_ids": trace.blocks[bounds[i] : prompts[i]].tolist(),
        }  # fmt: skip
        if session >= 0:
            fields["session_id"] = session
        if not math.isnan(think):
            fields["delay"] = _milliseconds(think)
        yield json.dumps(fields)


def table_lines(trace: Trace) -> Iterator[str]:
    """Yield the lines of a CSV in the columns of the Azure traces; only lengths and times are kept."""
    yield ",".join(AZURE)
    for arrival, n_input, n_output, *_ in _rows(trace):
        moment = _EPOCH + timedelta(microseconds=round(arrival * 1e6))
        yield f"{moment:%Y-%m-%d %H:%M:%S.%f},{n_input},{n_output}"


WRITERS: dict[str, Callable[[Trace], Iterator[str]]] = {
    native.NAME: native_lines, "mooncake": mooncake_lines, TABLE: table_lines,
}  # fmt: skip
"""Writers by the name of their format."""


def lines(trace: Trace, format: str) -> Iterator[str]:
    """Yield the lines of `trace` in `format`, a key of `WRITERS`; raises InputError where it cannot hold the trace."""
    latest = (datetime.max.replace(tzinfo=UTC) - _EPOCH).total_seconds()
    if format == TABLE and len(trace) and trace.arrival[-1] >= latest:
        raise InputError(f"{TABLE}: arrivals up to {trace.arrival[-1]:.3g} s; allowed: less than {latest:.3g} s")
    return WRITERS[format](trace)


def _rows(trace: Trace) -> Iterator[tuple[float, int, int, int, int, int, float]]:
    """Yield arrival, lengths, session, turn, group and think time of each request as plain numbers."""
    columns = (trace.arrival, trace.input_tokens, trace.output_tokens, trace.session, trace.turn, trace.group,
               trace.think)  # fmt: skip
    return zip(*(column.tolist() for column in columns), strict=True)


def _milliseconds(seconds: float) -> float:
    value = round(seconds * 1e3, 3)
    return int(value) if value.is_integer() else value
