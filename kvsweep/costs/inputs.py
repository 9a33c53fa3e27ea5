"""The inputs of the analytic model: name, unit, allowed range and meaning of each, in one table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from kvsweep.catalog.models import KV_DTYPE_BYTES
from kvsweep.catalog.specs import WeightDtype
from kvsweep.errors import InputError, shown
from kvsweep.units import parse_quantity


@dataclass(frozen=True)
class Field:
    """A number the model takes: its unit and the range [lowest, highest] it may have."""

    name: str
    unit: str
    lowest: float
    highest: float
    doc: str
    whole: bool = False
    open_below: bool = False

    @property
    def allowed(self) -> str:
        """The allowed range in words, for messages and help."""
        kind = "a whole number" if self.whole else "a number"
        relation = "> " if self.open_below else ">= "
        unit = "" if self.unit == "1" else f" {self.unit}"
        return f"{kind} {relation}{self.lowest:g} and <= {self.highest:g}{unit}"

    def check(self, value: Any, what: str) -> float:
        """Return `value` (a number, or text with an optional unit suffix) as a float within the range.

        Raises InputError naming `what`, the value and the allowed range.
        """
        if isinstance(value, str):
            number = parse_quantity(value, self.unit, what)
        elif isinstance(value, bool) or not hasattr(value, "__float__"):
            raise InputError(f"{what}: {shown(value)} is not a number; allowed: {self.allowed}")
        else:
            try:
                number = float(value)
            except OverflowError:
                number = math.inf
        below = number <= self.lowest if self.open_below else number < self.lowest
        if math.isnan(number) or below or number > self.highest or (self.whole and number != math.floor(number)):
            raise InputError(f"{what}: {shown(value)} is out of range; allowed: {self.allowed}")
        return number


def _positive(name: str, unit: str, highest: float, doc: str) -> Field:
    return Field(name, unit, 0.0, highest, doc, open_below=True)


# Bounds are far beyond any machine: they catch a slipped unit and keep every product and quotient finite.
HARDWARE_FIELDS: Mapping[str, Field] = {
    field.name: field
    for field in (
        Field("gpu_count", "1", 1.0, 1e6, "GPUs that share the work", whole=True),
        Field("dram_count", "1", 1.0, 1e6, "DRAM modules; they multiply capacity, not bandwidth", whole=True),
        Field("peak_flops", "FLOP/s", 1.0, 1e21, "peak compute of one GPU"),
        Field("hbm_bandwidth", "byte/s", 1.0, 1e18, "HBM bandwidth of one GPU"),
        _positive("hbm_capacity", "byte", 1e18, "HBM capacity of one GPU"),
        _positive("memory_utilization", "1", 1.0, "share of the HBM that the engine takes; 0.9, in the reference 1"),
        Field("dram_bandwidth", "byte/s", 1.0, 1e18, "DRAM bandwidth"),
        _positive("dram_capacity", "byte", 1e18, "capacity of one DRAM module"),
        Field("disk_bandwidth", "byte/s", 1.0, 1e18, "disk read bandwidth"),
        _positive("disk_capacity", "byte", math.inf, "disk capacity"),
        Field("link_bandwidth", "byte/s", 1.0, 1e18, "bandwidth of the link to the GPU"),
        Field("setup_seconds", "s", 0.0, 1e6, "fixed time of restoring anything from outside HBM, in no linear model"),
    )
}
MODEL_FIELDS: Mapping[str, Field] = {
    field.name: field
    for field in (
        Field("model_params", "1", 1.0, 1e16, "parameters of the model"),
        Field("tokens_per_block", "1", 1.0, 1e6, "tokens in a KV block", whole=True),
        Field("bytes_per_block", "byte", 1.0, 1e15, "bytes of a KV block"),
        Field("max_model_len", "token", 1.0, 1e12, "longest sequence, which windows and states are charged for", True),
        Field("step_tokens", "token", 1.0, 1e9, "tokens of the largest step, whose activations need HBM", True),
        Field("gpu_eta", "1", 1e-6, 1.0, "achieved share of the peak compute"),
        Field("attention_eta", "1", 1e-6, 1.0, "achieved share of the peak compute in attention, cost model attention"),
    )
}
WORKLOAD_FIELDS: Mapping[str, Field] = {
    field.name: field
    for field in (
        Field(
            "total_blocks", "block", 0.0, 1e12, "KV blocks a request needs, each of tokens_per_block tokens", whole=True
        ),
        Field("miss_blocks", "block", 0.0, 1e12, "blocks cached nowhere", whole=True),
        Field("hit_ratio", "1", 0.0, 1.0, "share of the blocks that is cached"),
        Field("request_rate", "1/s", 1e-9, 1e9, "requests a second"),
        Field("p95_seconds", "s", 1e-9, 1e9, "latency target"),
    )
}
PROMPT_TOKENS = Field(
    "prompt_tokens", "token", 1.0, 1e12, "tokens a request needs, in place of total_blocks; its last block is full",
    whole=True,
)  # fmt: skip
NUMBER_FIELDS: Mapping[str, Field] = {**HARDWARE_FIELDS, **MODEL_FIELDS, **WORKLOAD_FIELDS}


@dataclass(frozen=True)
class Choice:
    """A model by name: what may be chosen and what it means."""

    name: str
    values: tuple[str, ...]
    doc: str
    by_world: str
    """What is taken where nobody chooses."""


CHECKPOINT = "checkpoint"
"""Choice of weights as they are published."""

CHOICE_FIELDS: Mapping[str, Choice] = {
    choice.name: choice
    for choice in (
        Choice(
            "cost_model", ("linear", "attention"),
            "cost of recomputing a token: alike at every position, or with attention to all tokens before",
            "attention where GPU and model are real, linear otherwise",
        ),
        Choice(
            "path_model", ("summed", "pipelined"),
            "hops of a restored block: one after the other, or all at once, with links of all GPUs and costs of a copy",
            "pipelined where GPU and model are real, summed otherwise",
        ),
        Choice(
            "overlap", ("ideal", "layerwise", "serial"),
            "how restore and recompute overlap: fully, layer by layer, or with the uncached suffix after both",
            "ideal",
        ),
        Choice("kv_dtype", tuple(KV_DTYPE_BYTES), "numbers of the KV cache of a model with a shape", "bf16"),
        Choice(
            "weight_dtype", (CHECKPOINT, *get_args(WeightDtype)), "numbers of the weights of a model with a shape",
            CHECKPOINT,
        ),
    )
}  # fmt: skip

SIMULATE_DEFAULTS: Mapping[str, Any] = {
    "total_blocks": 50_000, "miss_blocks": 0, "placement": "disk", "request_rate": 1.0, "p95_seconds": 1.0,
}  # fmt: skip
SWEEP_DEFAULTS: Mapping[str, Any] = {
    "total_blocks": 10_000,
    "placement": "disk",
    "hit_ratio": "0:1:0.1",
    "request_rate": "0.01:0.30:0.01",
    "p95_seconds": "5:60:5",
}

PART_FIELDS: Mapping[str, str] = {
    "stack": "stacks", "gpu": "gpus", "dram": "drams", "disk": "disks", "link": "links", "model": "models",
}  # fmt: skip
"""Inputs that are keys of the catalog, with the kind of entry each one names."""
