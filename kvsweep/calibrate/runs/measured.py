"""Measured runs of an engine, request by request, from the formats in which they are published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsweep.calibrate.sources.columns import (
    json_inside,
    json_lines,
    json_number,
    json_numbers,
    json_object,
    read_header,
    read_lines,
    read_rows,
    read_text,
)
from kvsweep.errors import InputError, shown
from kvsweep.trace.files.source import Source, trace_files
from kvsweep.trace.options import ReadOptions
from kvsweep.trace.readers.tokens import TOKENS

Floats = NDArray[np.float64]
SERIES = ("t", "running", "waiting", "kv_cache_pct", "prompt_throughput", "gen_throughput")
TIERS = ("l1", "l2", "l3")
"""Tiers of which a run may say how many prompt tokens each held: device, host, shared."""
TIER_HITS = {tier: f"{tier}_hit_tokens" for tier in TIERS}
"""Columns of a CSV that say so; `hit_tokens` is all of them together."""
MOST_TOKENS = 1e7
"""Most tokens of a prompt or answer."""
LONGEST = 1e6
"""Longest run [s]: the simulator counts picoseconds in 64 bits."""
SCALES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0}


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
    """Prompt tokens found in caches, all tiers together."""
    tier_hits: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    """Prompt tokens found in each tier that was measured, by its name in `TIERS`."""
    prompts: Sequence[Sequence[int]] | None = None
    engine: Mapping[str, Any] = field(default_factory=dict)
    """What the run says of its engine, as in its meta.json."""
    series: Mapping[str, Floats] = field(default_factory=dict)
    """Time series by name, sampled at `t` [s]; empty where the run has none."""

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.arrival)


def read_run(path: Path, workload: Path | None = None) -> MeasuredRun:
    """Return the run at `path`: a folder as LLMServingSim writes it, or a file of another tool, told by its suffix.

    `workload` holds the token ids of a folder's prompts. Raises InputError naming file, line and field.
    """
    if path.is_dir():
        return _folder(path, workload)
    readers = {".csv": _csv, ".jsonl": _aiperf, ".json": _bench}
    if path.suffix not in readers:
        raise InputError(
            f"{path}: not a run kvsweep reads; allowed: a folder with meta.json and requests.jsonl, the .json of "
            "vllm bench serve --save-detailed, AIPerf's profile_export.jsonl, a .csv"
        )
    if workload is not None:
        raise InputError(f"--workload: {path} names no lines of a workload; allowed: with a folder of a run")
    return readers[path.suffix](path)


def _folder(path: Path, workload: Path | None) -> MeasuredRun:
    meta_file, requests_file = path / "meta.json", path / "requests.jsonl"
    for file in (meta_file, requests_file):
        if not file.is_file():
            raise InputError(f"{path}: no {file.name}; allowed: a folder with meta.json and requests.jsonl")
    engine = json_object(read_text(meta_file), str(meta_file))
    rows = json_lines(requests_file)
    names = ("input_toks", "output_toks", "arrival_time", "queued_ts", "first_token_ts", "last_token_ts")
    table = {name: np.array([json_number(row, name, where) for where, row in rows]) for name in names}
    # Arrivals are on another clock than the rest: no request is queued before it arrives.
    arrival = table["arrival_time"] + (table["queued_ts"] - table["arrival_time"]).min()
    columns = _Columns(
        arrival, table["input_toks"], table["output_toks"], table["first_token_ts"], table["last_token_ts"],
        prompts=_prompts(workload, rows) if workload else None,
    )  # fmt: skip
    run = _run(path, [where for where, _ in rows], columns)
    return replace(run, engine=engine, series=_series(path / "timeseries.csv"))


def _prompts(workload: Path, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> list[list[int]]:
    """Return the token ids of the prompts of `rows`; request bench-N is record N of the workload.

    The workload is whatever `kvsweep trace` reads token ids of: lines or lists of JSON, packed or not, or a folder.
    """
    lines = list(Source(workload, trace_files(workload), ReadOptions()))
    found = []
    for i, (where, row) in enumerate(rows):
        place = str(row.get("request_id", "")).rpartition("-")[2]
        at = int(place) if place.isdecimal() else i
        if at >= len(lines):
            raise InputError(f"{workload}: {len(lines)} requests; {where} is request {at}")
        name = lines[at].first(TOKENS) or TOKENS[0]
        tokens = lines[at].ids(name)
        if len(tokens) != row["input_toks"]:
            problem = f"not {row['input_toks']:g} tokens, as {where} says"
            raise lines[at].error(name, problem, "the workload of this run")
        found.append(tokens)
    return found


def _series(path: Path) -> dict[str, Floats]:
    """Return the time series of a run, in order of time; empty for a run without."""
    if not path.is_file():
        return {}
    rows = sorted((row for _, row in read_rows(path, SERIES)), key=lambda row: row["t"])
    if len({row["t"] for row in rows}) != len(rows):
        raise InputError(f"{path}: t: a time twice; allowed: one row a time")
    return {name: np.array([row[name] for row in rows]) for name in SERIES}


def _bench(path: Path) -> MeasuredRun:
    """Return the run in the result of `vllm bench serve --save-result --save-detailed`."""
    content = json_object(read_text(path), str(path))
    if not isinstance(content.get("start_times"), list):
        raise InputError(f"{path}: start_times: missing; allowed: a result with per-request lists (--save-detailed)")
    prompt = json_numbers(content, "input_lens", str(path))
    names = ("output_lens", "ttfts", "start_times")
    output, ttft, start = (np.array(json_numbers(content, name, str(path), len(prompt))) for name in names)
    gaps = content.get("itls")
    if not isinstance(gaps, list) or len(gaps) != len(prompt):
        raise InputError(f"{path}: itls: not one list a request; allowed: {len(prompt)} lists, as input_lens has")
    decode = [sum(json_numbers({"itls": each}, "itls", f"{path}: request {i}")) for i, each in enumerate(gaps)]
    first = start + ttft
    places = [f"{path}: request {i}" for i in range(len(prompt))]
    return _run(path, places, _Columns(start, np.array(prompt), output, first, first + np.array(decode)))


def _aiperf(path: Path) -> MeasuredRun:
    """Return the run in AIPerf's profile_export.jsonl; requests that failed are left out."""
    rows = [(where, row) for where, row in json_lines(path) if not row.get("error")]
    places = [where for where, _ in rows]
    metadata = [json_inside(row, "metadata", where) for where, row in rows]
    metrics = [json_inside(row, "metrics", where) for where, row in rows]

    def metric(name: str, scales: Mapping[str, float] | None = None) -> Floats:
        found = []
        for where, each in zip(places, metrics, strict=True):
            part = json_inside(each, name, f"{where}: metrics")
            unit = str(part.get("unit"))
            if scales and unit not in scales:
                raise InputError(f"{where}: {name}: unit: {shown(unit)}; allowed: {', '.join(scales)}")
            found.append(json_number(part, "value", f"{where}: {name}") * (scales[unit] if scales else 1.0))
        return np.array(found)

    start = np.array(
        [json_number(each, "request_start_ns", where) * 1e-9 for where, each in zip(places, metadata, strict=True)]
    )
    first, last = start + metric("time_to_first_token", SCALES), start + metric("request_latency", SCALES)
    cached = "usage_prompt_cache_read_tokens"
    hits = metric(cached) if metrics and all(cached in each for each in metrics) else None
    prompt, output = metric("input_sequence_length"), metric("output_sequence_length")
    return _run(path, places, _Columns(start, prompt, output, first, last, hits))


