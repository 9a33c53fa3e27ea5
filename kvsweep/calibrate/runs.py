"""Measured runs of an engine, request by request, from the formats in which they are published."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvsweep.calibrate.columns import json_object, read_rows, read_text
from kvsweep.errors import InputError, shown

Floats = NDArray[np.float64]
SERIES = ("t", "running", "waiting", "kv_cache_pct", "prompt_throughput", "gen_throughput")


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A run in order of arrival; times [s] from the first arrival, `prompts` the token ids where they are known."""

    name: str
    arrival: Floats
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    first_token: Floats
    finish: Floats
    hit_tokens: NDArray[np.int64] | None = None
    prompts: Sequence[Sequence[int]] | None = None
    engine: Mapping[str, Any] = field(default_factory=dict)
    """What the run says of its engine, as in its meta.json."""
    series: Mapping[str, Floats] = field(default_factory=dict)
    """Time series by name, sampled at `t` [s]; empty where the run has none."""

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.arrival)


def read_run(path: Path, workload: Path | None = None) -> MeasuredRun:
    """Return the run at `path`: a folder as LLMServingSim writes it, or a file of another tool, told by its content.

    Raises InputError naming file, line and field.
    """
    if path.is_dir():
        return _folder(path, workload)
    if path.suffix == ".csv":
        return _csv(path)
    if path.suffix == ".jsonl":
        return _aiperf(path)
    if path.suffix == ".json":
        return _bench(path)
    raise InputError(
        f"{path}: not a run kvsweep reads; allowed: a folder with meta.json and requests.jsonl, the .json of "
        "vllm bench serve --save-detailed, AIPerf's profile_export.jsonl, a .csv"
    )


def _folder(path: Path, workload: Path | None) -> MeasuredRun:
    meta_file, requests_file = path / "meta.json", path / "requests.jsonl"
    for file in (meta_file, requests_file):
        if not file.is_file():
            raise InputError(f"{path}: no {file.name}; allowed: a folder with meta.json and requests.jsonl")
    engine = json_object(read_text(meta_file), str(meta_file))
    rows = _lines(requests_file)
    names = ("input_toks", "output_toks", "arrival_time", "queued_ts", "first_token_ts", "last_token_ts")
    table = {
        name: np.array([_field(row, name, f"{requests_file}:{i + 1}") for i, row in enumerate(rows)]) for name in names
    }
    # Arrivals are on another clock than the rest: no request is queued before it arrives.
    arrival = table["arrival_time"] + (table["queued_ts"] - table["arrival_time"]).min()
    prompts = _prompts(workload, rows, requests_file) if workload else None
    start = arrival.min()
    order = np.argsort(arrival, kind="stable")
    return MeasuredRun(
        name=str(path),
        arrival=(arrival - start)[order],
        prompt_tokens=table["input_toks"].astype(np.int64)[order],
        output_tokens=table["output_toks"].astype(np.int64)[order],
        first_token=(table["first_token_ts"] - start)[order],
        finish=(table["last_token_ts"] - start)[order],
        prompts=[prompts[i] for i in order] if prompts else None,
        engine=engine,
        series=_series(path / "timeseries.csv"),
    )


def _prompts(workload: Path, rows: Sequence[Mapping[str, Any]], requests: Path) -> list[list[int]]:
    """Return the token ids of the prompts of `rows`; request bench-N is line N of the workload."""
    lines = _lines(workload)
    found = []
    for i, row in enumerate(rows):
        place = str(row.get("request_id", "")).rpartition("-")[2]
        at = int(place) if place.isdigit() else i
        if at >= len(lines):
            raise InputError(f"{workload}: {len(lines)} lines; {requests}:{i + 1} is request {at}")
        tokens = lines[at].get("input_tok_ids")
        if not isinstance(tokens, list) or len(tokens) != row["input_toks"]:
            raise InputError(
                f"{workload}:{at + 1}: input_tok_ids: not {row['input_toks']} tokens, as {requests}:{i + 1} says; "
                "allowed: the workload of this run"
            )
        found.append(tokens)
    return found


def _series(path: Path) -> dict[str, Floats]:
    if not path.is_file():
        return {}
    rows = [row for _, row in read_rows(path, SERIES)]
    return {name: np.array([row[name] for row in rows]) for name in SERIES}


