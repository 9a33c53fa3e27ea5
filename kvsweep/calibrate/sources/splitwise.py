"""Prompt and token times of whole engines, as Splitwise publishes them: rows of prefill and decode steps.

A row is one batch of equal prompts served alone: the time to its first tokens, and the mean time of a token after
them. Both are steps of the engine with its host code, so they fit service models, not kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kvsweep.calibrate.sources.columns import Line, read_header, read_lines
from kvsweep.calibrate.sources.operations import Measured, Operation
from kvsweep.errors import InputError

MILLI = 1e-3
SIZES = ("tensor_parallel", "prompt_size", "batch_size", "token_size", "prompt_time", "token_time", "e2e_time")
MODELS = {"llama2-70b": "llama-2-70b", "bloom-176b": "bloom-176b"}
"""Keys of the catalog by the name of a model in the file."""
GPUS = {"a100-80gb": "a100-80-sxm", "h100-80gb": "h100-sxm"}
"""Keys of the catalog by the name of a worker in the file (DGX machines). Those of capped power are left out: their
prompt times are 1.3 times those of the others, to the last digit, and their token times the same."""
QUEUED = 1.1
"""A row whose end-to-end time is this many times the sum of its steps did not run as one batch."""


@dataclass(frozen=True, slots=True)
class Worker:
    """Which worker of a file of many: keys of the catalog, and the tensor-parallel degree."""

    model: str
    gpu: str
    tp: int


def is_splitwise(path: Path) -> bool:
    """Return whether a CSV has the columns of Splitwise's table."""
    return set(SIZES) <= set(read_header(path))


def read_splitwise(path: Path, worker: Worker | None) -> list[Measured]:
    """Return the prefill and decode rows of one worker; raises InputError naming those there are for an unknown one."""
    lines = read_lines(path, SIZES, ("model", "hardware"))
    workers = {_worker(line) for line in lines} - {None}
    if worker not in workers:
        known = sorted(f"{each.model} on {each.tp} x {each.gpu}" for each in workers if each)
        asked = f"no {worker.model} on {worker.tp} x {worker.gpu}" if worker else "rows of several workers"
        raise InputError(f"{path}: {asked}; allowed as --model, --tp and --gpu: {', '.join(known)}")
    rows = [line.numbers for line in lines if _worker(line) == worker]
    for line in lines:
        if min(line.numbers[name] for name in SIZES) <= 0.0:
            raise InputError(f"{line.where}: a size or time of 0; allowed: more")
    whole = [
        row
        for row in rows
        if row["e2e_time"] <= QUEUED * (row["prompt_time"] + row["token_time"] * (row["token_size"] - 1.0))
    ]
    left = len(rows) - len(whole)
    note = "Splitwise perf_model.csv (Mutinifni/splitwise-sim, MIT)"
    if left:
        note += f", without {left} rows that took over {QUEUED:g} x their steps end to end: not one batch"
    prefill = tuple(
        Operation(row["batch_size"] * row["prompt_size"], 0.0, row["prompt_time"] * MILLI, row["batch_size"])
        for row in whole
    )
    decode = tuple(
        Operation(
            row["batch_size"],
            row["batch_size"] * (row["prompt_size"] + row["token_size"] / 2.0),
            row["token_time"] * MILLI,
        )
        for row in whole
    )
    return [
        Measured("prefill", prefill, "a batch of prompts alone on the engine, to its first tokens", path, note),
        Measured("decode", decode, "mean time between tokens of a batch alone on the engine", path, note),
    ]


def _worker(line: Line) -> Worker | None:
    """Return the worker of a row, or None for one of no known model or machine."""
    model, gpu = MODELS.get(line.texts["model"]), GPUS.get(line.texts["hardware"])
    return Worker(model, gpu, int(line.numbers["tensor_parallel"])) if model and gpu else None
