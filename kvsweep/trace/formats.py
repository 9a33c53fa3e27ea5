"""The formats of traces: what each needs in a record, what its times, blocks and sessions mean, and who reads it.

This is the one list of these facts. By it a file is recognised, or told what it lacks of the nearest format; where a
format leaves something open, `kvsweep.trace.settle` finds it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from kvsweep.errors import InputError, shown
from kvsweep.trace.options import SessionMeaning, TimeUnit

STATED: Literal["stated"] = "stated"
"""Size of blocks that the file itself states."""
MADE: Literal["made"] = "made"
"""Size of blocks that are made of token ids, documents or lengths on reading."""


class Clock(NamedTuple):
    """What a format says of its times."""

    unit: TimeUnit = "s"
    sure: bool = True
    """Whether files of the format are always in that unit; otherwise it is a habit."""
    open: bool = False
    """Whether tools write other units under the same names as often."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Names of the fields of a request in flat records, the first that is there counts.

    A time or pause whose name ends in _ms, _us or _ns is in that unit. A request with another `status` than
    `succeeded` failed, as did one without output where `empty_fails`.
    """

    time: tuple[str, ...]
    input: tuple[str, ...]
    output: tuple[str, ...]
    session: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    delay: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    status: tuple[str, ...] = ()
    empty_fails: bool = False
    inside: str = ""
    """Field with an object whose fields are the record's, too."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return every name."""
        return (*self.time, *self.input, *self.output, *self.session, *self.group, *self.delay, *self.ids, *self.text,
                *self.status)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of records: what must be there, and what it means.

    A need is a field, or several of which one is enough (``a|b``), in parts of a record (``a/b``); ``a[]`` is a list,
    ``a{}`` an object, and what is below a list is asked of its first item.
    """

    tool: str
    needs: tuple[str, ...]
    clock: Clock | None = Clock()
    blocks: int | Literal["stated", "made", ""] = ""
    """Size the format documents [token], 0 for whatever fits, `STATED`, `MADE`, or none."""
    sessions: SessionMeaning | None = "full"
    """What a prompt of a session holds; None where tools differ."""
    columns: Columns | None = None
    signs: tuple[str, ...] = ()
    """What the tool's files have, too, by which one that lacks a need is known."""
    hint: str = ""
    """What to do about a file that lacks a need."""

    def matches(self, values: Mapping[str, Any]) -> bool:
        """Return whether a record has all that is needed."""
        return all(_has(values, need) for need in self.needs)

    def nearness(self, values: Mapping[str, Any]) -> tuple[float, int]:
        """Return the share and the number of the needs and signs that a record has."""
        asked = (*self.needs, *self.signs)
        found = sum(_has(values, need) for need in asked)
        return found / len(asked), found

    def lacking(self, values: Mapping[str, Any]) -> str:
        """Return the needs that a record lacks, as a message names them."""
        return ", ".join(_readable(need) for need in self.needs if not _has(values, need))


@dataclass(frozen=True, slots=True)
class Format:
    """A format: its name on the command line, the module of `kvsweep.trace.readers` that reads it, its shapes."""

    name: str
    module: str
    what: str
    shapes: tuple[Shape, ...] = field(repr=False)
    states_its_source: bool = False
    """Whether a file tells where its trace is from."""


MILLISECONDS, NANOSECONDS = Clock("ms"), Clock("ns")
BY_HABIT = Clock("s", sure=False)
OPEN = Clock("s", sure=False, open=True)

_TOKENS = "input_tok_ids[]|prompt_token_ids[]|input_token_ids[]|input_ids[]|token_ids[]"
_BENCH_SIGNS = ("backend", "request_rate", "completed", "total_input_tokens", "total_output_tokens")
_ROUND = ("prefix_len|prefix_tokens", "input_len|newly_append_tokens", "output_len|output_tokens")

