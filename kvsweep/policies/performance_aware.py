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
    # Written out, not a loop: Numba leaves a loop over candidates rolled up, and the kernel four times as slow.
    best = _better(ctx, 0.0, (balanced, INFINITY, INFINITY))
    best = _better(ctx, hits, best)
    best = _better(ctx, balanced, best)
    # Where a limit is met exactly: GPU utilisation, GPU latency, storage utilisation, storage latency.
    best = _better(ctx, recompute / rate - misses, best)
    best = _better(ctx, target * recompute - misses, best)
    best = _better(ctx, hits - storage / rate, best)
    best = _better(ctx, hits - target * storage, best)
    return best[0], "best_effort"


def _better(ctx: Context, candidate: float, best: tuple[float, float, float]) -> tuple[float, float, float]:
    """Return the better of `candidate` and `best`, each as (k, violation, time): less violation, then less time."""
    reassigned = ctx.clamp(candidate)
    time = ctx.total_seconds(reassigned)
    violation = ctx.violation(time)
    if violation < best[1] or (violation == best[1] and time < best[2]):
        return reassigned, violation, time
    return best
