"""Running a vLLM worker: the compiled core, the same source plain, and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvsweep.cluster.vllm import columns as c
from kvsweep.cluster.vllm.loop import serve
from kvsweep.cluster.vllm.state import Arrival, Limits, Worker, new_worker
from kvsweep.cluster.vllm.steptime import StepTimes
from kvsweep.errors import ResultError
from kvsweep.grid.jit import program

_OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False}


@dataclass(frozen=True, slots=True)
class Served:
    """What became of the requests, in their order, and the steps that ran; times in seconds."""

    request: NDArray[np.int64]
    steps: NDArray[np.int64]

    def seconds(self, column: int) -> NDArray[np.float64]:
        """Return a time column of the requests [s]."""
        return np.asarray(self.request[:, column] * 1e-12)

    @property
    def extrapolated_ratio(self) -> float:
        """Return the share of the steps whose time was read outside what was measured."""
        return float(self.steps[:, c.LOG_EXTRAPOLATED].mean()) if len(self.steps) else 0.0


def run(requests: Sequence[Arrival], limits: Limits, times: StepTimes, *, plain: bool = False) -> Served:
    """Return what becomes of `requests` on one worker; `plain` runs the core's source uncompiled.

    Raises InputError for a request that can never fit, ResultError for a run that stops making progress.
    """
    worker = new_worker(requests, limits)
    core = serve if plain else _core()
    while (code := core(worker, times)) == c.GROW:
        worker = _grown(worker)
    if code == c.STUCK:
        raise ResultError(
            f"no progress: {worker.run[c.N_WAITING]} requests wait and none can be admitted "
            "(more blocks are reserved than the worker has)"
        )
    return Served(worker.request, worker.log[: worker.run[c.N_LOG]])


def run_workers(requests: Sequence[Arrival], limits: Limits, times: StepTimes, workers: int) -> list[Served]:
    """Return what becomes of `requests` on `workers` equal workers of one profile, dealt round robin."""
    return [run(requests[place::workers], limits, times) for place in range(workers)]


@cache
def _core() -> Callable[..., int]:
    return program(serve, _OPTIONS)


def _grown(worker: Worker) -> Worker:
    return worker._replace(log=np.concatenate((worker.log, np.zeros_like(worker.log))))


def content_keys(prompts: Sequence[Sequence[int]], lengths: Sequence[tuple[int, int]], size: int) -> list[list[int]]:
    """Return the block contents of requests, numbered: equal numbers for equal tokens after equal prefixes.

    `prompts` holds the token ids, `lengths` the tokens of prompt and answer. Blocks that reach into an answer are like
    no other.
    """
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    count = 0
    found = []
    for tokens, (prompt, output) in zip(prompts, lengths, strict=True):
        keys: list[int] = []
        parent = -1
        for block in range((prompt + output) // size):
            if (block + 1) * size <= prompt:
                content = (parent, tuple(tokens[block * size : block * size + size]))
                if content not in numbers:
                    numbers[content] = count
                    count += 1
                parent = numbers[content]
            else:
                parent = count
                count += 1
            keys.append(parent)
        found.append(keys)
    return found
