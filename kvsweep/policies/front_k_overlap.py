"""Recompute the front that makes the request shortest, whatever the overlap: the least over all points it can lie at.

With `layerwise` overlap ``T = max(S, C) + min(S, C) / L``, ``C = C(0, k) + C(H, N)``. Where restoring is longer, T
falls until a token costs L times its restoring, ``a + b n = s L``; where computing is longer, until ``a + b n = s /
L``. Both pieces are convex in a tier, so the least lies at such a point, at the balance ``S = C``, where a tier ends,
or at 0 or H; with s < a/L or s > a L the balance loses to an end. `ideal` has its least at the balance, ``[-(a + s) +
sqrt((a + s)^2 + 2 b max(0, s H - C(H, N)))] / b`` in one tier, and `serial` where the front alone takes as long as
restoring.
"""

from kvsweep.policies.cake import crossing
from kvsweep.policies.context import INFINITY, LAYERWISE, SERIAL, Context

name = "front_k_overlap"
label = "Best front"
description = "Recompute the front of the prefix that makes the request shortest under its overlap."
color = "#12395b"
order = 16
recomputes = "front"
models = "positional"
modes = ("front_none", "front_all", "front_balanced", "front_slower_side")


CANDIDATES = 11


def decide(ctx: Context) -> tuple[float, str]:
    wait = 0.0
    if ctx.overlap != SERIAL:
        wait = ctx.prefix_seconds(ctx.total_blocks) - ctx.prefix_seconds(ctx.hit_blocks)
    balanced = crossing(ctx, wait)
    best, total = 0.0, INFINITY
    # A loop, not written out: what it inlines is compiled once.
    for index in range(CANDIDATES):
        blocks = ctx.clamp(candidate(ctx, index, balanced))
        seconds = ctx.total_seconds(blocks)
        if seconds < total:
            best, total = blocks, seconds
    if best == 0.0:
        return 0.0, "front_none"
    if best == ctx.hit_blocks:
        return best, "front_all"
    return (best, "front_balanced") if best == balanced else (best, "front_slower_side")


def candidate(ctx: Context, index: int, balanced: float) -> float:
    """Return a front [block] that may be the best, by its number: an end, the balance, or where T is level."""
    if index == 0:
        return 0.0
    if index == 1:
        return ctx.hit_blocks
    if index == 2:
        return ctx.vram_hit_blocks
    if index == 3:
        return ctx.vram_hit_blocks + ctx.dram_hit_blocks
    if index == 4 or ctx.overlap != LAYERWISE or ctx.token_pair_seconds <= 0.0:
        return balanced
    throughput = ctx.vram_throughput
    if index >= 9:
        throughput = ctx.disk_throughput
    elif index >= 7:
        throughput = ctx.dram_throughput
    turns = ctx.layers if index % 2 == 0 else 1.0 / ctx.layers
    per_token = turns / (throughput * ctx.tokens_per_block)
    return (per_token - ctx.token_seconds) / (ctx.token_pair_seconds * ctx.tokens_per_block)
