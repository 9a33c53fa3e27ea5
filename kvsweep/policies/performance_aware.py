"""Balance restore against recompute so that both end together; under SLO pressure scan the corner cases."""

from kvsweep.policies.context import INFINITY, Context

name = "performance_aware"
label = "IO-aware policy"
description = "Split so that restore and recompute finish together; best effort when that misses the SLO."
color = "#4f8cff"
order = 10
recomputes = "any"
modes = ("balanced", "best_effort")


def decide(ctx: Context) -> tuple[float, str]:
    storage, recompute = ctx.storage_throughput, ctx.recompute_throughput
    misses, hits = ctx.miss_blocks, ctx.hit_blocks
    if hits <= 0.0 or recompute <= 0.0:
        balanced = 0.0
    elif storage <= 0.0:
        balanced = hits
    else:
        balanced = ctx.clamp(ctx.total_blocks * recompute / (storage + recompute) - misses)
    if ctx.max_violation(balanced) == 0.0:
        return balanced, "balanced"

    rate, target = ctx.request_rate, ctx.p95_seconds
    best, least_violation, least_time = balanced, INFINITY, INFINITY
    # Where a limit is met exactly: GPU utilisation, GPU latency, storage utilisation, storage latency.
    gpu_limits = recompute / rate - misses, target * recompute - misses
    storage_limits = hits - storage / rate, hits - target * storage
    for candidate in (0.0, hits, balanced, *gpu_limits, *storage_limits):
        reassigned = ctx.clamp(candidate)
        allocation = ctx.allocation(reassigned)
        violation = ctx.violation(allocation)
        if violation < least_violation or (violation == least_violation and allocation.total_time < least_time):
            best, least_violation, least_time = reassigned, violation, allocation.total_time
    return best, "best_effort"
