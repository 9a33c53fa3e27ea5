"""Every format is found by its first record and read to the same model."""

from __future__ import annotations

import importlib
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from kvsweep.errors import InputError
from kvsweep.trace.formats import FORMATS
from kvsweep.trace.model import Trace
from kvsweep.trace.read import ReadOptions, read_trace
from tests.trace import samples
from tests.trace.naive import prompts
from tests.trace.samples import jsonl


def read(path: Path, **options: Any) -> Trace:
    return read_trace(path, ReadOptions(**options), cache=False)


def reasons(trace: Trace) -> dict[str, int]:
    return {note.reason.partition(":")[0]: note.count for note in trace.notes}


def test_mooncake(tmp_path: Path) -> None:
    trace = read(jsonl(tmp_path / "t.jsonl", samples.MOONCAKE))
    assert trace.arrival.tolist() == [0.0, 0.0, 3.0]
    assert (trace.input_tokens.tolist(), trace.output_tokens.tolist()) == ([1500, 1100, 600], [5, 6, 7])
    assert prompts(trace) == [[0, 1, 2], [0, 1, 3], [4, 5]] and trace.block_size == 512
    assert trace.session.tolist() == [-1, -1, -1] and trace.source == "mooncake t.jsonl"
    said = "taken (3): times in ms (as documented); blocks of 512 tokens (as documented)"
    assert [str(note) for note in trace.notes] == [said]


def test_mooncake_sessions_with_delays(tmp_path: Path) -> None:
    rows = [
        {"session_id": "a", "timestamp": 1000, "input_length": 20, "output_length": 3, "hash_ids": [1, 2]},
        {"session_id": "a", "delay": 500, "input_length": 40, "output_length": 3, "hash_ids": [1, 2, 3]},
        {"session_id": "b", "timestamp": 1200, "input_length": 33, "output_length": 3, "hash_ids": [1, 4]},
    ]
    trace = read(jsonl(tmp_path / "t.jsonl", rows))
    assert trace.block_size == 16 and trace.arrival.tolist() == pytest.approx([0.0, 0.2, 0.5])
    assert trace.session.tolist() == [0, 1, 0] and trace.turn.tolist() == [0, 0, 1]
    assert math.isnan(trace.think[0]) and trace.think[2] == 0.5
    assert reasons(trace)["turns without a time"] == 1


def test_mooncake_without_ids_and_with_too_few(tmp_path: Path) -> None:
    rows = [{"timestamp": 0, "input_length": 2000, "output_length": 1}]
    assert read(jsonl(tmp_path / "t.jsonl", rows)).block_size == 0
    rows.append({"timestamp": 0, "input_length": 2000, "output_length": 1, "hash_ids": [4]})
    trace = read(jsonl(tmp_path / "t.jsonl", rows))
    assert (trace.block_size, prompts(trace)) == (512, [[], [0]])
    assert reasons(trace)["prompts with fewer ids than blocks of 512 tokens"] == 1


def test_agent_sessions(tmp_path: Path) -> None:
    trace = read(jsonl(tmp_path / "t.jsonl", samples.AGENT), seed=3, session_rate=100.0)
    own = trace.session == 0
    assert trace.arrival[own].tolist() == pytest.approx([0.0, 2.0, 2.0, 6.0, 9.0])
    assert trace.input_tokens[own].tolist() == [200, 130, 70, 140, 330]
    assert trace.think[own].tolist()[1:] == [0.0, 0.0, 4.0, 7.0]
    assert trace.turn[own].tolist() == [0, 1, 2, 3, 4]
    assert trace.group.tolist() == trace.session.tolist() and trace.block_size == 64
    ids = dict(zip(zip(trace.session.tolist(), trace.turn.tolist(), strict=True), prompts(trace), strict=True))
    assert ids[0, 4][:3] == ids[0, 0] and len(ids[0, 4]) == 5 and ids[0, 1] == ids[0, 3]
    assert not set(ids[1, 0]) & {block for key, blocks in ids.items() if key[0] == 0 for block in blocks}
    assert reasons(trace)["sub-agent turns"] == 3 and reasons(trace)["session starts"] == 2
    again = read(tmp_path / "t.jsonl", seed=4, session_rate=100.0)
    assert again.arrival.tolist() != trace.arrival.tolist()


def test_agent_sessions_in_the_long_spelling(tmp_path: Path) -> None:
    turn = {"t": 0.0, "in": 130, "out": 4, "api_time": 1.0, "think_time": 0.0, "hash_ids": [9, 4]}
    row = {"id": "a", "block_size": 64, "requests": [turn, {"t": 2.0, "type": "subagent", "requests": []}]}
    trace = read(jsonl(tmp_path / "t.jsonl", [row]))
    assert prompts(trace) == [[0, 1]] and trace.session.tolist() == [0]


