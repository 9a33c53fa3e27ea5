"""KV bytes and FLOPs that follow from the shape of a model (spec: physics of recompute and restore).

Symbols: L layers, n_h query heads, d_qk and d_v head widths, P active parameters, W window [tokens].
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from kvsweep.catalog.specs import Model, Shape
from kvsweep.errors import InputError

KV_DTYPE_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0}
"""Bytes of one number of the KV cache [byte]."""


def kv_bytes_per_token(shape: Shape, dtype: str = "bf16") -> float:
    """Return the KV bytes that one more token of context adds [byte].

    2·L_full·kv_heads·head_dim·dtype; latent attention stores one vector for K and V: L·(kv_lora_rank + rope)·dtype.
    Window and linear layers add nothing here (see `kv_fixed_bytes_per_sequence`).
    """
    return shape.layers_full_attention * _layer_numbers_per_token(shape) * KV_DTYPE_BYTES[dtype]


def kv_bytes_per_token_all_layers(shape: Shape, dtype: str = "bf16") -> float:
    """Return the KV bytes per token [byte] of an engine that keeps window layers whole, like full attention."""
    layers = shape.layers_full_attention + shape.layers_window
    return layers * _layer_numbers_per_token(shape) * KV_DTYPE_BYTES[dtype]


def kv_fixed_bytes_per_sequence(shape: Shape, dtype: str = "bf16") -> float:
    """Return the bytes a sequence holds whatever its length [byte]: full windows and recurrent state."""
    window = shape.layers_window * shape.window * _layer_numbers_per_token(shape) * KV_DTYPE_BYTES[dtype]
    return window + shape.state_bytes_per_sequence


def kv_bytes_per_token_allocated(shape: Shape, tensor_parallel: int, dtype: str = "bf16") -> float:
    """Return the KV bytes per token [byte] that `tensor_parallel` ranks hold together.

    Above kv_heads ranks the heads replicate, and latent attention keeps the whole vector on every rank; the logical
    bytes are those of one rank, `kv_bytes_per_token`. Heads that do not divide evenly fill every rank to the largest.
    """
    if shape.kv_lora_rank:
        copies = float(tensor_parallel)
    else:
        copies = ceil(shape.kv_heads / tensor_parallel) * tensor_parallel / shape.kv_heads
    return copies * kv_bytes_per_token(shape, dtype)


def prefill_flops(model: Model, start: float, end: float) -> float:
    """Return the FLOPs [FLOP] to compute tokens `start` to `end` when the KV of all earlier tokens is at hand.

    2P(j−i) + L_full·n_h·(d_qk+d_v)·(j²−i²) + 2·L_w·n_h·(d_qk+d_v)·W·(j−i). The window term counts a full window for
    the first W tokens too. Linear-attention layers count through P alone. P excludes embeddings and head where known.
    """
    tokens, pairs = end - start, (end**2 - start**2) / 2
    work = prefill_work(model)
    return (work.products + work.window) * tokens + work.pair * pairs


class PrefillWork(NamedTuple):
    """FLOPs of prefill by what they grow with and which kernels do them [FLOP]."""

    products: float
    """Of a token, in matrix products and experts: 2P."""
    window: float
    """Of a token, in the attention of window layers."""
    pair: float
    """Of a token and each token before it, in the attention of full layers."""


def prefill_work(model: Model) -> PrefillWork:
    """Return what a token of prefill costs; raises InputError for a model without shape and weights."""
    if model.shape is None or model.weights is None:
        raise InputError(f"model {model.key}: no shape and weights in the catalog; FLOPs per token are unknown")
    shape = model.shape
    params = model.weights.active_blocks or model.weights.active
    per_pair = shape.heads * (shape.head_dim + shape.v_head_dim)
    window = 2 * shape.layers_window * per_pair * shape.window
    return PrefillWork(2 * params, window, 2 * shape.layers_full_attention * per_pair)


def _layer_numbers_per_token(shape: Shape) -> int:
    """Return the numbers one attention layer stores per token [1]."""
    if shape.kv_lora_rank:
        return shape.kv_lora_rank + shape.rope_head_dim
    return shape.kv_heads * (shape.head_dim + shape.v_head_dim)
