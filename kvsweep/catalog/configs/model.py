"""A catalog entry made of a config."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kvsweep.catalog.configs import attention
from kvsweep.catalog.configs.fields import Config, read_config
from kvsweep.catalog.configs.layers import MAMBA, PLAIN, STATE, WINDOW, Layer, expert_count, layers
from kvsweep.catalog.configs.parameters import dense_width, expert_width, experts_per_token, parameters, shared_width
from kvsweep.catalog.configs.quantization import scheme
from kvsweep.catalog.rules import build_entry
from kvsweep.catalog.specs import Model


def read_model(path: Path, what: str) -> Model:
    """Return the model that the ``config.json`` at `path` (a file, or its folder) describes.

    Raises InputError naming `what` (``--model``), the file and the field that is missing or not modelled.
    """
    return model_of(read_config(path, what), str(path))


def model_of(config: Config, key: str) -> Model:
    """Return the model of `config` under `key`; its figures are computed from the dimensions."""
    entry = build_entry(Model, key, entry_values(config), config.where)
    assert isinstance(entry, Model)
    return entry


def entry_values(config: Config) -> dict[str, Any]:
    """Return the fields of a catalog entry for the model of `config`."""
    found = layers(config)
    counts, kept = parameters(config, found), scheme(config)
    weights = {
        "total": counts.total, "active": counts.per_token + counts.head, "per_token": counts.per_token,
        "experts": counts.experts, "unquantized": counts.unquantized, "dtype": kept.dtype,
        "bytes": kept.bytes(counts), "kind": "vendor",
    }  # fmt: skip
    return {"weights": weights, "shape": {**_shape(config, found), "kind": "vendor"}}


def _shape(config: Config, found: Sequence[Layer]) -> dict[str, Any]:
    """Return the fields of `Shape`."""
    hidden, experts = config.count("hidden_size", "n_embd", "d_model"), expert_count(config)
    is_moe = experts > 1 and any(layer.experts for layer in found)
    linear = sum(layer.kind in (STATE, MAMBA) for layer in found)
    compressed = attention.compression(config, len(found))
    window = len(found) if compressed else sum(layer.kind == WINDOW for layer in found)
    index = attention.indexer(config, found)
    fields = attention.kv_shape(config, found) | {
        "architecture": "moe" if is_moe else "dense",
        "layers": len(found),
        "layers_window": window,
        "layers_linear": linear,
        "layers_plain": sum(layer.kind == PLAIN for layer in found),
        "window": config.count("attention_chunk_size", "sliding_window") if window else 0,
        "state_bytes_per_sequence": attention.state_bytes(config, found, hidden),
        "hidden_size": hidden,
        "intermediate_size": dense_width(config) if any(layer.mlp for layer in found) else 0,
        "moe_intermediate_size": expert_width(config) if is_moe else 0,
        "experts": experts if is_moe else 0,
        "experts_per_token": experts_per_token(config) if is_moe else 0,
        "shared_experts": -(-shared_width(config) // expert_width(config)) if is_moe else 0,
        "dense_layers": sum(layer.mlp and not layer.experts for layer in found),
        "vocab": config.count("vocab_size"),
        "max_context": config.count("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", default=0),
        "indexer": asdict(index) if index else None,
        "compression": asdict(compressed) if compressed else None,
    }
    return fields | {"attention": _kind(fields)}


def _kind(fields: dict[str, Any]) -> str:
    """Return the kind of attention in the catalog's words."""
    if fields["layers_linear"]:
        return "hybrid"
    if fields.get("kv_lora_rank"):
        return "mla"
    if fields["layers_window"]:
        return "swa-mix"
    return "mha" if fields["kv_heads"] == fields["heads"] else "gqa"
