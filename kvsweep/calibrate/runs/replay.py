"""Replaying a measured run: its workload on a simulated worker of its configuration, with a frozen profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvsweep.calibrate.runs.measured import Floats, MeasuredRun
from kvsweep.cluster.inputs.step_profile import StepProfile, step_times
from kvsweep.cluster.inputs.vllm_defaults import assumed_blocks, default_graphs
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.simulation.lone_worker import Arrival, Served, content_keys, run
from kvsweep.cluster.vllm import columns as c
from kvsweep.cluster.vllm.limits import Limits
from kvsweep.cluster.vllm.steptime import StepTimes
from kvsweep.costs.memory import Step
from kvsweep.errors import InputError, shown

MOST = 1 << 50
"""Beyond what any engine has of blocks, tokens or bytes."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A measured run and its prediction; `notes` say what was assumed."""

    run: MeasuredRun
    served: Served
    limits: Limits
    graphs: tuple[int, ...]
    times: StepTimes
    notes: tuple[str, ...]

    @property
    def first_token(self) -> Floats:
        """Return the predicted times of the first tokens [s]."""
        return self.served.seconds(col.FIRST_TOKEN)

    @property
    def finish(self) -> Floats:
        """Return the predicted times of the last tokens [s]."""
        return self.served.seconds(col.FINISHED)


def replay(measured: MeasuredRun, profile: StepProfile, **changes: Any) -> Replay:
    """Return the prediction of `measured` with `profile`; `changes` replace fields of the worker's `Limits`.

    `graphs` among them are the captured batch sizes instead of those of the run; `one_prompt` is that of
    `step_times`.
    """
    graphs = changes.pop("graphs", None)
    one_prompt = changes.pop("one_prompt", False)
    limits, notes = limits_of(measured.engine, profile, changes.pop("n_blocks", None))
    limits = replace(limits, **changes)
    sizes = captured_graphs(measured.engine, limits.max_sequences) if graphs is None else tuple(graphs)
    lengths = list(zip(measured.prompt_tokens.tolist(), measured.output_tokens.tolist(), strict=True))
    if measured.prompts is None:
        prompts: Any = [[(-i, j) for j in range(prompt)] for i, (prompt, _) in enumerate(lengths)]
        notes = (*notes, "no token ids: no request is assumed to share a prefix with another")
    else:
        prompts = measured.prompts
    keys = content_keys(prompts, lengths, limits.block_tokens)
    arrivals = [
        Arrival(at, prompt, output, own)
        for at, (prompt, output), own in zip(measured.arrival.tolist(), lengths, keys, strict=True)
    ]
    times = step_times(profile, sizes, one_prompt)
    return Replay(measured, run(arrivals, limits, times), limits, sizes, times, notes)


def limits_of(
    engine: Mapping[str, Any], profile: StepProfile, n_blocks: int | None = None
) -> tuple[Limits, tuple[str, ...]]:
    """Return the limits a run's meta.json states, and what had to be assumed; `n_blocks` instead of those it states.

    Raises InputError for a field that is not what the engine writes, and for blocks nobody knows.
    """
    kwargs, cache = _part(engine, "engine_kwargs"), _part(engine, "kv_cache")
    scheduler = _part(_part(engine, "resolved_config"), "scheduler_config")
    size = _count(cache, "block_size", 16)
    tokens = _count(kwargs, "max_num_batched_tokens", 2048)
    sequences = _count(kwargs, "max_num_seqs", 256)
    blocks = n_blocks or _count(cache, "num_gpu_blocks", 0)
    notes: tuple[str, ...] = ()
    if not blocks:
        memory = _count(_part(engine, "hardware"), "device_total_memory_bytes", 0)
        blocks = assumed_blocks(profile, size, memory, Step(tokens, sequences))
        notes = (f"num_gpu_blocks: assumed {blocks}, what fits beside weights and steps of {tokens} tokens",)
    limits = Limits(
        n_blocks=blocks,
        block_tokens=size,
        token_budget=tokens,
        max_sequences=sequences,
        reserve_full=_switch(scheduler, "scheduler_reserve_full_isl"),
        steps_in_flight=2 if _switch(scheduler, "async_scheduling") else 1,
        prefix_cache=_switch(cache, "enable_prefix_caching"),
    )
    if not kwargs:
        notes = (*notes, f"engine: assumed {limits.token_budget} tokens a step and {limits.max_sequences} sequences")
    return limits, notes


def _count(part: Mapping[str, Any], name: str, default: int) -> int:
    """Return the whole number above 0 in a field of meta.json, or `default` where it is not stated."""
    value = part.get(name)
    if value is None:
        return default
    if type(value) is not int or not 0 < value < MOST:
        raise InputError(f"meta.json: {name}: {shown(value)}; allowed: a whole number above 0, or null")
    return value


def _switch(part: Mapping[str, Any], name: str) -> bool:
    value = part.get(name)
    if value is not None and not isinstance(value, bool):
        raise InputError(f"meta.json: {name}: {shown(value)}; allowed: true, false, or null")
    return True if value is None else value


def captured_graphs(engine: Mapping[str, Any], max_sequences: int) -> tuple[int, ...]:
    """Return the captured batch sizes: those of the run, or the engine's default, up to min(512, 2 x sequences)."""
    stated = _part(_part(engine, "resolved_config"), "compilation_config").get("cudagraph_capture_sizes")
    if isinstance(stated, list) and stated:
        return tuple(sorted(_count({"cudagraph_capture_sizes": size}, "cudagraph_capture_sizes", 1) for size in stated))
    return default_graphs(max_sequences)


def _part(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = values.get(name)
    return part if isinstance(part, dict) else {}


def engine_series(served: Served, limits: Limits, prompt_tokens: NDArray[np.int64], at: Floats) -> dict[str, Floats]:
    """Return what an engine's log would say of a simulated run at times `at` [s], by the names of `SERIES`.

    Throughputs [tokens/s] are those since the time before; a prompt counts as a whole, with its first token.
    """
    start, end = (served.steps[:, column] * 1e-12 for column in (c.START, c.END))
    lines = served.steps[np.clip(np.searchsorted(start, at, side="right") - 1, 0, len(start) - 1)]
    first = served.seconds(col.FIRST_TOKEN)
    order = np.argsort(first, kind="stable")
    decodes = np.concatenate(([0], np.cumsum(served.steps[:, c.LOG_TOKENS] - served.steps[:, c.LOG_CHUNK])))
    prompts = np.concatenate(([0], np.cumsum(prompt_tokens[order])))
    known = np.searchsorted(first[order], at, side="right")
    generated = decodes[np.searchsorted(end, at, side="right")] + known
    tick = np.diff(at, prepend=0.0)
    return {
        "t": at,
        "running": lines[:, c.LOG_RUNNING].astype(float),
        "waiting": lines[:, c.LOG_WAITING].astype(float),
        "kv_cache_pct": 100.0 * (1.0 - lines[:, c.LOG_FREE] / (limits.n_blocks - 1)),
        "prompt_throughput": np.diff(prompts[known], prepend=0.0) / tick,
        "gen_throughput": np.diff(generated, prepend=0.0) / tick,
    }
