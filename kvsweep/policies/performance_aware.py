"""Balance restore against recompute so that both end together; under SLO pressure scan the corner cases."""

from kvsweep.policies.context import INFINITY, Context

name = "performance_aware"
label = "IO-aware policy"
description = "Split so that restore and recompute finish together; best effort when that misses the SLO."
color = "#4f8cff"
order = 10
recomputes = "any"
modes = ("balanced", "best_effort")


Sides = tuple[float, float, float, float]
"""Hit and missing blocks [block], restore and recompute rate [block/s]: all that a request's time depends on."""


def decide(ctx: Context) -> tuple[float, str]:
    hits, misses, storage, recompute = sides = (
        ctx.hit_blocks, ctx.miss_blocks, ctx.storage_throughput, ctx.recompute_throughput,
    )  # fmt: skip
    if hits <= 0.0 or recompute <= 0.0:
        balanced = 0.0
    elif storage <= 0.0:
        balanced = hits
    else:
        balanced = ctx.total_blocks * recompute / (storage + recompute) - misses
    balanced, total = _faster(sides, balanced, (balanced, INFINITY))
    if ctx.violation(total) == 0.0:
        return balanced, "balanced"

    rate, target = ctx.request_rate, ctx.p95_seconds
    # Written out, not a loop: Numba leaves a loop over candidates rolled up, and the kernel four times as slow.
    best = _faster(sides, 0.0, (balanced, INFINITY))
    best = _faster(sides, hits, best)
    best = _faster(sides, balanced, best)
    # Where a limit is met exactly: GPU utilisation, GPU latency, storage utilisation, storage latency.
    best = _faster(sides, recompute / rate - misses, best)
    best = _faster(sides, target * recompute - misses, best)
    best = _faster(sides, hits - storage / rate, best)
    best = _faster(sides, hits - target * storage, best)
    return best[0], "best_effort"


def _faster(sides: Sides, candidate: float, best: tuple[float, float]) -> tuple[float, float]:
    """Return the faster of `candidate` and `best`, each as (k, total time T), the latter where they tie.

    That is also the one of least violation, then least time: no violation falls as T grows, by rounding either.
    Clamp and T are those of `Context` for ``any``, without its calls, which cost the scalar path as much again.
    """
    hits, misses, storage, recompute = sides
    k = 0.0 if candidate < 0.0 else (hits if candidate > hits else candidate)
    restored = (hits - k) / storage if storage > 0.0 else INFINITY
    computed = (misses + k) / recompute if recompute > 0.0 else INFINITY
    total = restored if restored > computed else computed
    return (k, total) if total < best[1] else best
