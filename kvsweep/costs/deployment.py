"""One machine and model, resolved from catalog keys and single figures, and the rates that follow from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kvsweep.catalog.load import Catalog
from kvsweep.catalog.models import kv_bytes_per_token_moved
from kvsweep.catalog.specs import Gpu, Link, Model
from kvsweep.costs import paths, placement, recompute, restore
from kvsweep.costs.attention import PrefillCost, all_reduce_seconds, prefill_cost
from kvsweep.costs.inputs import CHECKPOINT, CHOICE_FIELDS, HARDWARE_FIELDS, MODEL_FIELDS
from kvsweep.costs.memory import MEMORY_UTILIZATION, Dtypes, Fit, usual_step, visible_bytes, what_fits
from kvsweep.costs.worlds import REAL, REAL_PARTS, World, host_link, world_of
from kvsweep.errors import InputError, shown
from kvsweep.policies.context import IDEAL, LAYERWISE, LINEAR, SERIAL

DEFAULT_STACK = "a100_ddr5_nvme"
CUSTOM = "custom"
"""Name of a deployment or model given by single parts or figures rather than by one catalog key."""

DEFAULT_MODEL = {"model_params": 8e9, "tokens_per_block": 16.0, "bytes_per_block": 2e6, "gpu_eta": 0.5}

OVERLAPS = {"ideal": IDEAL, "layerwise": LAYERWISE, "serial": SERIAL}

WHOLE_SERVER = "dram-server"
"""Category of DRAM rows that hold all modules of a machine."""

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
    overlap: float
    layers: float
    setup_seconds: float


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
    attention_eta: float
    setup_seconds: float
    cost_model: str
    path_model: str
    overlap: str
    world: World
    prefill: PrefillCost | None
    """What a token costs under ``attention``; None for a model without a shape."""
    link_latency: float
    """Fixed time of a copy over the link [s]."""
    peer_bandwidth: float
    """One-way rate at which a GPU sends to its peers [byte/s]."""
    dram_channels: float
    """DRAM modules whose capacities, and in a pipelined path bandwidths, add up [1]; 1 for rows of whole servers."""
    memory_utilization: float
    max_model_len: float
    step_tokens: float
    """Longest sequence and largest step that memory is kept for [token]; NaN in the reference world."""
    kv_dtype: str
    weight_dtype: str
    fit: Fit | None
    """What fits beside the weights of a model in the real world."""

    def capacities(self) -> tuple[float, float, float]:
        """Return how many KV blocks [block] fit in (vram, dram, disk)."""
        size = self.bytes_per_block
        if self.fit is not None:
            vram = self.fit.tokens / self.tokens_per_block
        else:
            taken = self.hbm_capacity * self.memory_utilization
            vram = placement.vram_capacity_blocks(taken, self.gpu_count, self.model_params, size)
        return vram, self.dram_capacity * self.dram_channels / size, self.disk_capacity / size

    def throughputs(self) -> tuple[float, float, float]:
        """Return the restore rates [block/s] of (vram, dram, disk)."""
        size, link = self.bytes_per_block, self.link_bandwidth
        if self.path_model == "pipelined":
            links = paths.link_rate(link, self.link_latency, self.gpu_count, size)
            dram = self.dram_bandwidth * self.dram_channels
            disk = paths.pipelined_throughput(self.disk_bandwidth, links, size)
            return math.inf, paths.pipelined_throughput(dram, links, size), disk
        return (
            restore.hbm_throughput(self.hbm_bandwidth, size),
            restore.linked_throughput(self.dram_bandwidth, link, size),
            restore.linked_throughput(self.disk_bandwidth, link, size),
        )

    def token_costs(self) -> tuple[float, float]:
        """Return the prefill time [s] of a token, and of a token for each token before it."""
        if self.cost_model == "linear" or self.prefill is None:
            token = recompute.seconds_per_token(self.model_params, self.peak_flops, self.gpu_count, self.gpu_eta)
            return token, 0.0
        flops = self.peak_flops * self.gpu_count
        reduce = all_reduce_seconds(self.prefill.reduced_bytes, self.gpu_count, self.peer_bandwidth)
        return self.prefill.token_seconds(flops) + reduce, self.prefill.pair_seconds(flops)

    def rates(self) -> Rates:
        """Return the `Rates` of the cost, path and overlap models chosen."""
        vram, dram, _ = self.capacities()
        token, pair = self.token_costs()
        compute = recompute.recompute_throughput(self.tokens_per_block, token)
        overlap = OVERLAPS[self.overlap] if self.is_positional else LINEAR
        layers = self.prefill.layers if self.prefill is not None else 1.0
        return Rates(
            vram, dram, *self.throughputs(), compute, self.tokens_per_block, token, pair,
            overlap, layers, self.setup_seconds if self.is_positional else 0.0,
        )  # fmt: skip

    @property
    def is_positional(self) -> bool:
        """Whether the place of a token matters: anything but the linear model with ideal overlap."""
        return self.cost_model != "linear" or self.overlap != "ideal"

    @property
    def weights_fit(self) -> bool:
        """Whether the weights leave any HBM for KV blocks."""
        return self.capacities()[0] > 0.0


def deploy(catalog: Catalog, chosen: Mapping[str, Any], cost_model: str = "cost_model") -> Deployment:
    """Return the deployment that `chosen` describes on top of the default stack and model, or of real parts.

    `chosen` maps any of `PART_FIELDS`, `HARDWARE_FIELDS`, `MODEL_FIELDS` and `CHOICE_FIELDS` to a catalog key, a number
    or a name. A stack gives the parts, single parts override the stack's, and single figures override the parts'. A
    model of known shape that no machine is named for gets real parts. Raises InputError for a key the catalog lacks,
    and for a cost model, which messages call `cost_model`, that the model's figures do not suffice for.
    """
    stack = catalog.part("stacks", chosen.get("stack", DEFAULT_STACK), "stack")
    model = catalog.part("models", chosen["model"], "model") if "model" in chosen else None
    gpu = catalog.part("gpus", chosen.get("gpu", _default(catalog, "gpu", stack.gpu, chosen, model)), "gpu")
    world = world_of(gpu, model)
    named = "stack" in chosen or world.name != REAL
    own = {part: getattr(stack, part) if named else REAL_PARTS[part] for part in ("dram", "disk")}
    own["link"] = stack.link if world.name != REAL else host_link(catalog, gpu) or REAL_PARTS["link"]
    dram = catalog.part("drams", chosen.get("dram", own["dram"]), "dram")
    disk = catalog.part("disks", chosen.get("disk", own["disk"]), "disk")
    link = catalog.part("links", chosen.get("link", own["link"]), "link")
    figures: dict[str, Any] = {
        "gpu_count": stack.gpu_count, "dram_count": stack.dram_count if named else 1.0,
        "peak_flops": gpu.peak_flops, "hbm_bandwidth": gpu.hbm_bandwidth, "hbm_capacity": gpu.hbm_capacity,
        "dram_bandwidth": dram.bandwidth, "dram_capacity": dram.capacity,
        "disk_bandwidth": disk.bandwidth, "disk_capacity": disk.capacity, "link_bandwidth": link.bandwidth,
        "setup_seconds": 0.0, **DEFAULT_MODEL,
    }  # fmt: skip
    if world.name == REAL and "link" not in chosen and gpu.host_link and host_link(catalog, gpu) is None:
        figures["link_bandwidth"] = gpu.host_link.bytes_per_s
    if model is not None:
        figures |= {
            "model_params": model.params, "tokens_per_block": model.tokens_per_block,
            "bytes_per_block": model.bytes_per_block, "gpu_eta": model.gpu_eta,
        }  # fmt: skip
    figures |= {name: float(chosen[name]) for name in (*HARDWARE_FIELDS, *MODEL_FIELDS) if name in chosen}
    figures |= _memory(gpu, model if world.name == REAL else None, chosen, figures)
    figures |= _models((gpu, link, model), world, chosen, figures)
    if figures["cost_model"] == "attention" and figures["prefill"] is None:
        raise InputError(
            f"{cost_model}: attention needs the shape of a model, and {shown(chosen.get('model', CUSTOM))} has none; "
            "allowed: linear, or a model with a shape, as llama-3.1-8b"
        )
    figures["dram_channels"] = figures["dram_count"] if dram.category != WHOLE_SERVER else 1.0
    is_preset = "stack" in chosen or (named and not any(name in chosen for name in (*_PARTS, *HARDWARE_FIELDS)))
    return Deployment(
        stack=stack.key if is_preset else CUSTOM, gpu=gpu.key, dram=dram.key, disk=disk.key, link=link.key,
        model=model.key if model is not None else CUSTOM, world=world, **figures,
    )  # fmt: skip


def _memory(gpu: Gpu, model: Model | None, chosen: Mapping[str, Any], figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return what fits, and the bytes of a block, of a `model` in the real world; None of the reference."""
    if model is None or model.shape is None:
        share = float(chosen.get("memory_utilization", 1.0))
        return {"memory_utilization": share, "max_model_len": math.nan, "step_tokens": math.nan, "fit": None}
    kv, stored = str(chosen.get("kv_dtype", "bf16")), str(chosen.get("weight_dtype", CHECKPOINT))
    memory = figures["hbm_capacity"] if "hbm_capacity" in chosen else visible_bytes(gpu)
    share = float(chosen.get("memory_utilization", MEMORY_UTILIZATION))
    step = usual_step(memory)
    fit = what_fits(
        model, memory, int(figures["gpu_count"]), share, Dtypes(kv, None if stored == CHECKPOINT else stored),
        float(chosen["max_model_len"]) if "max_model_len" in chosen else None,
        step._replace(tokens=float(chosen.get("step_tokens", step.tokens))),
    )  # fmt: skip
    moved = figures["tokens_per_block"] * kv_bytes_per_token_moved(model.shape, kv)
    return {
        "memory_utilization": share, "max_model_len": fit.sequence_tokens, "step_tokens": fit.largest_step.tokens,
        "fit": fit, "bytes_per_block": figures["bytes_per_block"] if "bytes_per_block" in chosen else moved,
    }  # fmt: skip