def _bench(path: Path) -> MeasuredRun:
    """Return the run in the result of `vllm bench serve --save-result --save-detailed`."""
    content = json_object(read_text(path), str(path))
    lists = {name: content.get(name) for name in ("input_lens", "output_lens", "ttfts", "itls", "start_times")}
    for name, value in lists.items():
        if not isinstance(value, list):
            raise InputError(f"{path}: {name}: missing; allowed: a result with per-request lists (--save-detailed)")
    count = len(lists["input_lens"] or ())
    for name, value in lists.items():
        if len(value or ()) != count:
            raise InputError(f"{path}: {name}: {len(value or ())} entries; allowed: {count}, as input_lens has")
    start, ttft = (np.array(lists[name], float) for name in ("start_times", "ttfts"))
    decode = np.array([float(sum(each)) for each in lists["itls"] or ()])
    return _checked(path, start, lists["input_lens"], lists["output_lens"], start + ttft, start + ttft + decode)


def _aiperf(path: Path) -> MeasuredRun:
    """Return the run in AIPerf's profile_export.jsonl; requests that failed are left out."""
    rows = [(i + 1, row) for i, row in enumerate(_lines(path)) if not row.get("error")]
    metadata = [_inside(row, "metadata", f"{path}:{i}") for i, row in rows]
    metrics = [_inside(row, "metrics", f"{path}:{i}") for i, row in rows]

    def metric(name: str) -> Floats:
        found = []
        for (i, _), each in zip(rows, metrics, strict=True):
            part = _inside(each, name, f"{path}:{i}: metrics")
            scale = {"ms": 1e-3, "us": 1e-6, "ns": 1e-9}.get(str(part.get("unit")), 1.0)
            found.append(_field(part, "value", f"{path}:{i}: {name}") * scale)
        return np.array(found)

    start = np.array(
        [_field(each, "request_start_ns", f"{path}:{i}") * 1e-9 for (i, _), each in zip(rows, metadata, strict=True)]
    )
    first, last = start + metric("time_to_first_token"), start + metric("request_latency")
    return _checked(path, start, metric("input_sequence_length"), metric("output_sequence_length"), first, last)


def _csv(path: Path) -> MeasuredRun:
    """Return the run in a CSV of arrival, prompt_tokens, output_tokens, ttft and e2e [s]."""
    rows = [row for _, row in read_rows(path, ("arrival", "prompt_tokens", "output_tokens", "ttft", "e2e"))]
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    start = columns["arrival"]
    ends = (start + columns["ttft"], start + columns["e2e"])
    run = _checked(path, start, columns["prompt_tokens"], columns["output_tokens"], *ends)
    if "hit_tokens" not in read_text(path).splitlines()[0].split(","):
        return run
    hits = np.array([row["hit_tokens"] for _, row in read_rows(path, ("hit_tokens",))])
    order = np.argsort(start, kind="stable")
    return MeasuredRun(
        run.name, run.arrival, run.prompt_tokens, run.output_tokens, run.first_token, run.finish,
        hits[order].astype(np.int64),
    )  # fmt: skip


def _checked(path: Path, start: Floats, prompt: Any, output: Any, first: Floats, last: Floats) -> MeasuredRun:
    if len(start) == 0:
        raise InputError(f"{path}: no requests")
    order = np.argsort(start, kind="stable")
    origin = start.min()
    prompt_tokens, output_tokens = (np.array(each, float).astype(np.int64)[order] for each in (prompt, output))
    if (prompt_tokens < 1).any() or (output_tokens < 1).any():
        raise InputError(f"{path}: a request without prompt or answer; allowed: one token or more of each")
    times = ((each - origin)[order] for each in (start, first, last))
    arrival, first_token, finish = times
    return MeasuredRun(str(path), arrival, prompt_tokens, output_tokens, first_token, finish)


def _lines(path: Path) -> list[dict[str, Any]]:
    rows = []
    for i, line in enumerate(read_text(path).splitlines(), start=1):
        if line.strip():
            rows.append(json_object(line, f"{path}:{i}"))
    if not rows:
        raise InputError(f"{path}: no lines; allowed: one JSON object a line")
    return rows


def _inside(row: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    value = row.get(name)
    if not isinstance(value, dict):
        raise InputError(f"{where}: {name}: {shown(value)}; allowed: an object")
    return value


def _field(row: Mapping[str, Any], name: str, where: str, check: Callable[[float], bool] = np.isfinite) -> float:
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not check(value):
        raise InputError(f"{where}: {name}: {shown(value)}; allowed: a number")
    return float(value)
