"""How fast cached blocks come back: the rate of each tier and of a mix of tiers (cost model ``linear``)."""

from __future__ import annotations

import math


def hbm_throughput(hbm_bandwidth: float, bytes_per_block: float) -> float:
    """Return the rate [block/s] at which blocks already in HBM are read: ``hbm_bandwidth / B``."""
    return hbm_bandwidth / bytes_per_block


def linked_throughput(bandwidth: float, link_bandwidth: float, bytes_per_block: float) -> float:
    """Return the rate [block/s] of a tier behind the GPU link: one block read, then moved, one after the other.

    ``1 / (B / bandwidth + B / link_bandwidth)``; a disk block takes no hop through DRAM.
    """
    return 1.0 / ((bytes_per_block / bandwidth) + (bytes_per_block / link_bandwidth))


def blended_throughput(blocks: tuple[float, float, float], throughputs: tuple[float, float, float]) -> float:
    """Return the rate [block/s] of restoring a residency: all blocks over the summed time of the tiers that hold any.

    Without hits it is the rate of the disk tier; infinite where all are where they are needed.
    """
    vram, dram, disk = blocks
    total = vram + dram + disk
    if total <= 0.0:
        return throughputs[2]
    seconds = 0.0
    if vram > 0.0:
        seconds += vram / throughputs[0]
    if dram > 0.0:
        seconds += dram / throughputs[1]
    if disk > 0.0:
        seconds += disk / throughputs[2]
    return total / seconds if seconds > 0.0 else math.inf