_NATIVE = Format(
    "kvsweep", "native", "kvsweep's own JSON lines, which hold all a trace has",
    (Shape("a kvsweep trace", ("kvsweep_trace", "block_size", "requests"), None, STATED),), True,
)  # fmt: skip
_AGENT = Format(
    "agent", "agent", "agent sessions, one a line, with think times and sub-agents (weka layout)",
    (Shape("a weka trace", ("requests[]", "bs|block_size"), Clock(), STATED),),
)  # fmt: skip
_RAGPULSE = Format(
    "ragpulse", "ragpulse", "requests that name their parts by id",
    (Shape("RAGPulse", ("hash_ids{}", "timestamp", "input_length", "output_length"), Clock(), MADE),),
)  # fmt: skip
_BAILIAN = Format(
    "bailian", "bailian", "Qwen-Bailian chats with parents: timestamp [s]",
    (Shape("Qwen-Bailian", ("chat_id", "parent_chat_id", "timestamp", "input_length"), BY_HABIT, 16),),
)  # fmt: skip
_TOKENS_FORMAT = Format(
    "tokens", "tokens", "token ids (input_tok_ids, prompt_token_ids, …), hashed into blocks; LLMServingSim, vLLM",
    (Shape("token ids", (_TOKENS,), BY_HABIT, MADE),),
)  # fmt: skip
_BENCH = Format(
    "bench", "results.bench",
    "results of vllm bench serve --save-detailed, AIPerf profile_export.jsonl, LLMServingSim runs",
    (
        Shape("AIPerf profile_export.jsonl", ("metadata/request_start_ns|metadata/timestamp_ns",
              "metrics/input_sequence_length", "metrics/output_sequence_length"), NANOSECONDS,
              signs=("metadata/x_request_id", "metadata/worker_id")),
        Shape("LLMServingSim requests.jsonl", ("input_toks", "output_toks", "arrival_time"), BY_HABIT,
              signs=("queued_ts", "first_token_ts")),
        Shape("vllm bench serve --save-detailed", ("start_times[]", "input_lens[]", "output_lens[]"),
              signs=(*_BENCH_SIGNS, "num_prompts"), hint="run it with --save-result --save-detailed"),
        Shape("sglang.bench_serving", ("start_times[]", "input_lens[]", "output_lens[]"),
              signs=(*_BENCH_SIGNS, "dataset_name", "accept_length"),
              hint="it keeps no start times, also with --output-details: read the trace it played"),
    ),
)  # fmt: skip
_MOONCAKE = Format(
    "mooncake", "mooncake", "timestamp [ms], input_length, output_length, hash_ids; session_id and delay of AIPerf and "
    "Dynamo; lengths alone",
    (Shape("Mooncake", ("timestamp|created_time|delay|delay_ms",
           "input_length|input_tokens|text_input|messages|payload", "output_length|output_tokens|hash_ids"),
           OPEN, 512, None, Columns(time=("timestamp", "created_time"), input=("input_length", "input_tokens"),
                   output=("output_length", "output_tokens"), session=("session_id",), delay=("delay", "delay_ms"),
                   ids=("hash_ids",), text=("text_input", "messages", "payload"))),),
)  # fmt: skip
_DYNAMO = Format(
    "dynamo", "dynamo", "Dynamo request traces: dynamo.request.trace.v1",
    (
        Shape("Dynamo request trace", ("schema", "event_type"), MILLISECONDS, STATED,
              signs=("event_time_unix_ms", "request/request_received_ms")),
        Shape("Dynamo request trace in envelopes", ("event/schema", "event/event_type"), MILLISECONDS, STATED),
    ),
)  # fmt: skip
_ROUNDS = Format(
    "rounds", "rounds", "agent sessions told by lengths: TraceLab rounds and sessions, LLMServingSim sub_requests",
    (
        Shape("TraceLab", ("session_id", *_ROUND, "timing_events[]"), Clock(), MADE),
        Shape("TraceLab rounds", ("session_id", *_ROUND, "arrival_time|timestamp"), OPEN, MADE,
              signs=("round_idx|round_index",)),
        Shape("TraceLab sessions", ("session_id", "rounds[]", "arrival_time|timestamp"), OPEN, MADE),
        Shape("LLMServingSim agentic", ("sub_requests[]", "arrival_time_ns"), NANOSECONDS, MADE),
    ),
)  # fmt: skip
_REPORTS = Format(
    "reports", "results.reports",
    "GuideLLM reports, inference-perf's per-request metrics, GenAI-Perf's profile_export.json",
    (
        Shape("GuideLLM", ("benchmarks[]/requests{}",), signs=("benchmarks[]", "metadata", "args|config"),
              hint="save the JSON report with its requests"),
        Shape("inference-perf", ("start_time", "info/input_tokens|info/request_metrics"), signs=("end_time", "info")),
        Shape("inference-perf", ("start_time", "info/input_tokens|info/request_metrics"),
              signs=("load_summary", "successes", "failures"),
              hint="that is a summary: per_request_lifecycle_metrics.json has the requests (report: request_lifecycle: "
              "per_request: true)"),
        Shape("GenAI-Perf", ("experiments[]/requests[]",), NANOSECONDS, signs=("service_kind", "endpoint"),
              hint="profile_export.json has the requests"),
    ),
)  # fmt: skip
_AIBRIX = Format(
    "aibrix", "aibrix", "AIBrix workloads: timestamp [ms] with the requests that arrive then",
    (Shape("AIBrix", ("timestamp", "requests[]/Prompt Length|requests[]/prompt_length|requests[]/Prompt"),
           MILLISECONDS),),
)  # fmt: skip
_SPANS = Format(
    "otel", "results.spans", "OpenTelemetry spans of generative AI calls (gen_ai.usage.input_tokens)",
    (
        Shape("OTLP spans", ("resourceSpans[]",), NANOSECONDS),
        Shape("sessions of spans", ("spans[]",), NANOSECONDS),
        Shape("spans", ("startTimeUnixNano|start_time_unix_nano|start_time", "attributes"), NANOSECONDS),
    ),
)  # fmt: skip
_LMCACHE = Format(
    "lmcache", "lmcache", "LMCache's log of lookups: chunk_hashes, chunk_size, seq_len",
    (Shape("LMCache lookups", ("timestamp", "chunk_hashes[]", "chunk_size", "seq_len"), BY_HABIT, STATED),),
)  # fmt: skip
_TABLE = Format(
    "table", "rows", "lengths and times: Azure, splitwise, Vidur, Frontier, BurstGPT, splitwise-sim, BLIS, ServeGen, "
    "LLMServingSim",
    (
        Shape("Azure LLM inference trace", ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
              columns=Columns(("TIMESTAMP",), ("ContextTokens",), ("GeneratedTokens",))),
        Shape("splitwise, Vidur or Frontier", ("arrived_at", "num_prefill_tokens", "num_decode_tokens"), Clock(), 0,
              None,
              Columns(("arrived_at",), ("num_prefill_tokens",), ("num_decode_tokens",), session=("session_id",),
                      ids=("block_hash_ids", "hash_ids"))),
        Shape("BurstGPT", ("Timestamp", "Request tokens", "Response tokens"),
              columns=Columns(("Timestamp",), ("Request tokens",), ("Response tokens",), session=("Session ID",),
                              empty_fails=True)),
        Shape("splitwise-sim", ("arrival_timestamp", "prompt_size", "token_size"),
              columns=Columns(("arrival_timestamp",), ("prompt_size",), ("token_size",))),
        Shape("BLIS TraceV2", ("arrival_time_us", "input_tokens", "output_tokens"), Clock("us"), sessions=None,
              columns=Columns(("arrival_time_us",), ("input_tokens",), ("output_tokens",), session=("session_id",),
                              group=("prefix_group",), status=("status",))),
        Shape("LLMServingSim", ("arrival_time_ns", "input_toks", "output_toks"), NANOSECONDS, sessions=None,
              columns=Columns(("arrival_time_ns",), ("input_toks",), ("output_toks",), session=("session_id",))),
        Shape("ServeGen", ("timestamp", "data/input_tokens", "data/output_tokens"), BY_HABIT,
              columns=Columns(("timestamp",), ("input_tokens",), ("output_tokens",), inside="data")),
    ),
)  # fmt: skip

