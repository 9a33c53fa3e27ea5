"""How the layers of a config attend: heads, latent vectors, windows, indexes, states; their bytes and parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvsweep.catalog.configs.fields import Config
from kvsweep.catalog.configs.layers import FULL, MAMBA, STATE, WINDOW, Layer
from kvsweep.catalog.specs import Compression, Indexer
from kvsweep.errors import InputError

STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of a number of the recurrent state; engines keep it in fp32 unless the config says otherwise [byte]."""


@dataclass(frozen=True, slots=True)
class Heads:
    """Query and KV heads and their width."""

    query: int
    kv: int
    width: int


def full_heads(config: Config) -> Heads:
    """Return the heads of the layers that attend to the whole context."""
    plain = window_heads(config)
    kv = config.count("num_global_key_value_heads", default=plain.kv)
    return Heads(plain.query, kv, config.count("global_head_dim", default=plain.width))


def window_heads(config: Config) -> Heads:
    """Return the heads of the layers that attend to a window, which are those of all layers in most models."""
    query = config.count("num_attention_heads", "n_head", "num_heads")
    kv = 1 if config.flag("multi_query") else config.count("num_key_value_heads", "num_kv_heads", default=query)
    hidden = config.count("hidden_size", "n_embd", "d_model")
    if not config.has("head_dim") and not is_latent(config) and hidden % query:
        raise InputError(f"{config.where}: head_dim: missing, and {query} heads do not divide hidden_size {hidden}")
    return Heads(query, kv, config.count("head_dim", default=max(1, hidden // query)))


def is_latent(config: Config) -> bool:
    """Return whether one latent vector serves as K and V of all heads (MLA)."""
    return config.has("kv_lora_rank")


def is_compressed(config: Config) -> bool:
    """Return whether layers keep one entry for several tokens (DeepSeek-V4)."""
    return config.has("compress_ratios")


def kv_shape(config: Config, layers: Sequence[Layer]) -> dict[str, Any]:
    """Return the fields of `Shape` about heads and the widths of what is kept."""
    full, narrow = full_heads(config), window_heads(config)
    fields: dict[str, Any] = {
        "heads": full.query, "kv_heads": full.kv, "head_dim": full.width, "v_head_dim": full.width,
    }  # fmt: skip
    if is_compressed(config):
        rope = config.count("qk_rope_head_dim")
        return fields | {"kv_lora_rank": full.width - rope, "rope_head_dim": rope}
    if is_latent(config):
        rope = config.count("qk_rope_head_dim", lowest=0)
        return fields | {
            "kv_lora_rank": config.count("kv_lora_rank"), "rope_head_dim": rope,
            "head_dim": config.count("qk_nope_head_dim") + rope, "v_head_dim": config.count("v_head_dim"),
        }  # fmt: skip
    if any(layer.kind == WINDOW for layer in layers) and narrow != full:
        fields |= {"window_kv_heads": narrow.kv, "window_head_dim": narrow.width}
    return fields


def compression(config: Config, count: int) -> Compression | None:
    """Return the layers that keep one entry for several tokens; finer ones than 64 are those with an index."""
    if not is_compressed(config):
        return None
    ratios = [int(ratio) for ratio in config.rows("compress_ratios", count) if ratio]
    kinds = sorted(set(ratios))
    if len(kinds) > 2 or any(ratio < 1 for ratio in kinds):
        raise InputError(
            f"{config.where}: compress_ratios: {kinds}; allowed: 0 and at most two ratios, fine and coarse"
        )
    fine = [ratio for ratio in ratios if ratio < 64]
    coarse = [ratio for ratio in ratios if ratio >= 64]
    return Compression(
        fine_layers=len(fine), fine_ratio=fine[0] if fine else 1,
        coarse_layers=len(coarse), coarse_ratio=coarse[0] if coarse else 1,
    )  # fmt: skip


def indexer(config: Config, layers: Sequence[Layer]) -> Indexer | None:
    """Return what chooses the tokens of sparse attention (DSA, or MiniMax's blocks)."""
    count = len(layers)
    sparse = config.part("sparse_attention_config")
    if sparse is not None and sparse.flag("use_sparse_attention", default=True):
        on = sum(bool(item) for item in sparse.rows("sparse_attention_freq", count))
        return Indexer(
            layers=on, sparse_layers=on,
            heads=sparse.count("sparse_num_index_heads"), head_dim=sparse.count("sparse_index_dim"),
            topk=sparse.count("sparse_topk_blocks") * sparse.count("sparse_block_size"),
        )  # fmt: skip
    if not config.has("index_topk"):
        return None
    chosen = config.rows("indexer_types", count) if config.has("indexer_types") else ["full"] * count
    made = compression(config, count)
    on = made.fine_layers if made else sum(kind == "full" for kind in chosen)
    return Indexer(
        layers=on, sparse_layers=on if made else count, heads=config.count("index_n_heads"),
        head_dim=config.count("index_head_dim"), topk=config.count("index_topk"),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class State:
    """The recurrence of a linear-attention or Mamba layer: numbers of its state and of its convolution's window.

    `matrices` and `rest` are its parameters [1]: projections, and convolution, decays and norms.
    """

    numbers: int
    convolution: int
    matrices: int
    rest: int


def delta_state(config: Config, hidden: int) -> State:
    """Return the state of a gated delta net (Qwen3-Next, Qwen3.5) or of a KDA layer (Kimi)."""
    kimi = config.part("linear_attn_config")
    if kimi is not None:
        heads, width, kernel = kimi.count("num_heads"), kimi.count("head_dim"), kimi.count("short_conv_kernel_size")
        inner = heads * width
        # q, k, v, output; the gate is a full projection or one of rank `width`, as the decay is.
        low_rank = hidden * width + width * inner
        gate = hidden * inner if kimi.flag("use_full_rank_gate") else low_rank
        matrices = 4 * hidden * inner + gate + low_rank + hidden * heads
        return State(heads * width**2, 3 * inner * (kernel - 1), matrices, 3 * inner * kernel + inner + heads + width)
    keys, values = config.count("linear_num_key_heads"), config.count("linear_num_value_heads")
    key_width, value_width = config.count("linear_key_head_dim"), config.count("linear_value_head_dim")
    kernel = config.count("linear_conv_kernel_dim")
    key, value = keys * key_width, values * value_width
    channels = 2 * key + value
    matrices = hidden * (2 * key + 2 * value) + hidden * 2 * values + value * hidden
    rest = channels * kernel + 2 * values + value_width
    return State(values * key_width * value_width, channels * (kernel - 1), matrices, rest)


def mamba_state(config: Config, hidden: int) -> State:
    """Return the state of a Mamba-2 layer, or a Mamba-1 layer where the config names no heads."""
    size = config.count("ssm_state_size", "mamba_d_state")
    kernel = config.count("conv_kernel", "mamba_d_conv")
    if not config.has("mamba_num_heads", "mamba_n_heads"):
        inner = config.count("mamba_expand") * hidden
        rank = config.count("mamba_dt_rank", default=-(-hidden // 16))
        matrices = hidden * 2 * inner + inner * (rank + 2 * size) + rank * inner + inner * hidden
        return State(inner * size, inner * (kernel - 1), matrices, inner * (kernel + 1) + inner * (size + 2))
    heads = config.count("mamba_num_heads", "mamba_n_heads")
    inner = heads * config.count("mamba_head_dim", "mamba_d_head")
    channels = inner + 2 * config.count("n_groups", "mamba_num_groups", "mamba_n_groups") * size
    matrices = hidden * (inner + channels + heads) + inner * hidden
    return State(inner * size, channels * (kernel - 1), matrices, channels * (kernel + 1) + 3 * heads + inner)


def state_of(config: Config, kind: str, hidden: int) -> State:
    """Return the state of a layer of `kind`; none for layers that attend."""
    if kind == STATE:
        return delta_state(config, hidden)
    if kind == MAMBA:
        return mamba_state(config, hidden)
    return State(0, 0, 0, 0)


def state_bytes(config: Config, layers: Sequence[Layer], hidden: int) -> int:
    """Return the bytes of all states of a sequence [byte]: the recurrence in its type, the convolution in bf16."""
    each = STATE_BYTES.get(config.text("mamba_ssm_dtype", "float32"), 4)
    states = [state_of(config, layer.kind, hidden) for layer in layers if layer.kind in (STATE, MAMBA)]
    return sum(state.numbers * each + state.convolution * 2 for state in states)


def attention_matrices(config: Config, kind: str, hidden: int) -> int:
    """Return the parameters [1] of the projections of an attending layer of `kind`."""
    if kind not in (FULL, WINDOW):
        return 0
    if is_latent(config):
        return _latent_matrices(config, hidden)
    heads = full_heads(config) if kind == FULL else window_heads(config)
    if is_compressed(config):
        rank, groups = config.count("q_lora_rank"), config.count("o_groups")
        out = config.count("o_lora_rank")
        inner = heads.query * heads.width
        return hidden * rank + rank * inner + hidden * heads.width + inner * out + groups * out * hidden
    gated = config.flag("attn_output_gate", default=config.text("model_type").startswith("qwen3_next"))
    shared = kind == FULL and config.flag("attention_k_eq_v")  # V is K before its rotation
    query = hidden * heads.query * heads.width
    return query * (2 if gated else 1) + hidden * heads.kv * heads.width * (1 if shared else 2) + query


def _latent_matrices(config: Config, hidden: int) -> int:
    heads = config.count("num_attention_heads")
    nope, rope = config.count("qk_nope_head_dim"), config.count("qk_rope_head_dim", lowest=0)
    value, latent = config.count("v_head_dim"), config.count("kv_lora_rank")
    rank = config.count("q_lora_rank", default=0, lowest=0)
    width = heads * (nope + rope)
    query = hidden * rank + rank * width if rank else hidden * width
    output = heads * value * hidden * (2 if config.flag("mla_use_output_gate") else 1)
    return query + hidden * (latent + rope) + latent * heads * (nope + value) + output