def test_bailian(tmp_path: Path) -> None:
    trace = read(jsonl(tmp_path / "t.jsonl", samples.BAILIAN))
    assert trace.arrival.tolist() == [0.0, 9.0, 9.5] and trace.block_size == 16
    assert trace.session.tolist() == [0, 0, 1] and trace.turn.tolist() == [0, 1, 0]
    assert prompts(trace) == [[0, 1, 2], [0, 1, 2, 3, 4], [5, 6, 7]]
    assert reasons(trace)["parents outside the file"] == 1
    assert "block ids that name content, not prefixes" in reasons(trace)


def test_tokens(tmp_path: Path) -> None:
    trace = read(jsonl(tmp_path / "t.jsonl", samples.TOKENS))
    assert trace.arrival.tolist() == [0.0, 1.0, 2.0] and trace.output_tokens.tolist() == [3, 5, 4]
    assert prompts(trace) == [[0, 1], [2, 3], [0, 1]] and trace.block_size == 16
    assert prompts(read(tmp_path / "t.jsonl", block_size=32)) == [[0], [1], [0]]


def test_tokens_with_other_names(tmp_path: Path) -> None:
    rows = [{"prompt_token_ids": [1, 2], "output_ids": [5, 6, 7], "session_id": "s"}] * 2
    trace = read(jsonl(tmp_path / "t.jsonl", rows), block_size=1)
    assert trace.output_tokens.tolist() == [3, 3] and prompts(trace) == [[0, 1]] * 2 and trace.turn.tolist() == [0, 1]
    assert reasons(trace)["no times"] == 2


def test_ragpulse(tmp_path: Path) -> None:
    jsonl(tmp_path / "t.jsonl", samples.RAGPULSE)
    alone = read(tmp_path / "t.jsonl")
    assert alone.block_size == 0 and reasons(alone)["no block ids"] == 2
    for name, rows in samples.RAG_LENGTHS.items():
        jsonl(tmp_path / name, rows)
    trace = read(tmp_path / "t.jsonl")
    assert trace.arrival.tolist() == [0.0, 5.0] and trace.input_tokens.tolist() == [75, 70]
    # 20 + 18 tokens are shared: two full blocks of 16.
    assert prompts(trace) == [[0, 1, 2, 3], [0, 1, 4, 5]]
    assert reasons(trace)["parts of unknown length"] == 1 and trace.session.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "arrival", "inputs"),
    [
        (samples.AZURE, [0.0, 0.5], [374, 396]),
        (samples.SPLITWISE, [0.0, 0.052], [4808, 3180]),
        (samples.BURSTGPT, [0.0, 113.0], [472, 417]),
    ],
)
def test_tables(tmp_path: Path, text: str, arrival: list[float], inputs: list[int]) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    trace = read(path)
    assert trace.arrival.tolist() == pytest.approx(arrival) and trace.input_tokens.tolist() == inputs
    assert trace.block_size == 0 and len(trace.blocks) == 0


