"""Path models: at which rate KV blocks come from DRAM or disk to the GPUs.

``summed`` moves a block over one hop after the other (`restore.linked_throughput`), as the reference does.
``pipelined`` keeps all hops busy at once, so that the slowest sets the rate: every GPU has a link of its own, channels
of DRAM add up, and a copy of z bytes takes ``t0 + z / BW`` on a link, which small blocks feel. Blocks in HBM are where
they are needed.
"""

from __future__ import annotations

PATH_MODELS = ("summed", "pipelined")


def link_rate(bandwidth: float, latency: float, gpu_count: float, bytes_per_block: float) -> float:
    """Return the rate [byte/s] of the links of `gpu_count` GPUs together, each copying its part of every block."""
    part = bytes_per_block / gpu_count
    return bytes_per_block / (latency + part / bandwidth)


def pipelined_throughput(bandwidth: float, link: float, bytes_per_block: float) -> float:
    """Return the rate [block/s] of a tier read at `bandwidth` [byte/s] behind links of `link` [byte/s] together."""
    return min(bandwidth, link) / bytes_per_block
