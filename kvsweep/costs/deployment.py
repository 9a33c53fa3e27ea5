"""One machine and model, resolved from catalog keys and single figures, and the rates that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kvsweep.catalog.load import Catalog
from kvsweep.costs import placement, recompute, restore
from kvsweep.costs.inputs import HARDWARE_FIELDS, MODEL_FIELDS

DEFAULT_STACK = "a100_ddr5_nvme"
CUSTOM = "custom"
"""Name of a deployment or model given by single parts or figures rather than by one catalog key."""

DEFAULT_MODEL = {"model_params": 8e9, "tokens_per_block": 16.0, "bytes_per_block": 2e6, "gpu_eta": 0.5}

_PARTS = ("gpu", "dram", "disk", "link")


class Rates(NamedTuple):
    """What the engine needs of a deployment: capacities [block], throughputs [block/s] and cost coefficients."""

    vram_capacity_blocks: float
    dram_capacity_blocks: float
    vram_throughput: float
    dram_throughput: float
    disk_throughput: float
    recompute_throughput: float
    tokens_per_block: float
    token_seconds: float
    token_pair_seconds: float


@dataclass(frozen=True)
class Deployment:
    """A GPU with its memory tiers and link, and the model it serves; figures in base units."""

    stack: str
    gpu: str
    dram: str
    disk: str
    link: str
    model: str
    gpu_count: float
    dram_count: float
    peak_flops: float
    hbm_bandwidth: float
    hbm_capacity: float
    dram_bandwidth: float
    dram_capacity: float
    disk_bandwidth: float
    disk_capacity: float
    link_bandwidth: float
    model_params: float
    tokens_per_block: float
    bytes_per_block: float
    gpu_eta: float

    def capacities(self) -> tuple[float, float, float]:
        """Return how many KV blocks [block] fit in (vram, dram, disk)."""
        size = self.bytes_per_block
        vram = placement.vram_capacity_blocks(self.hbm_capacity, self.gpu_count, self.model_params, size)
        return vram, self.dram_capacity * self.dram_count / size, self.disk_capacity / size

    def throughputs(self) -> tuple[float, float, float]:
        """Return the restore rates [block/s] of (vram, dram, disk)."""
        size, link = self.bytes_per_block, self.link_bandwidth
        return (
            restore.hbm_throughput(self.hbm_bandwidth, size),
            restore.linked_throughput(self.dram_bandwidth, link, size),
            restore.linked_throughput(self.disk_bandwidth, link, size),
        )

    def rates(self) -> Rates:
        """Return the `Rates` of the linear cost model."""
        vram, dram, _ = self.capacities()
        token = recompute.seconds_per_token(self.model_params, self.peak_flops, self.gpu_count, self.gpu_eta)
        compute = recompute.recompute_throughput(self.tokens_per_block, token)
        return Rates(vram, dram, *self.throughputs(), compute, self.tokens_per_block, token, 0.0)

    @property
    def weights_fit(self) -> bool:
        """Whether the bf16 weights leave any HBM for KV blocks."""
        return self.capacities()[0] > 0.0


def deploy(catalog: Catalog, chosen: Mapping[str, Any]) -> Deployment:
    """Return the deployment that `chosen` describes on top of the default stack and model.

    `chosen` maps any of `PART_FIELDS`, `HARDWARE_FIELDS` and `MODEL_FIELDS` to a catalog key or a number. A stack
    gives the parts, single parts override the stack's, and single figures override the parts'.
    Raises InputError for a key the catalog lacks.
    """
    stack = catalog.part("stacks", chosen.get("stack", DEFAULT_STACK), "stack")
    gpu = catalog.part("gpus", chosen.get("gpu", stack.gpu), "gpu")
    dram = catalog.part("drams", chosen.get("dram", stack.dram), "dram")
    disk = catalog.part("disks", chosen.get("disk", stack.disk), "disk")
    link = catalog.part("links", chosen.get("link", stack.link), "link")
    figures: dict[str, float] = {
        "gpu_count": stack.gpu_count, "dram_count": stack.dram_count,
        "peak_flops": gpu.peak_flops, "hbm_bandwidth": gpu.hbm_bandwidth, "hbm_capacity": gpu.hbm_capacity,
        "dram_bandwidth": dram.bandwidth, "dram_capacity": dram.capacity,
        "disk_bandwidth": disk.bandwidth, "disk_capacity": disk.capacity, "link_bandwidth": link.bandwidth,
        **DEFAULT_MODEL,
    }  # fmt: skip
    model = CUSTOM
    if "model" in chosen:
        entry = catalog.part("models", chosen["model"], "model")
        model = entry.key
        figures |= {
            "model_params": entry.params, "tokens_per_block": entry.tokens_per_block,
            "bytes_per_block": entry.bytes_per_block, "gpu_eta": entry.gpu_eta,
        }  # fmt: skip
    figures |= {name: float(chosen[name]) for name in (*HARDWARE_FIELDS, *MODEL_FIELDS) if name in chosen}
    is_preset = "stack" in chosen or not any(name in chosen for name in (*_PARTS, *HARDWARE_FIELDS))
    names = {"gpu": gpu.key, "dram": dram.key, "disk": disk.key, "link": link.key, "model": model}
    return Deployment(stack=stack.key if is_preset else CUSTOM, **names, **figures)  # type: ignore[arg-type]
