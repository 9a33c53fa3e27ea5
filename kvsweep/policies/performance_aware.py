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
    hits, misses = ctx.hit_blocks, ctx.miss_blocks
    storage, recompute = ctx.storage_throughput, ctx.recompute_throughput
    if hits <= 0.0 or recompute <= 0.0:
        balanced = 0.0
    elif storage <= 0.0:
        balanced = hits
    else:
        balanced = ctx.total_blocks * recompute / (storage + recompute) - misses
    balanced, total = _faster(hits, misses, storage, recompute, balanced, (balanced, INFINITY))
    if ctx.violation(total) == 0.0:
        return balanced, "balanced"

    rate, target = ctx.request_rate, ctx.p95_seconds
    # Written out, not a loop: Numba leaves a loop over candidates rolled up, and the kernel four times as slow.
    best = _faster(hits, misses, storage, recompute, 0.0, (balanced, INFINITY))
    best = _faster(hits, misses, storage, recompute, hits, best)
    best = _faster(hits, misses, storage, recompute, balanced, best)
    # Where a limit is met exactly: GPU utilisation, GPU latency, storage utilisation, storage latency.
    best = _faster(hits, misses, storage, recompute, recompute / rate - misses, best)
    best = _faster(hits, misses, storage, recompute, target * recompute - misses, best)
    best = _faster(hits, misses, storage, recompute, hits - storage / rate, best)
    best = _faster(hits, misses, storage, recompute, hits - target * storage, best)
    return best[0], "best_effort"


def _faster(
    hits: float, misses: float, storage: float, recompute: float, candidate: float, best: tuple[float, float]
) -> tuple[float, float]:
    """Return the faster of `candidate` and `best`, each as (k, total time T), the latter where they tie.

    That is also the one of least violation, then least time: no violation falls as T grows, by rounding either.
    Of a request, its time depends on hit and missing blocks [block], and the rates of restore and recompute [block/s].
    Clamp and T are those of `Context` for ``any``, without its calls, which cost the scalar path as much again.
    """
    k = 0.0 if candidate < 0.0 else (hits if candidate > hits else candidate)
    restored = (hits - k) / storage if storage > 0.0 else INFINITY
    computed = (misses + k) / recompute if recompute > 0.0 else INFINITY
    total = restored if restored > computed else computed
    return (k, total) if total < best[1] else best
