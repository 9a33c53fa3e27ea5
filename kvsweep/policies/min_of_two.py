"""Restore all or recompute all, whichever takes less time: what an engine does that never splits a prefix.

Restoring takes ``t0 + s H`` and recomputing ``C(0, H)``. Long prefixes favour restoring, since attention makes a token
the dearer the later it stands: the break-even length is the least n with ``t0 + s n <= a n + b n^2 / 2``.
"""

from kvsweep.policies.context import Context

name = "min_of_two"
label = "Shorter of the two"
description = "Restore all hits or recompute all, whichever takes less time."
color = "#8c6d1f"
order = 22
recomputes = "front"
models = "positional"
modes = ("restore_all", "recompute_all")


def decide(ctx: Context) -> tuple[float, str]:
    if ctx.restore_seconds(0.0) < ctx.prefix_seconds(ctx.hit_blocks):
        return 0.0, "restore_all"
    return ctx.hit_blocks, "recompute_all"