def _csv(path: Path) -> MeasuredRun:
    """Return the run in a CSV of arrival, prompt_tokens, output_tokens, ttft and e2e [s], and tokens hit if known."""
    header = read_header(path)
    tiers = [tier for tier, name in TIER_HITS.items() if name in header]
    if tiers and "hit_tokens" in header:
        raise InputError(
            f"{path}:1: hit_tokens beside {TIER_HITS[tiers[0]]}; allowed: hit_tokens, or the columns of tiers it sums"
        )
    needed = ("arrival", "prompt_tokens", "output_tokens", "ttft", "e2e")
    lines = read_lines(path, needed, optional=("hit_tokens", *TIER_HITS.values()))
    table = {name: np.array([line.numbers[name] for line in lines]) for name in lines[0].numbers}
    start = table["arrival"]
    by_tier = {tier: table[TIER_HITS[tier]] for tier in tiers}
    columns = _Columns(
        start, table["prompt_tokens"], table["output_tokens"], start + table["ttft"], start + table["e2e"],
        table.get("hit_tokens"), by_tier,
    )  # fmt: skip
    return _run(path, [line.where for line in lines], columns)


class _Columns(NamedTuple):
    """Requests as a file states them, in its order; times [s] on one clock, `hits` those of all tiers together."""

    start: Floats
    prompt: Floats
    output: Floats
    first: Floats
    last: Floats
    hits: Floats | None = None
    tiers: Mapping[str, Floats] = {}
    prompts: Sequence[Sequence[int]] | None = None


