"""Replaying a measured run: its workload on a simulated worker of its configuration, with a frozen profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kvsweep.calibrate.runs import Floats, MeasuredRun
from kvsweep.cluster import columns as col
from kvsweep.cluster.vllm import columns as c
from kvsweep.cluster.vllm.limits import Limits, assumed_blocks, default_graphs
from kvsweep.cluster.vllm.profile import StepProfile, step_times
from kvsweep.cluster.vllm.serve import Arrival, Served, content_keys, run


@dataclass(frozen=True, slots=True)
class Replay:
    """A measured run and its prediction; `notes` say what was assumed."""

    run: MeasuredRun
    served: Served
    limits: Limits
    graphs: tuple[int, ...]
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
    limits, notes = limits_of(measured.engine, profile)
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
    return Replay(measured, run(arrivals, limits, times), limits, sizes, notes)


def limits_of(engine: Mapping[str, Any], profile: StepProfile) -> tuple[Limits, tuple[str, ...]]:
    """Return the limits a run's meta.json states, and what had to be assumed."""
    kwargs, cache = _part(engine, "engine_kwargs"), _part(engine, "kv_cache")
    scheduler = _part(_part(engine, "resolved_config"), "scheduler_config")
    size = int(cache.get("block_size") or 16)
    blocks = cache.get("num_gpu_blocks")
    notes: tuple[str, ...] = ()
    if not blocks:
        blocks = assumed_blocks(profile, size, _part(engine, "hardware").get("device_total_memory_bytes"))
        notes = (f"num_gpu_blocks: assumed {blocks}, (0.9 x memory - weights)/({size} x KV bytes)",)
    limits = Limits(
        n_blocks=int(blocks),
        block_tokens=size,
        token_budget=int(kwargs.get("max_num_batched_tokens") or 2048),
        max_sequences=int(kwargs.get("max_num_seqs") or 256),
        reserve_full=bool(scheduler.get("scheduler_reserve_full_isl", True)),
        steps_in_flight=2 if scheduler.get("async_scheduling", True) else 1,
        prefix_cache=bool(cache.get("enable_prefix_caching", True)),
    )
    if not kwargs:
        notes = (*notes, f"engine: assumed {limits.token_budget} tokens a step and {limits.max_sequences} sequences")
    return limits, notes


def captured_graphs(engine: Mapping[str, Any], max_sequences: int) -> tuple[int, ...]:
    """Return the captured batch sizes: those of the run, or the engine's default, up to min(512, 2 x sequences)."""
    stated = _part(_part(engine, "resolved_config"), "compilation_config").get("cudagraph_capture_sizes")
    if isinstance(stated, list) and stated:
        return tuple(sorted(int(size) for size in stated))
    return default_graphs(max_sequences)


def _part(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = values.get(name)
    return part if isinstance(part, dict) else {}


def predicted_series(served: Served, limits: Limits, at: Floats) -> dict[str, Floats]:
    """Return running, waiting and KV usage [0..1] at times `at` [s], and steps and tokens a second before each."""
    start = served.steps[:, c.START] * 1e-12
    place = np.clip(np.searchsorted(start, at, side="right") - 1, 0, len(start) - 1)
    lines = served.steps[place]
    usage = 1.0 - lines[:, c.LOG_FREE] / (limits.n_blocks - 1)
    return {
        "running": lines[:, c.LOG_RUNNING].astype(float),
        "waiting": lines[:, c.LOG_WAITING].astype(float),
        "kv_usage": np.asarray(usage),
    }
