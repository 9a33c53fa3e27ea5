"""Measurements of parts as rows: bench files, engine logs, simple CSVs and bandwidth tables, told by their content."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from kvsweep.calibrate.sources.columns import (
    Row,
    json_lines,
    json_number,
    json_object,
    number,
    read_header,
    read_rows,
    read_text,
)
from kvsweep.calibrate.sources.operations import PATHS, Measured, Operation
from kvsweep.calibrate.sources.splitwise import Worker, is_splitwise, read_splitwise
from kvsweep.calibrate.sources.steps import read_steps
from kvsweep.errors import InputError, shown, unknown_name

COPY_BYTES = 512 * 2.0**20
"""Bytes of a copy of nvbandwidth: its buffers are 512 MiB."""
TESTS = {"h2d": "host_to_device_memcpy_ce", "d2h": "device_to_host_memcpy_ce"}
_PREFILL = re.compile(r"Prefill batch.*?#new-seq: (\d+), #new-token: (\d+), #cached-token: (\d+),.*?"
                      r"input throughput \(token/s\): (\d+(?:\.\d*)?)")  # fmt: skip
_DECODE = re.compile(r"Decode batch.*?#running-req: (\d+), #token: (\d+),.*?"
                     r"gen throughput \(token/s\): (\d+(?:\.\d*)?)")  # fmt: skip
LONGEST_LINE = 2000
"""Characters of a log line that are looked at: the patterns go over what is between their words again and again."""


def read_source(text: str, worker: Worker | None = None) -> list[Measured]:
    """Return what a source holds: a file, or NAME=FILE for a copy of `PATHS`; raises InputError for neither.

    `worker` says whose rows to take of a file that holds those of several.
    """
    name, sign, rest = text.partition("=")
    if sign and not Path(text).exists():
        if name not in PATHS:
            raise unknown_name(f"source {shown(text)}: copy", name, PATHS)
        return [_copy(Path(rest), name)]
    path = Path(text)
    if path.suffix == ".csv":
        return read_splitwise(path, worker) if is_splitwise(path) else [_simple(path)]
    if path.suffix == ".jsonl":
        return _bench_one_batch(path)
    if path.suffix == ".json":
        return _nvbandwidth(path)
    if path.suffix in (".log", ".txt"):
        return _log(path)
    if path.suffix in (".yaml", ".yml"):
        return read_steps(path, worker)
    raise InputError(
        f"{path}: not a source kvsweep reads; allowed: a folder of a kernel profile, .csv, bench_one_batch .jsonl, "
        "nvbandwidth .json, an engine's .log, a step profile .yaml, or handoff=, h2d=, d2h= with a CSV of bytes,seconds"
    )


def is_of_several(text: str) -> bool:
    """Return whether a source may hold rows of several workers, of which one is to be named."""
    path = Path(text)
    return path.suffix in (".yaml", ".yml") or (path.suffix == ".csv" and is_splitwise(path))


def _simple(path: Path) -> Measured:
    """Return the rows of a CSV of tokens,context,seconds or batch,context,seconds."""
    header = read_header(path)
    first = next((name for name in ("tokens", "batch") if name in header), None)
    if first is None:
        allowed = "tokens,context,seconds; batch,context,seconds; bytes,seconds as handoff=, h2d= or d2h="
        raise InputError(f"{path}:1: {shown(','.join(header))}; allowed: {allowed}")
    rows = [row for _, row in read_rows(path, (first, "context", "seconds"))]
    kind = "prefill" if first == "tokens" else "decode"
    for row in rows:
        if row[first] < 1.0 or row[first] != int(row[first]):
            raise InputError(f"{path}: {first}: {row[first]:g}; allowed: whole numbers from 1 on")
    # A decode row states the context of each request, the model counts that of all.
    scale = (lambda row: row["batch"]) if kind == "decode" else (lambda row: 1.0)
    found = tuple(Operation(row[first], row["context"] * scale(row), row["seconds"]) for row in rows)
    return Measured(kind, found, "as in the file: one operation", path)


def _copy(path: Path, name: str) -> Measured:
    """Return the rows of a CSV of bytes,seconds, or of block_bytes,bytes_per_s (time of one block)."""
    header = read_header(path)
    if "block_kb" in header:  # the copy engine's column of a published table, KiB and GB/s
        table = [row for _, row in read_rows(path, ("block_kb", "dma_GBps"))]
        rows = [{"block_bytes": row["block_kb"] * 1024.0, "bytes_per_s": row["dma_GBps"] * 1e9} for row in table]
        return _blocks(rows, path, name)
    if "bytes_per_s" in header:
        return _blocks([row for _, row in read_rows(path, ("block_bytes", "bytes_per_s"))], path, name)
    return Measured(name, tuple(Operation(size, 0.0, seconds) for size, seconds in read_sizes(path)), "one copy", path)


def read_sizes(path: Path) -> list[tuple[float, float]]:
    """Return the rows of a CSV of bytes,seconds."""
    return [(row["bytes"], row["seconds"]) for _, row in read_rows(path, ("bytes", "seconds"))]


def _blocks(rows: Sequence[Row], path: Path, name: str) -> Measured:
    if any(row["bytes_per_s"] == 0.0 for row in rows):
        raise InputError(f"{path}: a rate of 0; allowed: more")
    found = tuple(Operation(row["block_bytes"], 0.0, row["block_bytes"] / row["bytes_per_s"]) for row in rows)
    return Measured(name, found, "one block of a copy of many", path)


def read_curve(path: Path) -> dict[float, float]:
    """Return the curve of a collective operation in a CSV of bytes,seconds."""
    rows = read_sizes(path)
    if len({size for size, _ in rows}) != len(rows):
        raise InputError(f"{path}: bytes: a size twice; allowed: one row a size")
    return dict(rows)


def _bench_one_batch(path: Path) -> list[Measured]:
    """Return prefill and decode rows of SGLang's bench_one_batch: no scheduler, no prefix."""
    prefill, decode = [], []
    for where, row in json_lines(path):
        batch, length, output = (json_number(row, name, where) for name in ("batch_size", "input_len", "output_len"))
        if batch < 1.0 or length < 1.0:
            raise InputError(f"{where}: batch_size {batch:g}, input_len {length:g}; allowed: 1 or more")
        prefill.append(Operation(batch * length, 0.0, json_number(row, "prefill_latency", where), batch))
        if "median_decode_latency" in row:
            context = batch * (length + output / 2.0)
            decode.append(Operation(batch, context, json_number(row, "median_decode_latency", where)))
    found = [Measured("prefill", tuple(prefill), "a prefill of the model runner, synchronised", path)]
    if decode:
        found.append(Measured("decode", tuple(decode), "a decode step of the model runner, synchronised", path))
    return found


