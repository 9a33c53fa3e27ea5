"""What vLLM makes of a worker's configuration unless told otherwise: its KV blocks, the batch sizes it captures."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from kvsweep.catalog.load import load
from kvsweep.cluster.inputs.step_profile import StepProfile
from kvsweep.costs.memory import MEMORY_UTILIZATION, RUNTIME_BYTES, Fit, Step, usual_step, what_fits
from kvsweep.errors import InputError

MOST_GRAPHS = 512
STATED = "KV blocks (validate: --blocks, cluster file: n_blocks)"


def assumed_fit(profile: StepProfile, memory: float | None = None, step: Step | None = None) -> Fit:
    """Return what fits on a worker; raises InputError where nobody knows the memory [byte] of its GPUs.

    Room for steps is that of the catalog's model; for others only what the runtime needs is taken off.
    """
    known = float(memory or profile.memory_bytes)
    if not known:
        raise InputError(f"{profile.name}: memory_bytes: not known, nor num_gpu_blocks; allowed: {STATED}")
    model = load().models.get(profile.model)
    if model is not None and model.shape is not None:
        return replace(what_fits(model, known, profile.tp, step=step), weights=profile.weights_bytes / profile.tp)
    return Fit(
        profile.tp, known, MEMORY_UTILIZATION, profile.weights_bytes / profile.tp, RUNTIME_BYTES,
        profile.kv_bytes_per_token / profile.tp, 0.0, inf, step or usual_step(known),
    )  # fmt: skip


def assumed_blocks(
    profile: StepProfile, block_tokens: int, memory: float | None = None, step: Step | None = None
) -> int:
    """Return the KV blocks of `block_tokens` [block] of what fits; raises InputError for an unknown memory."""
    blocks = int(assumed_fit(profile, memory, step).tokens // block_tokens)
    if blocks < 2:
        raise InputError(f"{profile.name}: the weights leave no room for KV; allowed: more memory, or {STATED}")
    return blocks


def default_graphs(max_sequences: int) -> tuple[int, ...]:
    """Return the batch sizes the engine captures by itself, up to min(512, 2 x sequences)."""
    largest = min(MOST_GRAPHS, 2 * max_sequences)
    return tuple(size for size in (1, 2, 4, *range(8, 257, 8), *range(272, MOST_GRAPHS + 1, 16)) if size <= largest)
