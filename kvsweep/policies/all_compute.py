"""Recompute the whole prompt, as if nothing were cached."""

from kvsweep.policies.context import Context

name = "all_compute"
label = "Recompute"
description = "Recompute everything."
color = "#33bf59"
order = 30
recomputes = "any"
modes = ("fixed_all_compute",)


def decide(ctx: Context) -> tuple[float, str]:
    return ctx.hit_blocks, "fixed_all_compute"