def _log(path: Path) -> list[Measured]:
    """Return the rows of an engine's prefill and decode log lines: tokens over throughput.

    Prompt tokens are rounded up to pages there, and a throughput spans the time since the line before, idle included.
    """
    prefill, decode = [], []
    for whole in read_text(path).splitlines():
        line = whole[:LONGEST_LINE]
        if match := _PREFILL.search(line):
            requests, tokens, cached, rate = (float(match[i]) for i in (1, 2, 3, 4))
            if rate > 0.0 and tokens > 0.0:
                requests = max(requests, 1.0)  # a line that goes on with a prompt has no new one
                prefill.append(Operation(tokens, cached / requests, tokens / rate, requests))
        elif match := _DECODE.search(line):
            running, context, rate = (float(match[i]) for i in (1, 2, 3))
            if rate > 0.0 and running > 0.0:
                decode.append(Operation(running, context, running / rate))
    boundary = "between log lines of the scheduler, idle time included"
    found = [
        Measured(kind, tuple(rows), boundary, path) for kind, rows in (("prefill", prefill), ("decode", decode)) if rows
    ]
    if not found:
        raise InputError(f"{path}: no prefill or decode line with a throughput; allowed: the scheduler's log")
    return found


def _nvbandwidth(path: Path) -> list[Measured]:
    """Return the copies of nvbandwidth -j: the mean of its matrix [GB/s], for one copy of 512 MiB."""
    content = json_object(read_text(path), str(path)).get("nvbandwidth")
    if not isinstance(content, dict) or not isinstance(content.get("testcases"), list):
        raise InputError(f"{path}: no nvbandwidth: testcases; allowed: the output of nvbandwidth -j")
    found = []
    for case in content["testcases"]:
        kind = next((kind for kind, test in TESTS.items() if isinstance(case, dict) and case.get("name") == test), None)
        if kind is None or case.get("status") != "Passed":
            continue
        matrix = case.get("bandwidth_matrix")
        if not isinstance(matrix, list) or not all(isinstance(row, list) for row in matrix):
            raise InputError(f"{path}: {case['name']}: bandwidth_matrix: {shown(matrix)}; allowed: lists of GB/s")
        cells = [str(cell) for row in matrix for cell in row if str(cell) != "N/A"]
        rates = [number(cell, f"{path}: {case['name']}: bandwidth_matrix") for cell in cells]
        if not rates or min(rates) <= 0.0:
            raise InputError(f"{path}: {case['name']}: bandwidth_matrix: no rate; allowed: GB/s above 0")
        seconds = COPY_BYTES / (sum(rates) / len(rates) * 1e9)
        found.append(Measured(kind, (Operation(COPY_BYTES, 0.0, seconds),), "a pinned copy of 512 MiB, peak", path))
    if not found:
        raise InputError(f"{path}: no test passed of {', '.join(TESTS.values())}")
    return found