FORMATS: Mapping[str, Format] = {
    each.name: each
    for each in (
        _NATIVE,
        _AGENT,
        _RAGPULSE,
        _BAILIAN,
        _DYNAMO,
        _ROUNDS,
        _TOKENS_FORMAT,
        _LMCACHE,
        _AIBRIX,
        _BENCH,
        _REPORTS,
        _SPANS,
        _TABLE,
        _MOONCAKE,
    )
}
"""Formats by name, in the order in which they are asked: those whose needs hold another's come first."""


def recognised(where: str, values: Mapping[str, Any], name: str | None = None) -> tuple[Format, Shape]:
    """Return the format and shape of a record, of the format `name` if that is given.

    Raises InputError naming what the record lacks of the nearest format.
    """
    if name is not None:
        chosen = FORMATS[name]
        fitting = (shape for shape in chosen.shapes if shape.matches(values))
        return chosen, next(fitting, None) or max(chosen.shapes, key=lambda shape: shape.nearness(values))
    for format, shape in _shapes():
        if shape.matches(values):
            return format, shape
    format, shape = max(_shapes(), key=lambda pair: pair[1].nearness(values))
    fields = shown(", ".join(values), 200)
    if not shape.nearness(values)[1]:
        raise InputError(f"{where}: no known trace format has the fields {fields}; allowed: {', '.join(FORMATS)}")
    hint = f" ({shape.hint})" if shape.hint else ""
    raise InputError(f"{where}: no known trace format has the fields {fields}; nearest is {format.name}, {shape.tool}, "
                     f"and lacks {shape.lacking(values)}{hint}")  # fmt: skip


def _shapes() -> Iterator[tuple[Format, Shape]]:
    return ((format, shape) for format in FORMATS.values() for shape in format.shapes)


def _has(values: Any, need: str) -> bool:
    return any(_reaches(values, way.split("/")) for way in need.split("|"))


def _reaches(value: Any, way: list[str]) -> bool:
    """Return whether the parts of `way` lead from `value` to one that is not null."""
    name, *rest = way
    found = value.get(name.rstrip("[]{}")) if isinstance(value, Mapping) else None
    if name.endswith("[]"):
        if not isinstance(found, list):
            return False
        return not rest or (bool(found) and _reaches(found[0], rest))
    return (
        found is not None
        and (not name.endswith("{}") or isinstance(found, dict))
        and (not rest or _reaches(found, rest))
    )


def _readable(need: str) -> str:
    """Return a need without marks, as in ``timestamp (or delay)``."""
    first, *others = (way.replace("[]", "").replace("{}", "").replace("/", ".") for way in need.split("|"))
    return f"{first} (or {', '.join(others)})" if others else first
