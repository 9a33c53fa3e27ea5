"""Recompute the tokens that cost less to compute than to restore, which are the first: no overlap counted.

One after the other, S(k, H) + C(0, k) is least where the next token costs as much either way, ``a + b p = s``:
recompute before ``p* = (s - a) / b``, restore after. In several tiers the least of those points and of where tiers
end.
"""

from kvsweep.policies.context import INFINITY, Context

name = "positional_breakeven"
label = "Break-even position"
description = "Recompute the front up to the token that costs as much to compute as to restore."
color = "#c23b80"
order = 24
recomputes = "front"
models = "positional"
modes = ("restore_all", "recompute_all", "split")


CANDIDATES = 7


def decide(ctx: Context) -> tuple[float, str]:
    best, total = 0.0, INFINITY
    # A loop, not written out: what it inlines is compiled once.
    for index in range(CANDIDATES):
        blocks = candidate(ctx, index)
        seconds = ctx.restore_seconds(blocks) + ctx.prefix_seconds(blocks)
        if seconds < total:
            best, total = blocks, seconds
    if best == 0.0:
        return 0.0, "restore_all"
    return (best, "recompute_all") if best == ctx.hit_blocks else (best, "split")


def candidate(ctx: Context, index: int) -> float:
    """Return a front [block] that may be the cheapest, by its number: where a tier ends or breaks even."""
    vram, dram = ctx.vram_hit_blocks, ctx.vram_hit_blocks + ctx.dram_hit_blocks
    if index == 0:
        return 0.0
    if index <= 2:
        return vram if index == 1 else dram
    if index == 3 or ctx.token_pair_seconds <= 0.0:
        return ctx.hit_blocks
    begin, end, throughput = 0.0, vram, ctx.vram_throughput
    if index == 5:
        begin, end, throughput = vram, dram, ctx.dram_throughput
    elif index == 6:
        begin, end, throughput = dram, ctx.hit_blocks, ctx.disk_throughput
    per_token = 1.0 / (throughput * ctx.tokens_per_block)
    blocks = (per_token - ctx.token_seconds) / (ctx.token_pair_seconds * ctx.tokens_per_block)
    return begin if blocks < begin else (end if blocks > end else blocks)
