"""What a decision means for one request: times, utilisations and the SLO verdict (the scalar path)."""

from __future__ import annotations

from dataclasses import dataclass

from kvsweep.policies.context import Context
from kvsweep.policies.registry import Policy


@dataclass(frozen=True)
class Outcome:
    """One policy's decision for one request and all that follows from it.

    Ratios, utilisations and violations are dimensionless [1], times in [s], blocks in [block]; `success_rate`
    is 1.0 where the SLO is met and 0.0 where it is not.
    """

    policy: str
    reassigned_hit_blocks: float
    decision_mode: str
    meets_slo: bool
    success_rate: float
    slo_margin: float
    latency_ratio: float
    gpu_utilization: float
    storage_utilization: float
    latency_violation: float
    gpu_violation: float
    storage_violation: float
    max_violation: float
    storage_blocks: float
    recompute_blocks: float
    storage_time: float
    recompute_time: float
    total_time: float


def outcome(policy: Policy, ctx: Context) -> Outcome:
    """Return the outcome of `policy` for the request `ctx`, whose `recomputes` must be the policy's own."""
    reassigned, mode = policy.choose(ctx)
    allocation = ctx.allocation(reassigned)
    latency_ratio = allocation.total_time / ctx.p95_seconds
    gpu_utilization = ctx.request_rate * allocation.recompute_time
    storage_utilization = ctx.request_rate * allocation.storage_time
    worst = ctx.max_violation(reassigned)
    return Outcome(
        policy=policy.name,
        reassigned_hit_blocks=reassigned,
        decision_mode=mode,
        meets_slo=worst == 0.0,
        success_rate=float(worst == 0.0),
        slo_margin=ctx.p95_seconds - allocation.total_time,
        latency_ratio=latency_ratio,
        gpu_utilization=gpu_utilization,
        storage_utilization=storage_utilization,
        latency_violation=max(0.0, latency_ratio - 1.0),
        gpu_violation=max(0.0, gpu_utilization - 1.0),
        storage_violation=max(0.0, storage_utilization - 1.0),
        max_violation=worst,
        storage_blocks=allocation.storage_blocks,
        recompute_blocks=allocation.recompute_blocks,
        storage_time=allocation.storage_time,
        recompute_time=allocation.recompute_time,
        total_time=allocation.total_time,
    )
