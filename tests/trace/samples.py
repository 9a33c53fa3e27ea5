"""Small traces and trace files for the tests, all made here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from kvsweep.trace.build import Builder
from kvsweep.trace.model import Notes, Trace

MOONCAKE = [
    {"timestamp": 0, "input_length": 1500, "output_length": 5, "hash_ids": [0, 1, 2]},
    {"timestamp": 0, "input_length": 1100, "output_length": 6, "hash_ids": [0, 1, 3]},
    {"timestamp": 3000, "input_length": 600, "output_length": 7, "hash_ids": [4, 5]},
]
AGENT = [
    {
        "id": "a", "bs": 64, "tool": 1, "sys": 1,
        "requests": [
            {"t": 0.0, "in": 200, "out": 10, "api": 2.0, "think": 0.0, "d": 0, "h": [1, 3]},
            {"t": 0.0, "in": 130, "out": 10, "api": 1.0, "think": 0.0, "d": 1, "h": [50, 2]},
            {"t": 4.0, "in": 140, "out": 0, "api": None, "think": None, "d": 1, "h": [50, 2]},
            {"t": 0.0, "in": 70, "out": 3, "api": 1.0, "think": 0.0, "d": 1, "h": [60, 1]},
            {"t": 9.0, "in": 330, "out": 20, "api": 1.5, "think": 7.0, "d": 0, "h": [1, 3, 90, 2]},
        ],
    },
    {"id": "b", "bs": 64, "requests": [{"t": 0.0, "in": 64, "out": 1, "api": 1.0, "think": 0.0, "h": [1, 1]}]},
]  # fmt: skip
BAILIAN = [
    {"chat_id": 5, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 40, "output_length": 9, "type": "text",
     "turn": 1, "hash_ids": [7, 8, 9]},
    {"chat_id": 6, "parent_chat_id": 5, "timestamp": 9.5, "input_length": 70, "output_length": 9, "type": "text",
     "turn": 2, "hash_ids": [7, 8, 9, 8, 1]},
    {"chat_id": 7, "parent_chat_id": 3, "timestamp": 10.0, "input_length": 48, "output_length": 9, "type": "text",
     "turn": 4, "hash_ids": [8, 8, 9]},
]  # fmt: skip
TOKENS = [
    {"input_toks": 40, "output_toks": 3, "arrival_time_ns": 10**9, "input_tok_ids": list(range(40))},
    {"input_toks": 36, "output_toks": 4, "arrival_time_ns": 3 * 10**9, "input_tok_ids": [*range(32), 9, 9, 9, 9]},
    {"input_toks": 33, "output_toks": 5, "arrival_time_ns": 2 * 10**9, "input_tok_ids": [7, *range(1, 33)]},
]
RAGPULSE = [
    {"timestamp": "9", "input_length": 70, "output_length": 5, "session_id": "x",
     "hash_ids": {"sys_prompt": [1], "passages_ids": [7, 8], "history": [2], "web_search": [], "user_input": [3]}},
    {"timestamp": "4", "input_length": 75, "output_length": 6, "session_id": "y",
     "hash_ids": {"sys_prompt": [1], "passages_ids": [7, 9], "history": [], "web_search": [4], "user_input": []}},
]  # fmt: skip
RAG_LENGTHS = {
    "1_sys_prompt.jsonl": [{"sys_prompt_id": 1, "token_length": 20}],
    "2_passages.jsonl": [{"passage_id": i, "token_length": 18} for i in (7, 8)],
    "3_history.jsonl": [{"history_id": 2, "token_length": 5}],
    "4_user_input.jsonl": [{"user_input_id": 3, "token_length": 4}],
    "5_web_search.jsonl": [{"web_search_id": 4, "token_length": 30}],
}
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:15:46.6805900,374,44\n"
    "2023-11-16 18:15:47.1805900+00:00,396,109\n"
)
SPLITWISE = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,4808,10\n0.052,3180,8\n"
BURSTGPT = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,12,0.5,ChatGPT,472,18,490,Conversation log\n"
    "45,,0.5,ChatGPT,1087,0,1087,API log\n"
    "118,12,0.5,GPT-4,417,276,693,Conversation log\n"
)
VLLM = {"input_lens": [8, 9, 7], "output_lens": [2, 3, 0], "start_times": [100.5, 100.0, 101.0],
        "errors": ["", "", "timeout"], "ttfts": [0.1, 0.2, 0.0], "request_rate": "inf"}  # fmt: skip
AIPERF = [
    {"metadata": {"request_start_ns": 1_700_000_000_000_000_000 + i * 10**9, "conversation_id": "c", "turn_index": i},
     "metrics": {"input_sequence_length": {"value": 90 + i, "unit": "tokens"},
                 "output_sequence_length": {"value": 5.0, "unit": "tokens"}}, "error": None}
    for i in range(3)
]  # fmt: skip
RUN_LOG = [{"request_id": f"bench-{i}", "input_toks": 5, "output_toks": 6, "arrival_time": 1.7e9 + i} for i in (0, 1)]


def jsonl(path: Path, rows: Sequence[Any]) -> Path:
    """Write `rows` as JSON lines; return the path."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def made(
    requests: Sequence[tuple[float, int, int, list[int]]], block_size: int = 64, sessions: Sequence[Any] | None = None
) -> Trace:
    """Return the trace of requests (arrival, input, output, ids)."""
    builder = Builder(Notes())
    for i, (arrival, n_input, n_output, ids) in enumerate(requests):
        session = sessions[i] if sessions else None
        builder.add(arrival, (n_input, n_output), runs=(ids, ()), session=session, think=float(i) if sessions else 0.0)
    return builder.finish(block_size, "made")


@st.composite
def traces(draw: st.DrawFn, block_size: int = 64) -> Trace:
    """Draw small traces that share prefixes, some without sessions, with partial last blocks."""
    n_requests = draw(st.integers(1, 12))
    times = draw(st.lists(st.integers(0, 20).map(lambda t: t / 4), min_size=n_requests, max_size=n_requests))
    builder = Builder(Notes())
    for time in times:
        ids = draw(st.lists(st.integers(0, 2), max_size=6))
        partial = draw(st.integers(0, block_size - 1)) if ids else draw(st.integers(0, block_size - 2))
        n_input = max(1, len(ids) * block_size - partial) if ids else 1 + partial
        session = draw(st.one_of(st.none(), st.integers(0, 2)))
        builder.add(
            time, (n_input, draw(st.integers(0, 9))), runs=(ids, ()), session=session,
            group=draw(st.one_of(st.none(), st.integers(0, 2))),
            think=draw(st.sampled_from([0.25, 2.0])) if session else float("nan"),
        )  # fmt: skip
    return builder.finish(block_size, "drawn")
