"""How a checkpoint's weights are kept: which classes of them in which numbers, and the bytes that makes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kvsweep.catalog.configs.fields import Config
from kvsweep.catalog.configs.parameters import Parameters
from kvsweep.catalog.specs import WeightDtype
from kvsweep.errors import InputError

BYTES: Mapping[str, float] = {
    "bf16": 2.0, "int8": 1.0, "fp8": 1.0 + 4.0 / 128**2, "mxfp4": 0.5 + 1.0 / 32, "nvfp4": 0.5 + 1.0 / 16,
    "int4": 0.5 + 2.0 / 32,
}  # fmt: skip
"""Bytes of a parameter with the scales of its group [byte]: fp8 in blocks of 128 x 128, int4 in groups of 32."""
CLASSES = ("attention", "mlp", "shared", "experts")
"""Classes of `Parameters` that checkpoints quantise."""
WORDS = {
    "attention": r"self_attn", "mlp": r"\bmlp\b(?!\W*(shared_|expert|gate\b))", "shared": r"shared_expert",
    "experts": r"(?<!shared_)\bexperts\b",
}  # fmt: skip
"""How lists of what is left out name the classes."""
ALL, EXPERTS, MLPS = CLASSES, ("experts",), ("mlp", "shared", "experts")


@dataclass(frozen=True, slots=True)
class Scheme:
    """Which `classes` of weights are kept in `dtype`, and the bytes of one with its scales [byte]; `others` of the
    rest.
    """

    dtype: WeightDtype
    size: float
    classes: tuple[str, ...]
    others: float = 2.0

    def bytes(self, of: Parameters) -> float:
        """Return the bytes [byte] of a checkpoint."""
        by_class = {"attention": of.attention, "mlp": of.mlp, "shared": of.shared, "experts": of.experts}
        sizes = {name: self.size if name in self.classes else self.others for name in by_class}
        return 2.0 * of.unquantized + sum(count * sizes[name] for name, count in by_class.items())


def scheme(config: Config) -> Scheme:
    """Return how the weights of a config are kept; bf16 where it has no ``quantization_config``."""
    stated = config.part("quantization_config")
    if stated is None:
        return Scheme("bf16", 2.0, ())
    method = stated.text("quant_method", "modelopt" if stated.has("quant_algo") else "").lower()
    if method == "mxfp4":
        return Scheme("mxfp4", BYTES["mxfp4"], EXPERTS)
    if method in ("fp8", "fbgemm_fp8"):
        whole = _fp8(stated, _ignored(stated, ALL))
        if config.text("expert_dtype") == "fp4":
            return Scheme("mxfp4", BYTES["mxfp4"], EXPERTS, whole.size)
        return whole
    if method in ("awq", "gptq", "auto-round", "autoround"):
        bits = stated.count("bits", "w_bit", default=4)
        group = stated.count("group_size", "q_group_size", default=128, lowest=-1)
        zero = bits / 8 if stated.flag("zero_point") else 0.0
        return _integers(bits, group, _ignored(stated, ALL), zero)
    if method in ("compressed-tensors", "modelopt"):
        return _grouped(stated)
    allowed = "fp8, mxfp4, awq, gptq, compressed-tensors, modelopt"
    raise InputError(f"{stated.where}: quant_method: {method or 'missing'!r}; allowed: {allowed}")


def _fp8(stated: Config, classes: tuple[str, ...]) -> Scheme:
    block = stated.values.get("weight_block_size")
    if isinstance(block, list) and len(block) == 2 and all(type(side) is int and side > 0 for side in block):
        return Scheme("fp8", 1.0 + 4.0 / (block[0] * block[1]), classes)
    return Scheme("fp8", 1.0, classes)


def _integers(bits: int, group: int, classes: tuple[str, ...], zero: float = 0.0) -> Scheme:
    if bits not in (4, 8):
        raise InputError(f"quantization_config: bits: {bits}; allowed: 4, 8")
    return Scheme("int4" if bits == 4 else "int8", bits / 8 + ((2.0 + zero) / group if group > 0 else 0.0), classes)


def _grouped(stated: Config) -> Scheme:
    """Return the scheme of a config that tells bits and groups of its weights."""
    weights = _weights(stated)
    algorithm = f"{stated.text('quant_algo')} {stated.text('format')}".lower()
    bits = weights.count("num_bits", default=4 if "4" in algorithm else 8)
    is_float = weights.text("type", "int" if "int" in algorithm else "float") == "float"
    group = weights.count("group_size", default=0, lowest=-1)
    if bits == 4 and is_float:
        if "mxfp4" in algorithm or group == 32:
            return Scheme("mxfp4", BYTES["mxfp4"], _ignored(stated, EXPERTS))
        # NVIDIA's own checkpoints of this kind leave attention in bf16 unless they list what is left out.
        return Scheme("nvfp4", BYTES["nvfp4"], _ignored(stated, MLPS))
    if is_float:
        return _fp8(stated, _ignored(stated, ALL))
    return _integers(bits, group, _ignored(stated, ALL))


def _weights(stated: Config) -> Config:
    """Return the description of the weights, of the first group where there are several; empty without one."""
    groups = stated.part("config_groups")
    parts = [groups.part(name) for name in groups.values] if groups else [stated]
    found = (part.part("weights") for part in parts if part is not None)
    return next((weights for weights in found if weights is not None), Config({}, stated.where))


def _ignored(stated: Config, unless_listed: tuple[str, ...]) -> tuple[str, ...]:
    """Return the quantised classes: all but those the config lists as left out, `unless_listed` without a list.

    A class is left out where a pattern names it for all layers; single layers do not count.
    """
    for field in ("ignore", "exclude_modules", "ignored_layers", "modules_to_not_convert"):
        names = stated.values.get(field)
        if isinstance(names, list):
            everywhere = [str(name) for name in names if not re.search(r"layers\.\d", str(name))]
            return tuple(kind for kind in ALL if not any(re.search(WORDS[kind], name) for name in everywhere))
    return unless_listed


def weight_bytes(dtype: str, total: float, unquantized: float) -> float:
    """Return the bytes [byte] of `total` parameters in `dtype`, `unquantized` of them in bf16."""
    return 2.0 * unquantized + BYTES[dtype] * (total - unquantized)
