"""KV bytes and FLOPs that follow from the shape of a model (spec: physics of recompute and restore).

Symbols: L layers, n_h query heads, d_qk and d_v head widths, P active parameters, W window [tokens].

Three byte counts of a token are told apart: what is *logically* there (`kv_bytes_per_token`), what a path has to
*move* to restore it (`kv_bytes_per_token_moved`: once, however many GPUs hold a copy) and what engines *allocate* for
it (`kv_bytes_per_token_allocated`: with the copies of tensor parallelism, window layers whole where they do so).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from typing import NamedTuple

from kvsweep.catalog.specs import Indexer, Model, Shape
from kvsweep.errors import InputError

KV_DTYPE_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "nvfp4": 0.5625}
"""Bytes of one number of the KV cache [byte]; nvfp4 has a scale of a byte for 16 numbers."""
INDEX_SCALE_BYTES = 4
"""Index keys are kept in fp8 with a scale of four bytes each (DeepSeek-V3.2 in vLLM and SGLang) [byte]."""


@dataclass(frozen=True, slots=True)
class AttentionLayers:
    """Layers that attend alike.

    `numbers` [1] are kept of each entry and layer, in `heads` equal parts that tensor parallelism can deal out (1:
    every rank keeps all). A query costs `pair_width` multiplications and additions with each entry it sees: entries
    stand for `ratio` tokens, reach back `window` tokens (0: all) and are at most `topk` (0: all).
    """

    layers: int
    numbers: int
    heads: int
    pair_width: int
    window: int = 0
    ratio: int = 1
    topk: int = 0


def attention_layers(shape: Shape) -> tuple[AttentionLayers, ...]:
    """Return the layers of a model that keep KV, by kind; index keys are no part of it (`Shape.indexer`)."""
    width = shape.heads * (shape.head_dim + shape.v_head_dim)
    latent = shape.kv_lora_rank + shape.rope_head_dim if shape.kv_lora_rank else 0
    numbers = latent or shape.kv_heads * (shape.head_dim + shape.v_head_dim)
    heads = 1 if latent else shape.kv_heads
    sparse = shape.indexer.sparse_layers if shape.indexer and not shape.compression else 0
    topk = shape.indexer.topk if shape.indexer else 0
    groups = [
        AttentionLayers(shape.layers_full_attention - sparse, numbers, heads, width),
        AttentionLayers(sparse, numbers, heads, width, topk=topk),
        _window_layers(shape, latent),
    ]
    if shape.compression:
        some = shape.compression
        fine = numbers + (shape.indexer.head_dim if shape.indexer else 0)  # with the index key of the entry
        groups.append(AttentionLayers(some.fine_layers, fine, 1, width, ratio=some.fine_ratio, topk=topk))
        groups.append(AttentionLayers(some.coarse_layers, numbers, 1, width, ratio=some.coarse_ratio))
    return tuple(group for group in groups if group.layers)


def _window_layers(shape: Shape, latent: int) -> AttentionLayers:
    heads = shape.window_kv_heads or shape.kv_heads
    both = 2 * shape.window_head_dim if shape.window_head_dim else shape.head_dim + shape.v_head_dim
    numbers, parts = (latent, 1) if latent else (heads * both, heads)
    return AttentionLayers(shape.layers_window, numbers, parts, shape.heads * both, window=shape.window)


def kv_bytes_per_token(shape: Shape, dtype: str = "bf16") -> float:
    """Return the KV bytes that one more token of context adds, index keys apart [byte].

    2·L_full·kv_heads·head_dim·dtype; latent attention stores one vector for K and V: L·(kv_lora_rank + rope)·dtype.
    Window and linear layers add nothing here (see `kv_fixed_bytes_per_sequence`).
    """
    whole = (group for group in attention_layers(shape) if not group.window)
    return sum(group.layers * group.numbers / group.ratio for group in whole) * KV_DTYPE_BYTES[dtype]


def index_bytes_per_token(shape: Shape) -> float:
    """Return the bytes of a token's index keys [byte]; those of compressed layers are in `kv_bytes_per_token`."""
    index = _own_index(shape)
    return float(index.layers * (index.head_dim + INDEX_SCALE_BYTES)) if index else 0.0


def kv_bytes_per_token_moved(shape: Shape, dtype: str = "bf16") -> float:
    """Return the bytes a path carries for one more restored token [byte]: KV and index keys, once for all ranks."""
    return kv_bytes_per_token(shape, dtype) + index_bytes_per_token(shape)