def _default(catalog: Catalog, part: str, of_stack: str, chosen: Mapping[str, Any], model: Model | None) -> str:
    """Return the key of a part that is not named: a model with a shape for which no machine is gets a real one."""
    machine = any(name in chosen for name in ("stack", "gpu", *HARDWARE_FIELDS))
    shaped = model is not None and model.shape is not None and model.weights is not None
    return REAL_PARTS[part] if shaped and not machine and REAL_PARTS[part] in catalog.gpus else of_stack


def _models(
    parts: tuple[Gpu, Link, Model | None], world: World, chosen: Mapping[str, Any], figures: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the models by name and what they need beyond the `figures` of the parts."""
    gpu, link, model = parts
    real = world.name == REAL
    defaults = {
        "cost_model": "attention" if real else "linear", "path_model": "pipelined" if real else "summed",
        "overlap": "ideal", "kv_dtype": "bf16", "weight_dtype": CHECKPOINT,
    }  # fmt: skip
    made: dict[str, Any] = {name: str(chosen.get(name, defaults[name])) for name in CHOICE_FIELDS}
    cost = None
    if model is not None and model.shape is not None and model.weights is not None:
        shares = [float(chosen[name]) if name in chosen else None for name in ("gpu_eta", "attention_eta")]
        cost = prefill_cost(model, gpu, *shares)
    own = figures["gpu_eta"] if cost is None else cost.attention_eta
    made["attention_eta"] = float(chosen.get("attention_eta", own))
    if made["cost_model"] == "attention" and cost is not None:
        made["gpu_eta"] = cost.gemm_eta
    latency = link.latency.seconds if link.latency else 0.0
    if made["path_model"] == "pipelined" and "setup_seconds" not in chosen:
        made["setup_seconds"] = latency
    peer = gpu.peer_link.bytes_per_s if gpu.peer_link else figures["link_bandwidth"]
    return {**made, "prefill": cost, "link_latency": latency, "peer_bandwidth": peer}
