"""One workload in the formats that kvsweep reads and does not write, made here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from kvsweep.trace.model import Trace
from tests.trace.naive import prompts

SIZE = 64
"""Tokens of a block of the workload."""
EPOCH = 1_760_000_000
"""When the workload begins, in formats with wall clocks [s]."""


class Row(NamedTuple):
    """A request: `ids` are its blocks, `session` and `group` numbers or None, `think` in [s] or None."""

    at: float
    n_input: int
    n_output: int
    ids: list[int]
    session: int | None
    group: int | None
    think: float | None

    @property
    def full(self) -> list[int]:
        """Return the ids of the blocks that are full."""
        return self.ids[: self.n_input // SIZE]

    @property
    def ns(self) -> int:
        """Return the time as of a wall clock [ns]."""
        return EPOCH * 10**9 + round(self.at * 1e9)


@dataclass(frozen=True)
class Written:
    """How a format is written, what of a workload it holds, and what its reader is told."""

    text: Callable[[list[Row]], str]
    holds: frozenset[str]
    told: Mapping[str, Any] = field(default_factory=dict)
    beside: Callable[[list[Row]], dict[str, str]] = lambda rows: {}


def rows_of(trace: Trace) -> list[Row]:
    """Return the requests of a trace."""
    columns = (trace.arrival, trace.input_tokens, trace.output_tokens, trace.session, trace.group, trace.think)
    return [
        Row(at, n_in, n_out, ids, None if session < 0 else session, None if group < 0 else group,
            None if think != think else think)
        for (at, n_in, n_out, session, group, think), ids in
        zip(zip(*(column.tolist() for column in columns), strict=True), prompts(trace), strict=True)
    ]  # fmt: skip


def _lines(one: Callable[[int, Row], Any]) -> Callable[[list[Row]], str]:
    return lambda rows: "".join(json.dumps(one(i, row)) + "\n" for i, row in enumerate(rows))


def _csv(header: str, one: Callable[[int, Row], str], separator: str = ",") -> Callable[[list[Row]], str]:
    def text(rows: list[Row]) -> str:
        return "\n".join([header, *(one(i, row) for i, row in enumerate(rows))]).replace(",", separator)

    return text


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _chats(rows: list[Row]) -> str:
    last: dict[int | None, int] = {}
    lines = []
    for i, row in enumerate(rows):
        parent = last.get(row.session, -1) if row.session is not None else -1
        last[row.session] = i
        lines.append({"chat_id": i, "parent_chat_id": parent, "timestamp": row.at, "input_length": row.n_input,
                      "output_length": row.n_output, "hash_ids": row.ids})  # fmt: skip
    return "".join(json.dumps(line) + "\n" for line in lines)


def _aiperf(i: int, row: Row) -> dict[str, Any]:
    return {
        "metadata": {"request_start_ns": row.ns, "conversation_id": row.session, "benchmark_phase": "profiling"},
        "metrics": {"input_sequence_length": {"value": row.n_input, "unit": "tokens"},
                    "output_sequence_length": {"value": row.n_output, "unit": "tokens"}},
    }  # fmt: skip


def _guidellm(rows: list[Row], old: bool) -> str:
    def one(row: Row) -> dict[str, Any]:
        if old:
            return {"prompt_tokens": row.n_input, "output_tokens": row.n_output, "start_time": EPOCH + row.at}
        return {"info": {"timings": {"request_start": EPOCH + row.at}}, "input_metrics": {"text_tokens": row.n_input},
                "output_metrics": {"text_tokens": row.n_output}}  # fmt: skip

    half = len(rows) // 2
    parts = [{"requests": {"successful": [one(row) for row in part]}} for part in (rows[:half], rows[half:])]
    return json.dumps({"metadata": {}, "benchmarks": parts}, indent=1)


def _genai_perf(rows: list[Row]) -> str:
    requests = [
        {"timestamp": row.ns, "request_inputs": {"payload": "{}"}, "response_timestamps": [row.ns],
         "response_outputs": [{"response": "data: " + json.dumps(
             {"usage": {"prompt_tokens": row.n_input, "completion_tokens": row.n_output}})}]}
        for row in rows
    ]  # fmt: skip
    return json.dumps(
        {"service_kind": "openai", "experiments": [{"experiment": {"mode": "rate"}, "requests": requests}]}
    )


def _otlp(rows: list[Row]) -> str:
    def span(row: Row) -> dict[str, Any]:
        usage = {"gen_ai.usage.input_tokens": row.n_input, "gen_ai.usage.output_tokens": row.n_output}
        listed = [{"key": key, "value": {"intValue": str(value)}} for key, value in usage.items()]
        if row.session is not None:
            listed.append({"key": "gen_ai.conversation.id", "value": {"stringValue": f"c{row.session}"}})
        return {"startTimeUnixNano": str(row.ns), "attributes": listed}

    tool = {"startTimeUnixNano": str(EPOCH * 10**9), "attributes": []}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [tool, *map(span, rows)]}]}]})


def _plain_span(i: int, row: Row) -> dict[str, Any]:
    moment = datetime.fromtimestamp(EPOCH, UTC) + timedelta(seconds=row.at)
    usage = {"gen_ai.usage.prompt_tokens": row.n_input, "gen_ai.usage.completion_tokens": row.n_output}
    return {"start_time": moment.isoformat(), "attributes": usage}


def _dynamo(i: int, row: Row) -> dict[str, Any]:
    replay = {"trace_block_size": SIZE, "input_length": row.n_input, "input_sequence_hashes": row.ids}
    request = {"request_received_ms": row.ns / 1e6, "output_tokens": row.n_output, "replay": replay}
    context = {"agent_context": {"session_id": f"s{row.session}"}} if row.session is not None else {}
    return {"schema": "dynamo.request.trace.v1", "event_type": "request_end", "request": request, **context}


def _moment(row: Row) -> str:
    return f"{datetime.fromtimestamp(EPOCH, UTC) + timedelta(seconds=row.at):%Y-%m-%d %H:%M:%S.%f}"


def _aibrix(rows: list[Row]) -> str:
    by_time: dict[int, list[Row]] = {}
    for row in rows:
        by_time.setdefault(round(row.at * 1e3), []).append(row)
    lines = (
        {"timestamp": at, "requests": [{"Prompt Length": r.n_input, "Output Length": r.n_output} for r in part]}
        for at, part in by_time.items()
    )
    return "".join(json.dumps(line) + "\n" for line in lines)


def _ragpulse(i: int, row: Row) -> dict[str, Any]:
    parts = {"sys_prompt": [], "passages_ids": row.full, "history": [], "web_search": [], "user_input": []}
    return {"timestamp": str(row.at), "input_length": row.n_input, "output_length": row.n_output, "hash_ids": parts,
            "session_id": row.session}  # fmt: skip


def _passages(rows: list[Row]) -> dict[str, str]:
    ids = sorted({block for row in rows for block in row.full} | {0})
    passages = "".join(json.dumps({"passage_id": block, "token_length": SIZE}) + "\n" for block in ids)
    keys = {"1_sys_prompt": "sys_prompt_id", "3_history": "history_id", "4_user_input": "user_input_id",
            "5_web_search": "web_search_id"}  # fmt: skip
    filled = {f"{name}.jsonl": json.dumps({key: 0, "token_length": 1}) for name, key in keys.items()}
    return {**filled, "2_passages.jsonl": passages}


def _tokens(i: int, row: Row) -> dict[str, Any]:
    ids = [SIZE * block + k for block in row.full for k in range(SIZE)]
    # What fills no block is the request's own.
    ids += [10**6 + SIZE * i + k for k in range(row.n_input % SIZE)]
    return {"arrival_time_ns": round(row.at * 1e9), "input_toks": row.n_input, "output_toks": row.n_output,
            "input_tok_ids": ids, "session_id": row.session}  # fmt: skip


LENGTHS = frozenset({"arrival", "lengths"})
IN_SESSIONS = LENGTHS | {"session"}
WHOLE = {"sessions": "full"}
IDS = "|".join

FORMATS: dict[str, Written] = {
    "bailian": Written(_chats, LENGTHS | {"blocks", "chats"}, {"block_size": SIZE}),
    "ragpulse": Written(_lines(_ragpulse), IN_SESSIONS | {"full blocks"}, {"block_size": SIZE}, _passages),
    "tokens": Written(_lines(_tokens), IN_SESSIONS | {"full blocks"}, {"block_size": SIZE}),
    "dynamo": Written(_lines(_dynamo), IN_SESSIONS | {"blocks"}),
    "dynamo in envelopes": Written(
        _lines(lambda i, r: {"timestamp": i, "event": _dynamo(i, r)}), IN_SESSIONS | {"blocks"}
    ),
    "lmcache": Written(
        _lines(lambda i, r: {"timestamp": EPOCH + r.at, "chunk_size": SIZE, "seq_len": r.n_input,
                             "chunk_hashes": [hex(block) for block in r.full]}),
        frozenset({"arrival", "prompts", "full blocks"}),
    ),
    "aibrix": Written(_aibrix, LENGTHS),
    "vllm bench": Written(
        lambda rows: json.dumps({"start_times": [7.5 + row.at for row in rows], "errors": ["" for row in rows],
                                 "input_lens": [r.n_input for r in rows], "output_lens": [r.n_output for r in rows]}),
        LENGTHS,
    ),
    "aiperf": Written(_lines(_aiperf), IN_SESSIONS),
    "servingsim log": Written(
        _lines(lambda i, r: {"input_toks": r.n_input, "output_toks": r.n_output, "arrival_time": EPOCH + r.at}), LENGTHS
    ),
    "servingsim lengths": Written(
        _lines(lambda i, r: {"input_toks": r.n_input, "output_toks": r.n_output, "arrival_time_ns": round(r.at * 1e9)}),
        LENGTHS,
    ),
    "guidellm": Written(lambda rows: _guidellm(rows, False), LENGTHS),
    "guidellm 0.2": Written(lambda rows: _guidellm(rows, True), LENGTHS),
    "inference-perf": Written(
        lambda rows: json.dumps([
            {"start_time": row.at, "info": {"input_tokens": row.n_input, "output_tokens": row.n_output}} for row in rows
        ]),
        LENGTHS,
    ),
    "inference-perf 0.7": Written(
        lambda rows: json.dumps([
            {"start_time": row.at, "info": {"request_metrics": {"text": {"input_tokens": row.n_input}},
                                            "response_metrics": {"output_tokens": row.n_output}}} for row in rows
        ]),
        LENGTHS,
    ),
    "genai-perf": Written(_genai_perf, LENGTHS),
    "otlp": Written(_otlp, IN_SESSIONS),
    "spans": Written(_lines(_plain_span), LENGTHS),
    "azure": Written(
        _csv("TIMESTAMP,ContextTokens,GeneratedTokens", lambda i, r: f"{_moment(r)},{r.n_input},{r.n_output}", ";"),
        LENGTHS,
    ),
    "frontier": Written(
        _csv("arrived_at,num_prefill_tokens,num_decode_tokens,session_id,block_hash_ids",
             lambda i, r: f"{r.at},{r.n_input},{r.n_output},{'' if r.session is None else r.session},"
             + IDS(map(str, r.ids))),
        IN_SESSIONS | {"blocks"}, {**WHOLE, "block_size": SIZE},
    ),
    "burstgpt": Written(
        _csv("Timestamp,Session ID,Request tokens,Response tokens",
             lambda i, r: f"{r.at},{'' if r.session is None else r.session},{r.n_input},{r.n_output}", "\t"),
        IN_SESSIONS,
    ),
    "splitwise-sim": Written(
        _csv("request_id,arrival_timestamp,prompt_size,token_size",
             lambda i, r: f"{i},{r.at},{r.n_input},{r.n_output}"),
        LENGTHS,
    ),
    "blis": Written(
        _csv("session_id,prefix_group,input_tokens,output_tokens,arrival_time_us,status",
             lambda i, r: f"{'' if r.session is None else r.session},{'' if r.group is None else f'g{r.group}'},"
             f"{r.n_input},{r.n_output},{round(r.at * 1e6)},ok"),
        IN_SESSIONS | {"group"}, WHOLE,
    ),
    "servegen": Written(
        _lines(lambda i, r: {"request_id": i, "timestamp": EPOCH + r.at,
                             "data": {"input_tokens": r.n_input, "output_tokens": r.n_output}}),
        LENGTHS,
    ),
    "mooncake by its aliases": Written(
        _lines(lambda i, r: _without_none({
            "created_time": r.at * 1e3, "input_tokens": r.n_input, "output_tokens": r.n_output, "hash_ids": r.ids,
            "session_id": r.session, "delay_ms": None if r.think is None else r.think * 1e3})),
        IN_SESSIONS | {"blocks", "think"}, {**WHOLE, "block_size": SIZE},
    ),
    "mooncake in a table": Written(
        _csv("timestamp,input_length,output_length,hash_ids",
             lambda i, r: f"{r.at * 1e3},{r.n_input},{r.n_output},{IDS(map(str, r.ids))}"),
        LENGTHS | {"blocks"}, {"time_unit": "ms", "block_size": SIZE},
    ),
    "lengths in a list": Written(
        lambda rows: json.dumps([
            {"timestamp": row.at, "input_length": row.n_input, "output_length": row.n_output} for row in rows
        ]),
        LENGTHS, {"time_unit": "s"},
    ),
}  # fmt: skip
"""Every format, by a name of its own."""


def agent_sessions(rows: list[Row], long: bool) -> str:
    """Return weka sessions, short or long spelling; their starts are not kept."""
    lines = []
    for session in sorted({row.session for row in rows if row.session is not None}):
        own = [row for row in rows if row.session == session]
        turns = [
            _without_none({
                "t": row.at - own[0].at, "in": row.n_input, "out": row.n_output, "api_time" if long else "api": 0.0,
                "think_time" if long else "think": row.think or 0.0,
                "hash_ids" if long else "h": row.ids if long else [n for block in row.ids for n in (block, 1)],
            })
            for row in own
        ]  # fmt: skip
        lines.append({"id": f"s{session}", "block_size" if long else "bs": SIZE, "requests": turns})
    return "".join(map(json.dumps, lines))  # without a newline at the end, as kv-cache-tester's files put together


def tracelab_sessions(steps: list[list[tuple[int, int, int]]], as_sessions: bool) -> str:
    """Return TraceLab rounds of (prefix, new, answer) [token] a session, as CSV rows or as sessions of JSON."""
    if as_sessions:
        return "".join(
            json.dumps({"session_id": s, "arrival_time": 100 * s, "rounds": [
                {"prefix_len": prefix, "input_len": new, "output_len": answer, "tool_wait_after_ms": 5}
                for prefix, new, answer in rounds
            ]}) + "\n"
            for s, rounds in enumerate(steps)
        )  # fmt: skip
    lines = ["session_id,arrival_time,round_idx,prefix_len,input_len,output_len,tool_wait_after_ms"]
    for s, rounds in enumerate(steps):
        lines += [f"{s},{100 * s},{i},{prefix},{new},{answer},5" for i, (prefix, new, answer) in enumerate(rounds)]
    return "\n".join(lines)
