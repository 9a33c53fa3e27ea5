"""Restore what arrives in time and recompute the rest: the tail of the hit, as an engine does that gives up waiting.

Source: the timeout of SGLang's HiCache prefetch (``prefetch_timeout_base`` 2 s and 0.1 s for each 1024 tokens, at most
30 s). Prefixes arrive from their front, in the order of the tiers; after ``min(30, 2 + 0.1 n / 1024)`` seconds the
engine computes what has not come.
"""

from kvsweep.policies.context import Context

name = "hicache_timeout"
label = "HiCache timeout"
description = "Recompute the tail of the hits that has not arrived by the engine's timeout."
color = "#5f7f95"
order = 26
recomputes = "tail"
models = "positional"
modes = ("all_arrived", "timed_out")


def decide(ctx: Context) -> tuple[float, str]:
    tokens = ctx.hit_blocks * ctx.tokens_per_block
    left = min(30.0, 2.0 + 0.1 * tokens / 1024.0)
    if ctx.restore_seconds(0.0) <= left:
        return 0.0, "all_arrived"
    vram = min(ctx.vram_hit_blocks, left * ctx.vram_throughput)
    # What is in HBM needs no setup. In the linear model it counts for nothing, and is none.
    left = max(0.0, left - ctx.vram_hit_blocks / ctx.vram_throughput - ctx.setup_seconds)
    dram = min(ctx.dram_hit_blocks, left * ctx.dram_throughput)
    left = max(0.0, left - ctx.dram_hit_blocks / ctx.dram_throughput)
    disk = min(ctx.disk_hit_blocks, left * ctx.disk_throughput)
    return ctx.clamp(ctx.hit_blocks - vram - dram - disk), "timed_out"
