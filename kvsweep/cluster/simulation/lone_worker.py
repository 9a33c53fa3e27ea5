"""Serving requests on one vLLM worker, whose tokens are known: what a replay of a measured run needs of the core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from kvsweep.cluster.simulation.cores import compiled_run, plain_run
from kvsweep.cluster.vllm import columns as c
from kvsweep.cluster.vllm.limits import Limits
from kvsweep.cluster.vllm.state import Fleet, new_fleet, request_rows
from kvsweep.cluster.vllm.steptime import StepTimes
from kvsweep.errors import InputError
from kvsweep.policies.registry import Policy, load_policies

LOG_STEPS = 1 << 14
"""Steps the log holds at first."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request: arrival [s], tokens of prompt and answer, and the contents of its full blocks.

    Equal numbers in `keys` are equal contents after equal prefixes; answers have blocks of their own.
    """

    arrival: float
    prompt_tokens: int
    output_tokens: int
    keys: Sequence[int]


@dataclass(frozen=True, slots=True)
class Served:
    """What became of the requests, in their order, and the steps that ran; times in picoseconds."""

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
    fleet = (plain_run if plain else compiled_run)(lone_worker(requests, limits, times), _policy())
    return Served(fleet.state.request, fleet.log[: fleet.state.run[c.N_LOG]])


def lone_worker(requests: Sequence[Arrival], limits: Limits, times: StepTimes) -> Fleet:
    """Return one worker that all of `requests` will come to, and that keeps a log of its steps.

    Raises InputError for requests that do not fit, or are out of order.
    """
    _check(requests, limits)
    arrival = np.array([round(each.arrival * 1e12) for each in requests], np.int64)
    prompt = np.array([each.prompt_tokens for each in requests], np.int64)
    output = np.array([each.output_tokens for each in requests], np.int64)
    keys = np.array([key for each in requests for key in each.keys], np.int64)
    fleet = new_fleet(request_rows(arrival, prompt, output, limits.block_tokens), keys, [limits], times)
    return fleet._replace(log=np.zeros((LOG_STEPS, c.N_LOG_COLUMNS), np.int64))


def _check(requests: Sequence[Arrival], limits: Limits) -> None:
    usable, size = limits.n_blocks - 1, limits.block_tokens
    if sorted(requests, key=lambda each: each.arrival) != list(requests):
        raise InputError("requests are not in order of arrival; allowed: arrivals that do not decrease")
    for each in requests:
        tokens = each.prompt_tokens + each.output_tokens
        if -(-tokens // size) > usable:
            raise InputError(
                f"a request of {tokens} tokens needs {-(-tokens // size)} blocks, and the worker has {usable}; "
                "allowed: requests that fit"
            )
        if len(each.keys) != tokens // size:
            raise InputError(
                f"a request of {tokens} tokens has {len(each.keys)} block contents; "
                f"allowed: {tokens // size}, one for each full block of {size}"
            )


@cache
def _policy() -> Policy:
    """Return the retrieval policy that every core is handed, and this one never asks."""
    return load_policies()["default_policy"]


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