def _run(path: Path, places: Sequence[str], columns: _Columns) -> MeasuredRun:
    """Return the run of `columns` in order of arrival; `places` say where each request is from.

    Raises InputError for counts that are not whole, tokens before their request, and hits beyond the prompt.
    """
    start, prompt, output, first, last, hits, tiers, prompts = columns
    if len(start) == 0:
        raise InputError(f"{path}: no requests; allowed: one that was served, or more")
    if hits is None and tiers:
        hits = np.sum(list(tiers.values()), axis=0)
    counts = {"prompt tokens": (prompt, 1.0), "output tokens": (output, 1.0)}
    counts |= {"hit tokens": (hits, 0.0)} if hits is not None else {}
    counts |= {f"{tier} hit tokens": (each, 0.0) for tier, each in tiers.items()}
    for name, (values, least) in counts.items():
        wrong = (values < least) | (values > MOST_TOKENS) | (values != np.floor(values))
        _refuse(places, wrong, values, f"{name}: {{:g}}; allowed: a whole number from {least:g} to {MOST_TOKENS:g}")
    _refuse(places, first < start, first - start, "first token {:g} s after the arrival; allowed: not before it")
    _refuse(places, last < first, last - first, "last token {:g} s after the first; allowed: not before it")
    late = last - start.min()
    _refuse(places, late > LONGEST, late, f"last token {{:g}} s after the first arrival; allowed: at most {LONGEST:g}")
    if hits is not None:
        _refuse(places, hits > prompt, hits, "{:g} hit tokens; allowed: at most the tokens of the prompt")
    order = np.argsort(start, kind="stable")
    origin = start.min()

    def whole(values: Floats) -> NDArray[np.int64]:
        return values.astype(np.int64)[order]

    return MeasuredRun(
        name=str(path),
        arrival=(start - origin)[order],
        prompt_tokens=whole(prompt),
        output_tokens=whole(output),
        first_token=(first - origin)[order],
        finish=(last - origin)[order],
        hit_tokens=None if hits is None else whole(hits),
        tier_hits={tier: whole(each) for tier, each in tiers.items()},
        prompts=None if prompts is None else [prompts[i] for i in order],
    )


def _refuse(places: Sequence[str], wrong: NDArray[np.bool_], values: Floats, message: str) -> None:
    """Raise InputError with the first value that is wrong, if one is."""
    for i in np.flatnonzero(wrong)[:1]:
        raise InputError(f"{places[i]}: {message.format(values[i])}")
