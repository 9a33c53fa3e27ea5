"""Parameters of a config by class: what a checkpoint holds, and what a token is multiplied with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvsweep.catalog.configs.attention import (
    attention_matrices,
    compression,
    full_heads,
    indexer,
    is_compressed,
    is_latent,
    state_of,
    window_heads,
)  # fmt: skip
from kvsweep.catalog.configs.fields import Config
from kvsweep.catalog.configs.layers import FULL, WINDOW, Layer, expert_count


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters [1] of a model by what they do; `used_*` are those one token passes.

    `rest` are norms, biases, convolutions, decays and routers: bf16 in every checkpoint.
    """

    tables: int
    head: int
    attention: int
    mlp: int
    shared: int
    experts: int
    rest: int
    final_norm: int
    used_experts: int
    used_rest: int

    @property
    def total(self) -> int:
        """All parameters, multi-token-prediction layers and vision towers apart."""
        blocks = self.attention + self.mlp + self.shared + self.experts
        return self.tables + blocks + self.rest + self.final_norm

    @property
    def per_token(self) -> int:
        """Parameters a token passes in the blocks."""
        return self.attention + self.mlp + self.shared + self.used_experts + self.used_rest

    @property
    def unquantized(self) -> int:
        """Parameters that stay bf16 in quantised checkpoints."""
        return self.tables + self.rest + self.final_norm


def parameters(config: Config, layers: Sequence[Layer]) -> Parameters:
    """Return the parameters of a config with these `layers`."""
    hidden = config.count("hidden_size", "n_embd", "d_model")
    head = hidden * config.count("vocab_size")
    experts, chosen = expert_count(config), experts_per_token(config)
    mixtures = sum(layer.experts for layer in layers)
    size, biases = _expert(config, hidden), _expert_biases(config, hidden)
    router = hidden * experts + _router_rest(config, hidden, experts)
    latent = config.count("routed_expert_hidden_size", default=0, lowest=0)
    attention = sum(
        attention_matrices(config, layer.kind, hidden) + state_of(config, layer.kind, hidden).matrices
        for layer in layers
    )
    rest = sum(_layer_rest(config, layer, hidden) for layer in layers) + mixtures * router
    tied = config.flag("tie_word_embeddings", default=_tied_unless_stated(config))
    return Parameters(
        tables=head if tied else 2 * head,
        head=head,
        attention=attention + mixtures * 2 * hidden * latent + _index(config, layers, hidden),
        mlp=sum(layer.mlp for layer in layers) * _matrices(config) * hidden * dense_width(config),
        shared=mixtures * _matrices(config) * hidden * shared_width(config),
        experts=mixtures * experts * size,
        rest=rest + mixtures * experts * biases + _compressor_norms(config, len(layers)),
        final_norm=hidden,
        used_experts=mixtures * chosen * size,
        used_rest=rest + mixtures * chosen * biases + _compressor_norms(config, len(layers)),
    )


def experts_per_token(config: Config) -> int:
    """Return the routed experts a token passes, 0 for none."""
    if expert_count(config) < 2:
        return 0
    return config.count("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk", "num_selects")


def expert_width(config: Config) -> int:
    """Return the inner width of a routed expert."""
    return config.count("moe_intermediate_size", "expert_intermediate_size", "intermediate_size", "ffn_hidden_size")


def dense_width(config: Config) -> int:
    """Return the inner width of plain MLPs."""
    names = ("dense_intermediate_size", "intermediate_size_mlp", "intermediate_size", "n_inner", "ffn_hidden_size")
    default = None if expert_count(config) < 2 else 0
    return config.count(*names, default=default)


def shared_width(config: Config) -> int:
    """Return the inner width of what is shared beside routed experts, all of it together."""
    stated = ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size")
    if config.has(*stated):
        return config.count(*stated, lowest=0)
    count = config.count("n_shared_experts", "num_shared_experts", default=0, lowest=0)
    if config.has("interleave_moe_layer_step"):
        count = 1  # Llama 4 has one, unstated
    return count * expert_width(config) if expert_count(config) > 1 else 0


def _matrices(config: Config) -> int:
    """Return the matrices of an MLP: gate, up and down, or two for an activation without a gate."""
    ungated = config.text("model_type") in ("nemotron_h", "gpt2", "opt", "phi", "gpt_neox", "falcon", "starcoder2")
    return 2 if ungated else 3


def _tied_unless_stated(config: Config) -> bool:
    """Return what a family takes where a config says nothing of its embeddings."""
    return config.text("model_type").startswith(("gemma", "gpt2", "cohere"))


