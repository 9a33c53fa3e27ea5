"""Small sweeps the figure, accessor and comparison tests share."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import xarray as xr

import kvsweep

ALL = ("performance_aware", "slowest_tier_first", "default_policy", "all_compute")


@cache
def small() -> xr.Dataset:
    """Return a sweep with every verdict in it: 3 hit ratios, 4 rates, 5 latency targets."""
    return kvsweep.sweep(
        stack="h200", placement="auto", total_blocks=200_000, hit_ratio="0.4:0.8:0.2",
        request_rate="0.01:0.07:0.02", p95_seconds="5:65:15", policies=ALL,
    )  # fmt: skip


@cache
def wide() -> xr.Dataset:
    """Return a sweep over stacks and placements whose maps have too many cells for letters."""
    return kvsweep.sweep(
        stack="h200,a5000", placement="disk,auto", total_blocks=50_000, hit_ratio=0.5,
        request_rate="0.01:0.30:0.01", p95_seconds="5:60:5", policies=ALL,
    )  # fmt: skip


def policy_file(folder: Path, name: str, label: str, color: str = "#ffe600") -> Path:
    """Return a policy file that recomputes a third of the hits."""
    path = folder / f"{name}.py"
    path.write_text(
        f"name, label, color = {name!r}, {label!r}, {color!r}\n"
        "description, order, recomputes, modes = 'a third', 25, 'any', ('third',)\n\n\n"
        "def decide(ctx):\n    return ctx.hit_blocks / 3.0, 'third'\n"
    )
    return path
