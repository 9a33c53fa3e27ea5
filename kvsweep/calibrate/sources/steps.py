"""A step profile as a source of service models: the times it gives for prefill and decode steps of a cluster's workers.

Kernels were measured, and not on that engine: there is no host code in them, prefill runs eagerly and decode captured.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kvsweep.calibrate.sources.operations import Measured, Operation
from kvsweep.calibrate.sources.splitwise import Worker
from kvsweep.cluster.inputs.step_profile import read_step_profile, step_times
from kvsweep.cluster.vllm import columns as c
from kvsweep.cluster.vllm.steptime import StepTimes, step_picoseconds
from kvsweep.errors import InputError

CHUNKS = tuple(size for power in range(6, 14) for size in (1 << power, 3 << (power - 1)))[:-1]
BEFORE = (0, 1024, 4096, 16384, 65536)
BATCHES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
CONTEXTS = (256, 1024, 4096, 16384, 65536)


def read_steps(path: Path, worker: Worker | None) -> list[Measured]:
    """Return the steps that a step profile gives inside its measured domain; raises InputError for another worker's."""
    profile = read_step_profile(path)
    if worker is not None and (profile.model, profile.tp) != (worker.model, worker.tp):
        raise InputError(
            f"{path}: {profile.model} on {profile.tp} GPUs; allowed: --model {profile.model} --tp {profile.tp}"
        )
    attention = profile.attention
    ends = attention.measured_to or tuple(axis[-1] for axis in attention.axes)
    most = min(ends[0], profile.tokens.axes[0][-1])
    prompts = [(q, k) for q in CHUNKS if q <= most for k in BEFORE if k <= ends[1]]
    decodes = [(n, k) for n in BATCHES if n <= min(ends[2], most) for k in CONTEXTS if k <= ends[3]]
    eager = step_times(profile)
    captured = step_times(profile, [n for n in BATCHES if n <= most])
    note = "; ".join(text for text in (f"steps of {profile.name}", profile.note) if text)
    boundary = f"{profile.tokens.boundary}; attention; no host code"
    return [
        Measured("prefill", tuple(_prompt(eager, q, k) for q, k in prompts), boundary, path, note),
        Measured("decode", tuple(_decode(captured, n, k) for n, k in decodes), boundary, path, note),
    ]


def _prompt(times: StepTimes, tokens: int, before: int) -> Operation:
    step = np.zeros(c.N_STEP, np.int64)
    step[[c.TOKENS, c.CHUNK, c.ROWS]] = tokens, tokens, 1
    step[c.PRIOR], step[c.PAIRS] = before, tokens * (2 * before + tokens)
    return Operation(tokens, before, step_picoseconds(times, times.graphs, step) * 1e-12)


def _decode(times: StepTimes, requests: int, context: int) -> Operation:
    step = np.zeros(c.N_STEP, np.int64)
    step[[c.TOKENS, c.DECODES, c.ROWS]] = requests
    step[c.CONTEXT], step[c.LONGEST] = requests * context, context
    return Operation(requests, requests * context, step_picoseconds(times, times.graphs, step) * 1e-12)
