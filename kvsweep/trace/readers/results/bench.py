"""Results of load generators that kept the start of every request: `vllm bench serve`, AIPerf, LLMServingSim runs.

`sglang.bench_serving` keeps no start times, even with --output-details; its results cannot be replayed.
"""

from __future__ import annotations

from kvsweep.trace.files.record import Record
from kvsweep.trace.files.source import Source
from kvsweep.trace.formats import Columns, Shape
from kvsweep.trace.model import Trace
from kvsweep.trace.readers.rows import FAILED, add_row, pick
from kvsweep.trace.settle.draft import MAX_TIME, Draft, Labels

LOG = Columns(("arrival_time",), ("input_toks",), ("output_toks",))
STARTS = ("request_start_ns", "timestamp_ns")
"""When AIPerf sent a request, and the name of that in version 0.1."""
PHASES = ("benchmark_phase", "credit_phase")
LENGTHS = ("input_sequence_length", "output_sequence_length")


def read(source: Source, shape: Shape) -> Trace:
    """Return the trace, which has no block ids; raises InputError naming line and field."""
    draft = Draft(source, shape)
    is_aiperf = isinstance(source.first.values.get("metadata"), dict)
    is_log = not is_aiperf and "arrival_time" in source.first
    for record in source:
        if is_aiperf:
            _add_aiperf(draft, record)
        elif is_log:
            add_row(draft, record, LOG)
        else:
            _add_vllm(draft, record)
    return draft.trace()


def _add_vllm(draft: Draft, record: Record) -> None:
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
            draft.notes.dropped(FAILED)
            continue
        draft.row(row, row.number("start", high=MAX_TIME), (row.count("input"), row.count("output")))


def _add_aiperf(draft: Draft, record: Record) -> None:
    if record.values.get("error"):
        draft.notes.dropped(FAILED)
        return
    metadata, metrics = record.part("metadata"), record.part("metrics")
    phase = metadata.first(PHASES)
    if phase is not None and metadata.values[phase] == "warmup":
        draft.notes.dropped("requests of the warm-up, which are no load")
        return
    if metadata.values.get("was_cancelled") is True:
        draft.notes.dropped("requests that were cancelled")
        return
    lengths = [_value(metrics, name) for name in LENGTHS]
    draft.row(
        metadata, metadata.number(pick(metadata, STARTS), high=MAX_TIME), (lengths[0], lengths[1]),
        labels=Labels(metadata.label("conversation_id")),
    )  # fmt: skip


def _value(metrics: Record, name: str) -> int:
    # AIPerf writes {"value": x, "unit": "tokens"}; flat exports write x.
    return metrics.part(name).count("value") if isinstance(metrics.get(name), dict) else metrics.count(name)
