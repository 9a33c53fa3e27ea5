"""Compute from the front while loading from the back, until both meet; what is not cached comes after.

Source: Cake (arXiv 2410.03065). With a serial suffix the request takes ``max(S(k, H), C(0, k)) + C(H, N)``: one side
falls and the other rises with k, so the best k is where they cross, ``[-(a + s) + sqrt((a + s)^2 + 2 b s H)] / b`` in
one tier, and in several the crossing in the tier where it lies.

Front tokens leave the fastest tier first, so the restore time S falls along a line in each tier, and computing the
front takes ``C(0, n) = a n + b n^2 / 2``. In the tier where they meet, with S0 left at its first token n0 and s
seconds a token, ``b n^2 / 2 + (a + s) n = S0 + s n0 - wait``, whose root is written ``2 R / (a + s + sqrt((a + s)^2 +
2 b R))``: it needs no other form for b = 0.
"""

import math

from kvsweep.policies.context import Context

name = "cake"
label = "Cake"
description = "Compute the front while the rest is loaded, until both meet."
color = "#b5651d"
order = 17
recomputes = "front"
models = "positional"
modes = ("met_in_prefix", "all_restored")


def decide(ctx: Context) -> tuple[float, str]:
    k = crossing(ctx, 0.0)
    return (k, "met_in_prefix") if k > 0.0 else (0.0, "all_restored")


def crossing(ctx: Context, wait: float) -> float:
    """Return the front k [block] at which ``S(k, H) = C(0, k) + wait``, clamped to what is cached.

    `wait` [s] is computed beside the front, too; before the front has begun S is longer, or k is 0.
    """
    vram, dram = ctx.vram_hit_blocks, ctx.vram_hit_blocks + ctx.dram_hit_blocks
    begin, throughput = dram, ctx.disk_throughput
    if ctx.restore_seconds(vram) <= ctx.prefix_seconds(vram) + wait:
        begin, throughput = 0.0, ctx.vram_throughput
    elif ctx.restore_seconds(dram) <= ctx.prefix_seconds(dram) + wait:
        begin, throughput = vram, ctx.dram_throughput
    return ctx.clamp(meeting(ctx, begin, throughput, wait))


def meeting(ctx: Context, begin: float, throughput: float, wait: float) -> float:
    """Return where S and C + wait meet [block] on the line of the tier that begins at block `begin`."""
    tokens = ctx.tokens_per_block
    per_token = 1.0 / (throughput * tokens)
    rest = ctx.restore_seconds(begin) + per_token * begin * tokens - wait
    if rest <= 0.0:
        return 0.0
    slope = ctx.token_seconds + per_token
    return 2.0 * rest / (slope + math.sqrt(slope * slope + 2.0 * ctx.token_pair_seconds * rest)) / tokens
