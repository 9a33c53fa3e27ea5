"""Small files in the shapes that public tools write, each with its right value or the line that names the way on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvsweep.errors import InputError
from kvsweep.trace.model import Trace
from kvsweep.trace.read import ReadOptions, read_trace
from kvsweep.trace.stats import trace_stats
from tests.trace.naive import prompts

CASES = Path(__file__).parents[1] / "cases"

RIGHT: dict[str, dict[str, Any]] = {
    "aibrix.jsonl": {"requests": 3, "seconds": 0.5, "tokens": 310},
    "aiperf_0_1_export.jsonl": {"requests": 3, "seconds": 2.0},
    "aiperf_delta_sessions.jsonl": {"requests": 9, "tokens": 48_634, "sessions": 3},
    "aiperf_warmup.jsonl": {"requests": 4, "seconds": 3.0},
    "azure_semicolon.csv": {"requests": 2, "seconds": 1.31941, "tokens": 650},
    "bailian_ms_40_rows.jsonl": {"requests": 40, "seconds": 19.5},
    "blocks_1024_10_rows.jsonl": {"hit": 0.45, "block": 1024},
    "blocks_80_30_rows.jsonl": {"hit": 0.1007, "block": 80},
    "burst_half_ms.jsonl": {"seconds": 0.0315},
    "dynamo_aliases.jsonl": {"requests": 2, "seconds": 0.75},
    "dynamo_delay_ms.jsonl": {"requests": 2, "seconds": 0.75},
    "dynamo_request_trace.jsonl": {"requests": 3, "seconds": 2.0, "hit": 96 / 192, "block": 16},
    "frontier_block_hashes.csv": {"hit": 128 / 272, "block": 16, "sessions": 3},
    "ids_shorter_than_length.jsonl": {"tokens": 800},
    "inference_perf_per_request.json": {"requests": 4, "seconds": 1.5},
    "lengths_ms.csv": {"requests": 2, "seconds": 0.25},
    "llmservingsim_agentic.jsonl": {"requests": 2, "seconds": 1.0},
    "llmservingsim_lengths_only.jsonl": {"requests": 4, "seconds": 0.75},
    "no_output_length.jsonl": {"requests": 1, "said": "dropped (1): requests without an output length; --output"},
    "one_line_list.json": {"requests": 2, "hit": 0.25},
    "seconds_12_rows.jsonl": {"seconds": 5.5},
    "seconds_40_rows.jsonl": {"seconds": 78.0},
    "splitwise_sim.csv": {"requests": 2, "seconds": 1.0},
    "text_rows.jsonl": {"requests": 2, "said": "dropped (1): requests with text instead of a length; --character"},
    "tokens_ms_40_rows.jsonl": {"seconds": 39.0},
    "tracelab_rounds.csv": {"requests": 3, "tokens": 2016, "hit": 576 / 2016, "sessions": 2},
    "u64_hash_ids.jsonl": {"requests": 2, "hit": 0.25},
    "weka_cat.jsonl": {"requests": 4, "tokens": 640, "sessions": 2},
    "weka_subagents.jsonl": {"requests": 7, "tokens": 4544},
}  # fmt: skip


def read(name: str, **options: Any) -> Trace:
    return read_trace(CASES / name, ReadOptions(**options), cache=False)


@pytest.mark.parametrize("name", RIGHT)
def test_files_give_their_right_values(name: str) -> None:
    right, trace = RIGHT[name], read(name)
    stats = trace_stats(trace)
    found = {
        "requests": stats.requests, "seconds": stats.duration_seconds, "tokens": int(trace.input_tokens.sum()),
        "sessions": stats.sessions, "block": stats.block_size, "hit": stats.infinite_hit_ratio,
    }  # fmt: skip
    said = [str(note) for note in trace.notes]
    for what, value in right.items():
        if what == "said":
            assert any(line.startswith(value) for line in said), said
        else:
            assert found[what] == pytest.approx(value, rel=5e-4), what
    assert said[0].startswith("taken (")


def test_what_the_unit_was_taken_for_and_what_else_it_may_be_is_told() -> None:
    said = [str(note) for note in read("seconds_12_rows.jsonl").notes]
    assert said[0] == "taken (12): times in s (found: 2.182 requests/s; in ms it would be 2182 requests/s)"
    said = [str(note) for note in read("burst_half_ms.jsonl").notes]
    assert (
        said[1] == "doubtful (64): 2032 requests/s, more than 1000 a second; if the times are not in ms: --time-unit s"
    )
    assert read("burst_half_ms.jsonl", time_unit="s").duration == 31.5


def test_agents_wait_for_their_tools() -> None:
    assert read("llmservingsim_agentic.jsonl").think.tolist()[1] == 1.0
    rounds = read("tracelab_rounds.csv")
    assert rounds.input_tokens.tolist() == [512, 704, 800] and rounds.arrival.tolist() == [0.0, 0.1, 0.25]
    # A prompt of 512 tokens and its answer of 64 are what the next round has of the session.
    assert prompts(rounds)[1][:36] == prompts(rounds)[0] == list(range(36))


def test_columns_that_are_not_read_are_named() -> None:
    said = str(read("splitwise_sim.csv").notes[0])
    assert said.endswith("(as documented); not read: 'request_id, request_type, application_id, batch_size'")


def test_options_say_what_the_file_lacks() -> None:
    assert read("no_output_length.jsonl", output_tokens=7).output_tokens.tolist() == [100, 7]
    assert read("text_rows.jsonl", characters_per_token=4).input_tokens.tolist() == [1024, 5, 512]
    assert read("aiperf_delta_sessions.jsonl", sessions="full").input_tokens.sum() == 17_004
    assert read("blocks_80_30_rows.jsonl", block_size=80).block_size == 80


def test_sessions_of_new_tokens_go_on_from_prompts_and_answers() -> None:
    trace = read("aiperf_delta_sessions.jsonl")
    own = trace.session == 0
    assert trace.input_tokens[own].tolist() == [4096, 4908, 5808]
    first, second, third = (ids for ids, mine in zip(prompts(trace), own, strict=True) if mine)
    # 4096 tokens are eight blocks; a prompt and its answer are the beginning of the next prompt.
    assert first == list(range(8)) and second[: len(first)] == first and third[: len(second)] == second
    assert prompts(trace)[1][:8] == first


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("vllm_not_detailed.json", {}, "nearest is bench, vllm bench serve --save-detailed, and lacks start_times"),
        ("vllm_not_detailed.json", {}, "run it with --save-result --save-detailed"),
        ("blocks_80_30_rows.jsonl", {"block_size": 512}, "line 1: 13 blocks for 1000 tokens; allowed: at most 2"),
        ("over_context.csv", {"block_size": 16}, "--block-size: 16; .* has no block ids; allowed: without it"),
        ("over_context.csv", {"sessions": "delta"}, "--sessions: delta; no request follows another of its session"),
        ("weka_cat.jsonl", {"sessions": "delta"}, "--sessions: delta; .* holds whole prompts"),
        ("weka_cat.jsonl", {"block_size": 32}, "--block-size: 32; .* states 64; allowed: without it"),
        ("azure_semicolon.csv", {"time_unit": "ms"}, "--time-unit: ms; .* has dates; allowed: without it"),
        ("azure_semicolon.csv", {"block_size": 16}, "--block-size: 16; .* names no blocks .Azure"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_names_the_way_on(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(name, **options)
