"""The seeded pool of requests that decisions are timed on, spread over decades of size, rate and target."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from kvsweep.costs.deployment import Rates
from kvsweep.costs.request import request_context
from kvsweep.policies.context import Context


class Workload(NamedTuple):
    """One request of the pool."""

    total_blocks: int
    """Blocks needed [block], 1000 to 200 000."""
    miss_blocks: int
    """Blocks cached nowhere [block]."""
    request_rate: float
    """[1/s], 0.01 to 2."""
    p95_seconds: float
    """Latency target [s], 1 to 60."""


def draw_pool(size: int, seed: int) -> list[Workload]:
    """Return `size` workloads; a seed gives the same ones on every machine, a larger pool begins with a smaller."""
    generator = random.Random(seed)
    pool = []
    for _ in range(size):
        total = int(1000 * 200 ** generator.random())
        hit_ratio = generator.uniform(0, 1)
        missing = int(round(total * (1 - hit_ratio)))
        pool.append(Workload(total, missing, 0.01 * 200 ** generator.random(), generator.uniform(1, 60)))
    return pool


def contexts(
    pool: Sequence[Workload], rates: Rates, fractions: tuple[float, float, float], recomputes: str
) -> list[Context]:
    """Return the requests of `pool` on one deployment, as a policy that recomputes that side sees them."""
    return [
        request_context(
            rates, fractions, (float(work.total_blocks), float(work.miss_blocks)),
            work.request_rate, work.p95_seconds, recomputes,
        )
        for work in pool
    ]  # fmt: skip