def test_burstgpt_drops_failures_and_keeps_sessions(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(samples.BURSTGPT)
    trace = read(path)
    assert reasons(trace)["failed requests (no response tokens)"] == 1
    assert trace.session.tolist() == [0, 0] and trace.turn.tolist() == [0, 1]


@pytest.mark.parametrize("indent", [None, 2])
def test_vllm_bench(tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(samples.VLLM, indent=indent))
    trace = read(path)
    assert trace.arrival.tolist() == [0.0, 0.5] and trace.input_tokens.tolist() == [9, 8]
    assert reasons(trace)["requests that failed"] == 1


def test_bench_results_without_start_times_say_so(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({name: value for name, value in samples.VLLM.items() if name != "start_times"}))
    with pytest.raises(InputError, match="lacks start_times .run it with --save-result --save-detailed"):
        read(path)


def test_aiperf_and_run_logs(tmp_path: Path) -> None:
    failed = {**samples.AIPERF[0], "error": {"type": "timeout"}}
    trace = read(jsonl(tmp_path / "t.jsonl", [*samples.AIPERF, failed]))
    assert trace.arrival.tolist() == [0.0, 1.0, 2.0] and trace.input_tokens.tolist() == [90, 91, 92]
    assert trace.turn.tolist() == [0, 1, 2] and reasons(trace)["requests that failed"] == 1
    log = read(jsonl(tmp_path / "l.jsonl", samples.RUN_LOG))
    assert log.arrival.tolist() == [0.0, 1.0] and log.output_tokens.tolist() == [6, 6]


def test_a_list_of_objects_is_read_as_lines_are(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(samples.MOONCAKE, indent=1))
    assert len(read(path)) == 3


def test_a_format_can_be_forced_and_is_checked(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "t.jsonl", samples.MOONCAKE)
    assert len(read(path, format="mooncake")) == 3
    with pytest.raises(InputError, match="line 1: requests: is missing|line 1: block_size: is missing"):
        read(path, format="agent")
    with pytest.raises(InputError, match="did you mean 'mooncake'"):
        read(path, format="moon")
    jsonl(path, [{"a": 1, "b": 2}])
    with pytest.raises(InputError, match="no known trace format has the fields 'a, b'; allowed: kvsweep, agent"):
        read(path)


def test_what_the_nearest_format_lacks_is_told(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "t.jsonl", [{"input_length": 20, "output_length": 3, "hash_ids": [1]}])
    lacks = r"nearest is mooncake, Mooncake, and lacks timestamp \(or created_time, delay, delay_ms\)$"
    with pytest.raises(InputError, match=lacks):
        read(path)
    summary = dict.fromkeys(("backend", "request_rate", "completed", "dataset_name", "accept_length"), 1)
    jsonl(path, [summary | {"total_input_tokens": 7, "total_output_tokens": 7}])
    with pytest.raises(InputError, match=r"sglang.bench_serving, and lacks start_times, .*: read the trace it played"):
        read(path)


def test_what_is_no_request_or_failed_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    one = {"prompt_tokens": 5, "output_tokens": 2, "start_time": 1.7e9}
    states = {"successful": [one], "errored": [one, one], "incomplete": [one]}
    path.write_text(json.dumps({"benchmarks": [{"requests": states}]}))
    found = reasons(read(path))
    assert found["requests that failed"] == 2 and found["requests that were cut off at the end of the benchmark"] == 1
    ended = {"schema": "dynamo.request.trace.v1", "event_type": "request_end"}
    ended["request"] = {"request_received_ms": 1.7e12, "input_tokens": 5, "output_tokens": 2}
    found = reasons(read(jsonl(path, [{"schema": "dynamo.request.trace.v1", "event_type": "tool_end"}, ended])))
    assert found["events that are no request_end"] == 1 and found["requests without hashes of their prompts"] == 1
    path.write_text("arrival_time_us,input_tokens,output_tokens,status\n0,5,2,ok\n9,5,2,timeout\n")
    assert reasons(read(path))["requests that failed"] == 1
    path.write_text("Timestamp,Request tokens,Response tokens\n0,5,2\n9,5,0\n")
    assert reasons(read(path))["failed requests (no response tokens)"] == 1


def test_texts_of_reports_are_counted_or_taken_in_as_told(tmp_path: Path) -> None:
    path = tmp_path / "profile_export.json"
    body = json.dumps({"messages": [{"role": "user", "content": [{"type": "text", "text": "x" * 39}]}]})
    request = {"timestamp": 10**18, "request_inputs": {"payload": body}, "response_timestamps": [1, 2, 3]}
    path.write_text(json.dumps({"experiments": [{"requests": [request]}]}))
    with pytest.raises(InputError, match="dropped .1.: requests with text instead of a length; --characters-per-token"):
        read(path)
    trace = read(path, characters_per_token=4)
    assert (trace.input_tokens.tolist(), trace.output_tokens.tolist()) == ([10], [3])


def test_formats_are_described_and_have_readers() -> None:
    for name, each in FORMATS.items():
        reader = importlib.import_module(f"kvsweep.trace.readers.{each.module}")
        assert name == each.name and each.what and reader.read.__doc__ and all(shape.tool for shape in each.shapes)


if "KVSWEEP_DATA" in os.environ:
    DATA = Path(os.environ["KVSWEEP_DATA"])

    @pytest.mark.parametrize(
        ("file", "requests", "seconds"),
        [
            ("mooncake/conversation_trace.jsonl", 12_031, 3536.999),
            ("mooncake/mooncake_trace_1000.jsonl", 1000, 177.098),
            ("weka/dev_120_sessions_rle.jsonl.gz", 7751, None),
            ("ragpulse/0_trace.jsonl", 7106, 604_603.0),
            ("azure2023/splitwise_code.csv", 8819, 3435.948056),
            ("azure2023/splitwise_conv.csv", 19_366, 3501.721937),
            ("llmservingsim/workloads/sharegpt-llama-3.1-8b-300-sps10.jsonl", 300, 29.136836),
            ("llmservingsim/RTX4090/Llama-3.1-8B/vllm/requests.jsonl", 300, 29.100521),
        ],
    )
    def test_public_traces(file: str, requests: int, seconds: float | None) -> None:
        trace = read_trace(DATA / file)
        assert len(trace) == requests
        assert seconds is None or math.isclose(trace.duration, seconds, abs_tol=1e-5)
