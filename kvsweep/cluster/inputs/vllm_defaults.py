"""What vLLM makes of a worker's configuration unless told otherwise: its KV blocks, the batch sizes it captures."""

from __future__ import annotations

from kvsweep.cluster.inputs.step_profile import StepProfile
from kvsweep.errors import InputError

MEMORY_SHARE = 0.9
"""Share of the GPU's memory the engine takes unless told otherwise (gpu_memory_utilization)."""
MOST_GRAPHS = 512
STATED = "KV blocks (validate: --blocks, cluster file: n_blocks)"


def assumed_blocks(profile: StepProfile, block_tokens: int, memory: float | None = None) -> int:
    """Return floor((0.9·memory − weights)/(block·KV bytes)) [blocks]; raises InputError for an unknown memory."""
    known = float(memory or profile.memory_bytes) * profile.tp
    if not known:
        raise InputError(f"{profile.name}: memory_bytes: not known, nor num_gpu_blocks; allowed: {STATED}")
    left = MEMORY_SHARE * known - profile.weights_bytes
    blocks = int(left // (block_tokens * profile.kv_bytes_per_token))
    if blocks < 2:
        raise InputError(f"{profile.name}: the weights leave no room for KV; allowed: more memory, or {STATED}")
    return blocks


def default_graphs(max_sequences: int) -> tuple[int, ...]:
    """Return the batch sizes the engine captures by itself, up to min(512, 2 x sequences)."""
    largest = min(MOST_GRAPHS, 2 * max_sequences)
    return tuple(size for size in (1, 2, 4, *range(8, 257, 8), *range(272, MOST_GRAPHS + 1, 16)) if size <= largest)
