"""Restore against recompute over the context length, for one GPU and every path its KV cache could come by.

Source: the standalone curves of KVC-TierSim (HotStorage '26, doi 10.1145/3837053.3837336). They are finer than the
`linear` cost model: prefill has its quadratic attention term, and restoring is bound by the path or by the GPU's
own work on what arrives. Arrays in, arrays out: arguments broadcast, so that one call evaluates all deployments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvsweep.catalog.load import Catalog
from kvsweep.catalog.specs import Disk, Dram, Gpu, Link
from kvsweep.costs.deployment import DEFAULT_MODEL

Array = NDArray[np.float64]

TOKENS: tuple[float, ...] = (16e3, 32e3, 64e3, 128e3, 256e3, 512e3, 1e6, 2e6)
"""Context lengths [token] of the published figures."""

ALIASES = frozenset({"DDR5", "DDR4", "SATA", "NVMe", "PCIe", "NVLink"})
"""Reference rows that repeat another row under a family name; counted twice they would tilt a distribution."""

UNPACK_BANDWIDTH = 100e9
"""Rate [byte/s] at which an A100 unpacks a KV cache; other GPUs in proportion to their HBM bandwidth."""
UNPACK_HBM_BANDWIDTH = 2.039e12
"""HBM bandwidth [byte/s] of that A100."""


@dataclass(frozen=True)
class CurveModel:
    """Figures of the model whose context is restored or recomputed: an 8B one with full-width attention."""

    params: float = DEFAULT_MODEL["model_params"]
    layers: float = 32.0
    width: float = 4096.0
    gpu_eta: float = DEFAULT_MODEL["gpu_eta"]
    tokens_per_block: float = DEFAULT_MODEL["tokens_per_block"]
    bytes_per_block: float = DEFAULT_MODEL["bytes_per_block"]

    def kv_bytes(self, tokens: ArrayLike) -> Array:
        """Return the size [byte] of the KV cache of `tokens` [token]."""
        return np.asarray(tokens, dtype=np.float64) / self.tokens_per_block * self.bytes_per_block


DEFAULT_CURVE_MODEL = CurveModel()


class PathRates(NamedTuple):
    """Bandwidths [byte/s] of the DRAM, disk and link a cache passes, in shapes that broadcast."""

    dram: float | Array
    disk: float | Array
    link: float | Array


class Parts(NamedTuple):
    """Parts whose product makes the deployments of a violin, by key."""

    drams: Mapping[str, Dram]
    disks: Mapping[str, Disk]
    links: Mapping[str, Link]

    @property
    def n_deployments(self) -> int:
        """Deployments [1] of one GPU."""
        return len(self.drams) * len(self.disks) * len(self.links)

    def open_axes(self) -> PathRates:
        """Return the bandwidths on open axes (dram, 1, 1, 1), (disk, 1, 1) and (link, 1), tokens last."""
        drams, disks, links = (
            np.array([part.bandwidth for part in parts.values()]) for parts in (self.drams, self.disks, self.links)
        )
        return PathRates(drams[:, None, None, None], disks[:, None, None], links[:, None])


def comparable_parts(catalog: Catalog) -> Parts:
    """Return the parts stated by flat figures without their aliases: 12 DRAM x 21 disks x 7 links as shipped.

    Sourced data sheet entries measure differently (one direction, after coding) and are left out; a user's own
    flat entries join.
    """
    drams, disks, links = catalog.drams, catalog.disks, catalog.links
    return Parts(
        {key: dram for key, dram in drams.items() if dram.family == "reference" and key not in ALIASES},
        {key: disk for key, disk in disks.items() if disk.family == "reference" and key not in ALIASES},
        {key: link for key, link in links.items() if link.family == "reference" and key not in ALIASES},
    )


def prefill_seconds(
    tokens: ArrayLike, gpu: Gpu, gpu_count: float = 1.0, model: CurveModel = DEFAULT_CURVE_MODEL
) -> Array:
    """Return the time [s] of computing `tokens` [token] anew: ``(2 P n + 2 L D n^2) / (peak_flops g eta)``."""
    n = np.asarray(tokens, dtype=np.float64)
    flops = 2.0 * model.params * n + 2.0 * model.layers * model.width * n**2
    return flops / (gpu.peak_flops * gpu_count * model.gpu_eta)


def restore_seconds(
    tokens: ArrayLike,
    gpu: Gpu,
    path: PathRates,
    compression: float = 1.0,
    gpu_count: float = 1.0,
    model: CurveModel = DEFAULT_CURVE_MODEL,
) -> Array:
    """Return the time [s] of restoring the KV cache of `tokens` [token]: the longer of the path and the GPU's work.

    ``path = kv/C (1/disk + 1/dram + 1/(min(link, cap) g))``: disk, DRAM and link one after the other;
    ``GPU = kv/unpack + 2 kv/(hbm g) + 4 L D n/(peak_flops g eta)``: unpack, read and write once, elementwise work.

    Parameters
    ----------
    compression
        C [1]: the bytes on the path are the cache divided by C. The reference takes 0.1 and calls it compression
        to a tenth, but divides by it as well, so that ten times the cache travels; 1 sends the cache as it is.
    """
    kv = model.kv_bytes(tokens)
    cap = gpu.max_link_bandwidth or math.inf
    dram, disk, link = (np.asarray(rate, dtype=np.float64) for rate in path)
    on_path = kv / compression * (1.0 / disk + 1.0 / dram + 1.0 / (np.minimum(link, cap) * gpu_count))
    hbm = gpu.hbm_bandwidth * gpu_count
    unpack = UNPACK_BANDWIDTH * hbm / UNPACK_HBM_BANDWIDTH
    elementwise = 4.0 * model.layers * model.width * np.asarray(tokens, dtype=np.float64)
    on_gpu = kv / unpack + 2.0 * kv / hbm + elementwise / (gpu.peak_flops * gpu_count * model.gpu_eta)
    return np.asarray(np.maximum(on_path, on_gpu))


def restore_grid(gpu: Gpu, parts: Parts, tokens: ArrayLike = TOKENS, compression: float = 1.0) -> Array:
    """Return the restore times [s] (dram, disk, link, tokens) of every deployment of `gpu`, in one evaluation."""
    return restore_seconds(tokens, gpu, parts.open_axes(), compression)