def kv_bytes_per_token_all_layers(shape: Shape, dtype: str = "bf16") -> float:
    """Return the KV bytes per token [byte] of an engine that keeps window layers whole, like full attention."""
    groups = attention_layers(shape)
    return sum(group.layers * group.numbers / group.ratio for group in groups) * KV_DTYPE_BYTES[dtype]


def kv_fixed_bytes_per_sequence(shape: Shape, dtype: str = "bf16") -> float:
    """Return the bytes a sequence holds whatever its length [byte]: full windows and recurrent state."""
    windows = sum(group.layers * group.numbers * group.window for group in attention_layers(shape))
    return windows * KV_DTYPE_BYTES[dtype] + shape.state_bytes_per_sequence


def kv_bytes_per_token_allocated(
    shape: Shape, tensor_parallel: int, dtype: str = "bf16", window_layers: bool = False
) -> float:
    """Return the bytes per token [byte] that `tensor_parallel` ranks hold together.

    Above kv_heads ranks the heads replicate, and latent attention and index keys are whole on every rank; the logical
    bytes are those of one rank, `kv_bytes_per_token`. Heads that do not divide evenly fill every rank to the largest.
    With `window_layers` those count as if they kept every token.
    """
    ranks = tensor_parallel
    numbers = sum(
        group.layers * group.numbers / group.ratio * (ceil(group.heads / ranks) * ranks / group.heads)
        for group in attention_layers(shape)
        if window_layers or not group.window
    )
    return numbers * KV_DTYPE_BYTES[dtype] + ranks * index_bytes_per_token(shape)


def prefill_flops(model: Model, start: float, end: float) -> float:
    """Return the FLOPs [FLOP] to compute tokens `start` to `end` when the KV of all earlier tokens is at hand.

    2P(j−i) + L_full·n_h·(d_qk+d_v)·(j²−i²) + 2·L_w·n_h·(d_qk+d_v)·W·(j−i). The window term counts a full window for
    the first W tokens too. Sparse layers see no more tokens than they choose, but their index scores all; linear
    layers count through P alone. P excludes embeddings and head where known.
    """
    tokens, pairs = end - start, (end**2 - start**2) / 2
    work = prefill_work(model)
    whole = (work.products + work.window) * tokens + work.pair * pairs
    if not work.sparse_pair:
        return whole
    return whole + work.sparse_pair * (_pairs_within(end, work.reach) - _pairs_within(start, work.reach))


class PrefillWork(NamedTuple):
    """FLOPs of prefill by what they grow with and which kernels do them [FLOP]."""

    products: float
    """Of a token, in matrix products and experts: 2P."""
    window: float
    """Of a token, in the attention of window layers."""
    pair: float
    """Of a token and each token before it, in the attention of full layers and the scores of indexes."""
    sparse_pair: float = 0.0
    """Of a token and each of the last `reach` tokens: sparse attention looks at as many, wherever they lie."""
    reach: float = inf
    """Tokens a query of sparse attention sees at most [token]."""


def prefill_work(model: Model) -> PrefillWork:
    """Return what a token of prefill costs; raises InputError for a model without shape and weights."""
    if model.shape is None or model.weights is None:
        raise InputError(f"model {model.key}: no shape and weights in the catalog; FLOPs per token are unknown")
    window, pair, sparse, reach = 0.0, _index_work(model.shape), 0.0, inf
    for group in attention_layers(model.shape):
        work = 2 * group.layers * group.pair_width / group.ratio
        if group.window:
            window += work * group.window
        elif group.topk:
            sparse, reach = sparse + work, float(group.topk * group.ratio)
        else:
            pair += work
    return PrefillWork(2 * model.weights.computed, window, pair, sparse, reach)


def _index_work(shape: Shape) -> float:
    if shape.indexer is None:
        return 0.0
    ratio = shape.compression.fine_ratio if shape.compression else 1
    return 2 * shape.indexer.layers * shape.indexer.heads * shape.indexer.head_dim / ratio


def _pairs_within(position: float, reach: float) -> float:
    """Return the token pairs up to `position` when a query sees `reach` tokens at most."""
    near = min(position, reach)
    return near**2 / 2 + (position - near) * reach


def _own_index(shape: Shape) -> Indexer | None:
    return None if shape.compression else shape.indexer
