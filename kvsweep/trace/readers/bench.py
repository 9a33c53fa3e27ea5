"""Results of load generators that kept the start of every request: `vllm bench serve`, AIPerf, LLMServingSim runs.

`sglang.bench_serving` keeps no start times, even with --output-details; its results cannot be replayed.
"""

from __future__ import annotations

from kvsweep.trace.build import Builder
from kvsweep.trace.model import Trace
from kvsweep.trace.record import Record
from kvsweep.trace.source import Source

NAME = "bench"
WHAT = "results with start times: vllm bench serve --save-detailed, AIPerf profile_export.jsonl, run logs"
FAILED = "requests that failed"


def matches(first: Record) -> bool:
    """Return whether the first record of a file is of this format."""
    return any((_is_vllm(first), _is_aiperf(first), _is_log(first)))


def read(source: Source) -> Trace:
    """Return the trace, which has no block ids; raises InputError naming line and field."""
    builder = Builder(source.notes)
    for record in source:
        if _is_aiperf(source.first):
            _add_aiperf(builder, record)
        elif _is_log(source.first):
            lengths = record.count("input_toks"), record.count("output_toks")
            builder.add(record.number("arrival_time"), lengths)
        else:
            _add_vllm(builder, record)
    source.notes.assumed("no block ids: the file has lengths and times only, so nothing is shared", len(builder))
    return builder.finish(0, f"{NAME} {source.path.name}")


def _is_vllm(first: Record) -> bool:
    return "input_lens" in first and "output_lens" in first


def _is_aiperf(first: Record) -> bool:
    return isinstance(first.values.get("metadata"), dict) and isinstance(first.values.get("metrics"), dict)


def _is_log(first: Record) -> bool:
    return "input_toks" in first and "arrival_time" in first


def _add_vllm(builder: Builder, record: Record) -> None:
    if "start_times" not in record:
        raise record.error("start_times", "is missing: when requests started is unknown", "a result that keeps them, "
                           "as of vllm bench serve --save-result --save-detailed")  # fmt: skip
    columns = [record.get(name) for name in ("start_times", "input_lens", "output_lens")]
    errors = record.values.get("errors") or []
    if not all(isinstance(column, list) and len(column) == len(columns[0]) for column in columns):
        raise record.error("start_times", "not as long as input_lens and output_lens", "lists of one length")
    for number, (start, n_input, n_output) in enumerate(zip(*columns, strict=True)):
        row = Record(f"{record.where}: request {number}", {"start": start, "input": n_input, "output": n_output})
        if isinstance(errors, list) and number < len(errors) and errors[number]:
            builder.notes.dropped(FAILED)
            continue
        builder.add(row.number("start"), (row.count("input"), row.count("output")))


def _add_aiperf(builder: Builder, record: Record) -> None:
    if record.values.get("error"):
        builder.notes.dropped(FAILED)
        return
    metadata, metrics = record.part("metadata"), record.part("metrics")
    lengths = [_value(metrics, name) for name in ("input_sequence_length", "output_sequence_length")]
    builder.add(
        metadata.number("request_start_ns", 1e9),
        (lengths[0], lengths[1]),
        session=metadata.label("conversation_id"),
    )


def _value(metrics: Record, name: str) -> int:
    # AIPerf writes {"value": x, "unit": "tokens"}; flat exports write x.
    return metrics.part(name).count("value") if isinstance(metrics.get(name), dict) else metrics.count(name)
