"""Made-up profiles and workloads for the tests of vLLM workers."""

from __future__ import annotations

import numpy as np

from kvsweep.cluster.vllm.serve import Arrival
from kvsweep.cluster.vllm.steptime import StepTimes


def step_times(**changed: object) -> StepTimes:
    """Return tables whose answers are easy: 1 ms and 10 µs a token, 1 µs a request, attention by tokens read."""
    chunk, prior, decodes, context = ([0.0, 64.0, 256.0], [0.0, 128.0, 512.0], [0.0, 2.0, 8.0], [0.0, 64.0, 512.0])
    grid = np.array(
        [[[[1e-8 * (q * (p + q / 2) + 8 * n * k) for k in context] for n in decodes] for p in prior] for q in chunk]
    )
    times = StepTimes(
        tokens=np.array([1.0, 256.0]),
        token_seconds=np.array([1.01e-3, 3.56e-3]),
        sequences=np.array([1.0, 8.0]),
        sequence_seconds=np.array([1e-6, 8e-6]),
        chunk=np.array(chunk),
        prior=np.array(prior),
        decodes=np.array(decodes),
        context=np.array(context),
        attention_seconds=grid.ravel(),
        skew_decodes=np.array([2.0, 4.0, 8.0]),
        skew_chunk=np.array([0.0, 16.0, 64.0]),
        skew=np.array([0.0, 0.4, 0.3, 0.2, 0.3, 0.2, 0.1, 0.2, 0.1]),
        graphs=np.array([1.0, 2.0, 4.0, 8.0]),
        scalars=np.array([1e-5, 2e-6, 4.0, 0.0, 512.0]),
    )
    return times._replace(**changed)


def workload(seed: int, count: int, shared: int = 3) -> list[Arrival]:
    """Return `count` requests of a few shared prefixes, four tokens a block, in bursts."""
    random = np.random.default_rng(seed)
    made: list[Arrival] = []
    keys = 10_000
    at = 0.0
    for _ in range(count):
        at += float(random.choice([0.0, 0.0, 0.001, 0.004]))
        prompt, output = int(random.integers(1, 60)), int(random.integers(1, 20))
        group = int(random.integers(shared))
        common = int(random.integers(0, prompt // 4 + 1))
        own = list(range(keys, keys + (prompt + output) // 4 - common))
        keys += len(own)
        made.append(Arrival(at, prompt, output, [group * 100 + i for i in range(common)] + own))
    return made
