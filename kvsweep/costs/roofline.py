"""Rooflines: of a stack over block counts, and of restoring over where a token stands.

The first is what computing takes, and computing with the cache read through its tiers. Source: the roofline and
permutation plots of KVC-TierSim (HotStorage '26, doi 10.1145/3837053.3837336). Arrays in, arrays out: figures
broadcast, so that one call evaluates 1764 stacks. The second asks of every token what is sooner: computing it, which
costs the more the later it stands, or restoring its KV over a path. Restoring wins above the bandwidth ``kappa / (a +
b p)``; the FLOPs of a token for each byte of its KV are its intensity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvsweep.catalog.load import Catalog
from kvsweep.costs.deployment import DEFAULT_MODEL, Deployment
from kvsweep.costs.placement import vram_capacity_blocks
from kvsweep.costs.recompute import seconds_per_token

Array = NDArray[np.float64]
Figure = float | Array

BLOCKS: tuple[float, ...] = (500, 16_000, 62_500, 64_000, 128_000, 200_000, 400_000)
"""Block counts [block] the permutations are pooled over."""

PERMUTED_GPUS = ("H200", "H100", "A100", "RTX6000", "V100", "A5000")
PERMUTED_DRAMS = ("DDR5-6000", "DDR5-7200", "DDR5-5600", "DDR4-3200", "DDR4-2133", "DDR3-1600")
PERMUTED_DISKS = ("HDD", "X110", "M550", "NVMe980", "NVMeT700", "NVMeT700R0", "NVMeT700R5")
PERMUTED_LINKS = ("PCIe3", "PCIe4", "PCIe5", "NVLink3", "NVLink4", "NVLink5", "NVLink6")
PERMUTED_DRAM_COUNT = 4.0


class Machine(NamedTuple):
    """What a roofline needs, each a number or arrays that broadcast: capacities [block], bandwidths [byte/s]."""

    vram_blocks: Figure
    dram_blocks: Figure
    hbm_bandwidth: Figure
    dram_bandwidth: Figure
    disk_bandwidth: Figure
    link_bandwidth: Figure
    block_seconds: Figure
    """Time [s] of computing one block."""
    bytes_per_block: float


def machine(deployment: Deployment) -> Machine:
    """Return the roofline figures of a deployment."""
    vram, dram, _ = deployment.capacities()
    token = seconds_per_token(deployment.model_params, deployment.peak_flops, deployment.gpu_count, deployment.gpu_eta)
    return Machine(
        vram, dram, deployment.hbm_bandwidth, deployment.dram_bandwidth, deployment.disk_bandwidth,
        deployment.link_bandwidth, deployment.tokens_per_block * token, deployment.bytes_per_block,
    )  # fmt: skip


def permuted_machines(catalog: Catalog) -> Machine:
    """Return all stacks of 6 GPUs, 6 DRAM, 7 disks and 7 links on open axes (gpu, dram, disk, link, 1), blocks last."""
    gpus = [catalog.part("gpus", key, "gpu") for key in PERMUTED_GPUS]
    drams = [catalog.part("drams", key, "dram") for key in PERMUTED_DRAMS]
    disks = [catalog.part("disks", key, "disk") for key in PERMUTED_DISKS]
    links = [catalog.part("links", key, "link") for key in PERMUTED_LINKS]
    params, size = DEFAULT_MODEL["model_params"], DEFAULT_MODEL["bytes_per_block"]
    tokens, eta = DEFAULT_MODEL["tokens_per_block"], DEFAULT_MODEL["gpu_eta"]

    def along(axis: int, figures: Sequence[float]) -> Array:
        return np.array(figures).reshape([-1 if dim == axis else 1 for dim in range(5)])

    return Machine(
        along(0, [vram_capacity_blocks(gpu.hbm_capacity, 1.0, params, size) for gpu in gpus]),
        along(1, [dram.capacity * PERMUTED_DRAM_COUNT / size for dram in drams]),
        along(0, [gpu.hbm_bandwidth for gpu in gpus]),
        along(1, [dram.bandwidth for dram in drams]),
        along(2, [disk.bandwidth for disk in disks]),
        along(3, [link.bandwidth for link in links]),
        along(0, [tokens * seconds_per_token(params, gpu.peak_flops, 1.0, eta) for gpu in gpus]),
        size,
    )


def compute_seconds(blocks: ArrayLike, of: Machine) -> Array:
    """Return the time [s] of computing `blocks` [block]: arithmetic, or memory where that takes longer.

    ``max(n t t_tok, min(n, V) B/hbm + max(0, n - V) B/link)``: V blocks fit in HBM, the rest crosses the link.
    """
    n = np.asarray(blocks, dtype=np.float64)
    in_vram = np.minimum(n, of.vram_blocks)
    memory = in_vram * of.bytes_per_block / of.hbm_bandwidth
    memory = memory + (n - in_vram) * of.bytes_per_block / of.link_bandwidth
    return np.asarray(np.maximum(n * of.block_seconds, memory))


def storage_compute_seconds(blocks: ArrayLike, of: Machine) -> Array:
    """Return the time [s] of computing `blocks` [block] and then reading them all through the tiers.

    ``n t t_tok + v B/hbm + d B/min(dram, link) + k B/min(disk, link)`` with the blocks filling HBM (v), then DRAM (d)
    and the rest on disk (k). The two parts are added although real engines overlap them, and nothing of the
    computing is saved by what is read: as published, an upper curve.
    """
    n = np.asarray(blocks, dtype=np.float64)
    in_vram = np.minimum(n, of.vram_blocks)
    in_dram = np.minimum(n - in_vram, of.dram_blocks)
    on_disk = n - in_vram - in_dram
    seconds = in_vram * of.bytes_per_block / of.hbm_bandwidth
    seconds = seconds + in_dram * of.bytes_per_block / np.minimum(of.dram_bandwidth, of.link_bandwidth)
    seconds = seconds + on_disk * of.bytes_per_block / np.minimum(of.disk_bandwidth, of.link_bandwidth)
    return np.asarray(n * of.block_seconds + seconds)


class BreakEven(NamedTuple):
    """From where on restoring over a path pays: its rate [byte/s] and fixed time [s], and positions [token].

    `position` is the first token that takes no longer to restore than to compute, `length` the least prompt that does
    as a whole; both infinite where none does.
    """

    bytes_per_s: float
    setup_seconds: float
    position: float
    length: float


def kv_token_bytes(of: Deployment) -> float:
    """Return the bytes [byte] that restoring a token moves."""
    return of.bytes_per_block / of.tokens_per_block


def intensity(positions: ArrayLike, of: Deployment) -> Array:
    """Return the FLOPs of computing the tokens at `positions` [token] for each byte of their KV [FLOP/byte]."""
    at = np.asarray(positions, dtype=np.float64)
    if of.cost_model == "linear" or of.prefill is None:
        return np.full(at.shape, 2.0 * of.model_params / kv_token_bytes(of))
    return (of.prefill.products + of.prefill.window + of.prefill.pair * at) / kv_token_bytes(of)


def break_even_bandwidth(positions: ArrayLike, of: Deployment) -> Array:
    """Return the rate [byte/s] above which restoring a token at `positions` [token] is sooner than computing it."""
    token, pair = of.token_costs()
    return kv_token_bytes(of) / (token + pair * np.asarray(positions, dtype=np.float64))


def break_even(of: Deployment, tier: int) -> BreakEven:
    """Return from where on restoring from a tier, by its place in `TIERS`, pays.

    The least n with ``t0 + s n <= a n + b n^2 / 2``, s seconds a restored token and t0 the fixed time.
    """
    rate, setup = of.throughputs()[tier] * of.bytes_per_block, of.setup_seconds
    token, pair = of.token_costs()
    behind = kv_token_bytes(of) / rate - token
    position = 0.0 if behind <= 0.0 else (behind / pair if pair else math.inf)
    if pair:
        length = (behind + math.sqrt(behind * behind + 2.0 * pair * setup)) / pair
    elif setup <= 0.0:
        length = 0.0 if behind <= 0.0 else math.inf
    else:
        length = setup / -behind if behind < 0.0 else math.inf
    least = length if math.isinf(length) else float(max(1, math.ceil(length * (1.0 - 1e-12))))
    return BreakEven(rate, setup, position if math.isinf(position) else float(math.ceil(position)), least)


def cost_dollars(catalog: Catalog, deployment: Deployment) -> float | None:
    """Return the price [USD] of the parts of a deployment, ``gpu g + dram d + disk + link``; None if one has none."""
    gpu = catalog.part("gpus", deployment.gpu, "gpu").cost
    dram = catalog.part("drams", deployment.dram, "dram").cost
    disk = catalog.part("disks", deployment.disk, "disk").cost
    link = catalog.part("links", deployment.link, "link").cost
    if gpu is None or dram is None or disk is None or link is None:
        return None
    return gpu * deployment.gpu_count + dram * deployment.dram_count + disk + link
