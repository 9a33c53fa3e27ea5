"""From a trace, a cluster file and a step profile to the workers a run begins with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kvsweep.cluster.inputs.config import ClusterConfig, VllmGroup
from kvsweep.cluster.inputs.step_profile import StepProfile, step_times
from kvsweep.cluster.inputs.vllm_defaults import assumed_blocks, default_graphs
from kvsweep.cluster.setup.closed_loop import PICO, turns
from kvsweep.cluster.setup.initial_state import (
    LONGEST,
    WINDOWS,
    check_duration,
    draws,
    gateway_reals,
    gateway_scalars,
    let_wait,
    lists,
    paged,
)
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.state import Ints
from kvsweep.cluster.vllm import columns as c
from kvsweep.cluster.vllm.limits import Limits
from kvsweep.cluster.vllm.state import Fleet, blocks_of, new_fleet, request_rows
from kvsweep.errors import InputError
from kvsweep.trace.model import Note, Trace, expand_runs, offsets_of

MOST_BLOCKS = 1 << 25
"""Most KV blocks of all workers together: 2.4 GB of tables."""


def resolved(config: ClusterConfig, profile: StepProfile) -> tuple[ClusterConfig, tuple[Note, ...]]:
    """Return `config` with what its vLLM workers leave to engine and profile, and what was assumed for that."""
    groups, notes = [], []
    for group in config.vllm:
        blocks = group.n_blocks
        if blocks is None:
            blocks = assumed_blocks(profile, config.page_size)
            said = f"n_blocks: {blocks}, (0.9 x GPU memory - weights)/({config.page_size} x KV bytes) of the profile"
            notes.append(Note("assumed", said, group.count))
        graphs = default_graphs(group.max_sequences) if group.graph_buckets is None else group.graph_buckets
        groups.append(replace(group, n_blocks=blocks, graph_buckets=graphs))
    return replace(config, vllm=tuple(groups)), tuple(notes)


def initial_fleet(trace: Trace, config: ClusterConfig, profile: StepProfile) -> Fleet:
    """Return the workers of a `resolved` file before the first arrival; raises InputError for what cannot be run."""
    if not len(trace):
        raise InputError("the trace has no requests; allowed: at least one")
    check_duration(trace)
    size, groups = config.page_size, config.vllm_workers()
    limits = [_limits(group, size) for group in groups]
    blocks = [each.n_blocks for each in limits]
    if sum(blocks) > MOST_BLOCKS:
        raise InputError(f"workers: n_blocks: {sum(blocks)} of all together; allowed: at most {MOST_BLOCKS}")
    arrival = np.round(trace.arrival * PICO).astype(np.int64)
    request = request_rows(arrival, trace.input_tokens, trace.output_tokens, size)
    request[:, col.SESSION] = trace.session
    request[:, col.DRAW : col.DRAW + 4] = draws(config, len(trace))
    later = turns(trace, config, LONGEST)
    let_wait(request, later)
    # Workers of a group have the same captured batch sizes, a part of all of them.
    captured = list(dict.fromkeys(group.graph_buckets or () for group in groups))
    times = step_times(profile, [batch for sizes in captured for batch in sizes])
    fleet = new_fleet(request, contents(trace, size, max(blocks) - 1), limits, times)
    ends = offsets_of(np.array([len(sizes) for sizes in captured]))[1:]
    for k, group in enumerate(groups):
        sizes = group.graph_buckets or ()
        end = int(ends[captured.index(sizes)])
        fleet.limits[k, c.GRAPHS_BEGIN], fleet.limits[k, c.GRAPHS_END] = end - len(sizes), end
    run = fleet.state.run
    for column, value in gateway_scalars(config, int(arrival[-1])).items():
        run[column] = value
    gateway_reals(fleet.state.real, config)
    pending = lists(trace, config, paged(trace, size), later, run)
    state = fleet.state._replace(lists=pending, windows=np.zeros(WINDOWS, np.int64))
    return fleet._replace(state=state)


def _limits(group: VllmGroup, size: int) -> Limits:
    assert group.n_blocks is not None
    return Limits(
        n_blocks=group.n_blocks, block_tokens=size, token_budget=group.token_budget,
        max_sequences=group.max_sequences, reserve_full=group.reserve_full, steps_in_flight=group.steps_in_flight,
        prefix_cache=group.prefix_cache,
    )  # fmt: skip


def contents(trace: Trace, size: int, usable: int) -> Ints:
    """Return the contents of the full blocks of `size` tokens of requests within `usable` blocks, one after the other.

    Blocks that the trace names alike are alike, after equal prefixes; those that reach into an answer are like no other
    where it names them of prompts alone.
    """
    whole = trace.input_tokens + trace.output_tokens
    named = np.where(trace.n_blocks > trace.n_prompt_blocks, whole, trace.input_tokens)
    found = paged(replace(trace, input_tokens=named), size)
    first = offsets_of(found.length)
    full, _ = blocks_of(whole, size, usable)
    own = np.maximum(full - named // size, 0)
    # Each request is its segments, then its answer: runs of consecutive numbers.
    starts = first[found.chain]
    lengths = np.where(np.repeat(full, np.diff(found.offsets)) > 0, found.length[found.chain], 0)
    ends = found.offsets[1:]
    starts = np.insert(starts, ends, first[-1] + offsets_of(own)[:-1])
    lengths = np.insert(lengths, ends, own)
    return expand_runs(starts, lengths)
