"""Recompute the tail of the prefix, whose blocks sit in the slowest tiers, until restore and recompute balance.

Leaf-first eviction keeps the front of a prefix in the fastest tier, so the blocks taken are disk blocks first,
then DRAM, then HBM. The restore time falls along a line of slope 1/X in each tier and the recompute time rises
along one of slope 1/Y, so the balance is closed-form once the tier it falls into is known.
"""

from kvsweep.policies.context import Context

name = "slowest_tier_first"
label = "Slowest tier first"
description = "Recompute the tail of the prefix, slowest tier first, until restore and recompute finish together."
color = "#7a52c7"
order = 15
recomputes = "tail"
modes = ("tail_none", "tail_balanced")


def decide(ctx: Context) -> tuple[float, str]:
    recompute = ctx.recompute_throughput
    if recompute <= 0.0:
        return 0.0, "tail_none"
    vram_time = ctx.vram_hit_blocks / ctx.vram_throughput
    dram_time = ctx.dram_hit_blocks / ctx.dram_throughput
    disk_time = ctx.disk_hit_blocks / ctx.disk_throughput
    # What restoring takes longer than recomputing, with nothing reassigned.
    surplus = vram_time + dram_time + disk_time - ctx.miss_blocks / recompute
    if surplus <= 0.0:
        return 0.0, "tail_none"

    disk_swing = disk_time + ctx.disk_hit_blocks / recompute
    dram_swing = dram_time + ctx.dram_hit_blocks / recompute
    if surplus <= disk_swing:
        start, rest, throughput = 0.0, surplus, ctx.disk_throughput
    elif surplus <= disk_swing + dram_swing:
        start, rest, throughput = ctx.disk_hit_blocks, surplus - disk_swing, ctx.dram_throughput
    else:
        start, throughput = ctx.disk_hit_blocks + ctx.dram_hit_blocks, ctx.vram_throughput
        rest = surplus - disk_swing - dram_swing
    return ctx.clamp(start + rest / (1.0 / throughput + 1.0 / recompute)), "tail_balanced"
