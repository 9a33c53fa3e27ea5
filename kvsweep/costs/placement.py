"""Where the hit blocks of a prompt live: capacities of the tiers and the residency they lead to.

Source: the placement rules of KVC-TierSim (HotStorage '26, doi 10.1145/3837053.3837336).
"""

from __future__ import annotations

import math

TIERS = ("vram", "dram", "disk")
"""Memory tiers from fastest to slowest, the order of every `tier` dimension."""

BYTES_PER_WEIGHT = 2.0  # bf16


def miss_blocks(total_blocks: float, hit_percent: float) -> float:
    """Return the blocks [block] of a prompt that no tier holds, rounded half to even.

    `hit_percent` is 100 times the requested hit ratio, see `hit_percent`.
    """
    return float(round(total_blocks * (100.0 - hit_percent) / 100.0))


def hit_percent(hit_ratio: float) -> float:
    """Return a hit ratio [1] in percent, rounded to 9 decimals so that 0.07 means 7 and not 7.000000000000001."""
    return round(100.0 * hit_ratio, 9)


def vram_capacity_blocks(hbm_capacity: float, gpu_count: float, model_params: float, bytes_per_block: float) -> float:
    """Return the KV blocks [block] that fit beside one copy of the bf16 weights; 0 where the weights fill the HBM."""
    free = hbm_capacity * gpu_count - BYTES_PER_WEIGHT * model_params
    return (free if free > 0.0 else 0.0) / bytes_per_block


def residency(
    hit_blocks: float,
    capacities: tuple[float, float],
    fractions: tuple[float, float, float],
) -> tuple[float, float, float]:
    """Return the hit blocks [block] living in (vram, dram, disk).

    Parameters
    ----------
    capacities
        Blocks [block] that fit in vram and dram.
    fractions
        Share [1] of each tier, as `normalized` returns them; NaN in the first place means ``auto``: fill vram,
        then dram, and leave the rest on disk even past its capacity.
    """
    if math.isnan(fractions[0]):
        in_vram = hit_blocks if hit_blocks < capacities[0] else capacities[0]
        rest = hit_blocks - in_vram
        in_dram = rest if rest < capacities[1] else capacities[1]
        return in_vram, in_dram, rest - in_dram
    return hit_blocks * fractions[0], hit_blocks * fractions[1], hit_blocks * fractions[2]


def normalized(vram: float, dram: float, disk: float) -> tuple[float, float, float]:
    """Return placement weights [1] as shares that sum to 1: negative ones count as 0, all zero means all on disk."""
    weights = max(0.0, vram), max(0.0, dram), max(0.0, disk)
    total = sum(weights)
    if total <= 0.0:
        return 0.0, 0.0, 1.0
    return weights[0] / total, weights[1] / total, weights[2] / total


def tier_utilization(resident_blocks: float, capacity_blocks: float) -> float:
    """Return the used share [1] of a tier: 0 for nothing in nothing, inf for something in nothing."""
    if capacity_blocks <= 0.0:
        return 0.0 if resident_blocks <= 0.0 else math.inf
    return resident_blocks / capacity_blocks