def _expert(config: Config, hidden: int) -> int:
    if expert_count(config) < 2:
        return 0
    width = config.count("routed_expert_hidden_size", default=hidden)
    return _matrices(config) * width * expert_width(config)


def _expert_biases(config: Config, hidden: int) -> int:
    return 2 * expert_width(config) + hidden if config.text("model_type") == "gpt_oss" else 0


def _router_rest(config: Config, hidden: int, experts: int) -> int:
    """Return what a router holds beside its matrix: a bias of each expert, a gate of the shared expert."""
    family = config.text("model_type")
    if config.has("shared_expert_intermediate_size") and family.startswith("qwen"):
        return hidden if config.count("shared_expert_intermediate_size", lowest=0) else 0
    unbiased = ("qwen", "mixtral", "llama4", "gemma", "jamba", "granite", "phimoe", "olmoe", "deepseek_v2")
    return 0 if family.startswith(unbiased) else experts


def _layer_rest(config: Config, layer: Layer, hidden: int) -> int:
    """Return the norms, biases and decays of one layer."""
    family = config.text("model_type")
    blocks = 1 if config.has("hybrid_override_pattern") else 2
    norms = hidden * (4 if family.startswith(("gemma2", "gemma3", "gemma4")) else blocks)
    state = state_of(config, layer.kind, hidden).rest
    if layer.kind not in (FULL, WINDOW):
        return norms + state
    if is_compressed(config):
        return norms + _compressed_rest(config, hidden)
    if is_latent(config):
        return norms + config.count("q_lora_rank", default=0, lowest=0) + config.count("kv_lora_rank")
    heads = full_heads(config) if layer.kind == FULL else window_heads(config)
    normed = _norm_width(config, layer.kind) if _query_norms(config) else 0
    return norms + normed + _biases(config, hidden, heads.kv)


def _query_norms(config: Config) -> bool:
    family = config.text("model_type")
    stated = config.flag("use_qk_norm") and not family.startswith("llama4")  # whose norm has no parameters
    return stated or family.startswith(("qwen3", "gemma3", "gemma4"))


def _norm_width(config: Config, kind: str) -> int:
    heads = full_heads(config) if kind == FULL else window_heads(config)
    if config.text("qk_norm_type") == "per_layer":
        return (heads.query + heads.kv) * heads.width
    return 2 * heads.width


def _biases(config: Config, hidden: int, kv_heads: int) -> int:
    heads, family = window_heads(config), config.text("model_type")
    biased = config.flag("attention_bias", default=family.startswith("qwen2"))
    if not biased:
        return 0
    projections = (heads.query + 2 * kv_heads) * heads.width
    return projections + (hidden + heads.query if family == "gpt_oss" else 0)  # and attention sinks


def _index(config: Config, layers: Sequence[Layer], hidden: int) -> int:
    """Return the matrices of indexes, and of the compressors of DeepSeek-V4."""
    index = indexer(config, layers)
    made = compression(config, len(layers))
    if index is None:
        return 0
    width = index.heads * index.head_dim
    if made is not None:
        kept = config.count("head_dim")
        own = config.count("q_lora_rank") * width + hidden * index.heads + 4 * hidden * index.head_dim
        return made.fine_layers * (own + 4 * hidden * kept) + made.coarse_layers * 2 * hidden * kept
    if config.has("sparse_attention_config"):
        return index.layers * (hidden * width + hidden * index.head_dim)
    return index.layers * (config.count("q_lora_rank") * width + hidden * index.head_dim + hidden * index.heads)


def _compressed_rest(config: Config, hidden: int) -> int:
    """Return norms, attention sinks and hyper-connections of a layer of DeepSeek-V4."""
    streams = config.count("hc_mult", default=1)
    connections = 2 * (2 + streams) * streams * streams * hidden if streams > 1 else 0
    heads = full_heads(config)
    return config.count("q_lora_rank") + heads.width + heads.query + connections


def _compressor_norms(config: Config, count: int) -> int:
    """Return norms and positions of compressors, and the norms of index keys."""
    made = compression(config, count)
    if made is None:
        if not config.has("index_topk"):
            return 0
        kinds = config.rows("indexer_types", count) if config.has("indexer_types") else ["full"] * count
        return 2 * config.count("index_head_dim") * kinds.count("full")
    width = config.count("head_dim")
    fine = made.fine_layers * (width + 2 * width * made.fine_ratio)
    return fine + made.coarse_layers * (width + width * made.coarse_ratio)
