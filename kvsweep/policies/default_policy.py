"""Restore every hit, recompute only the misses."""

from kvsweep.policies.context import Context

name = "default_policy"
label = "Restore"
description = "Restore all hits, recompute only the misses."
color = "#0e8f8f"
order = 20
recomputes = "any"
modes = ("fixed_default",)


def decide(ctx: Context) -> tuple[float, str]:
    return 0.0, "fixed_default"
