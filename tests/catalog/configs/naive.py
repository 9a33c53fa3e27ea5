"""The slow, obvious twin of reading configs: layer by layer, matrix by matrix, each family by its own few lines."""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]


def bytes_and_parameters(config: Config) -> tuple[float, float, int, int]:
    """Return KV bytes a token, fixed bytes a sequence (bf16), all parameters, and those a token passes in blocks."""
    per_token = fixed = 0.0
    total = passed = 0
    hidden = config["hidden_size"]
    for index in range(config["num_hidden_layers"]):
        kind = config["layer_types"][index] if "layer_types" in config else "full_attention"
        grows, stays, mixing = mixer(config, kind)
        per_token, fixed = per_token + grows, fixed + stays
        every, used = block(config, index)
        norms = 2 * hidden
        total, passed = total + mixing + every + norms, passed + mixing + used + norms
    tables = config["vocab_size"] * hidden
    for _ in range(1 if config["tie_word_embeddings"] else 2):
        total += tables
    return per_token, fixed, total + hidden, passed


def mixer(config: Config, kind: str) -> tuple[float, float, int]:
    hidden = config["hidden_size"]
    if kind == "linear_attention":
        q = k = config["linear_num_key_heads"] * config["linear_key_head_dim"]
        v = z = config["linear_num_value_heads"] * config["linear_value_head_dim"]
        taps = config["linear_conv_kernel_dim"]
        state = config["linear_num_value_heads"] * config["linear_key_head_dim"] * config["linear_value_head_dim"]
        weights = hidden * q + hidden * k + hidden * v + hidden * z + v * hidden
        beta_and_decay = 2 * hidden * config["linear_num_value_heads"] + 2 * config["linear_num_value_heads"]
        conv = (q + k + v) * taps
        return 0.0, 4 * state + 2 * (q + k + v) * (taps - 1), weights + beta_and_decay + conv + z_norm(config)
    if kind == "mamba":
        inner = config["mamba_n_heads"] * config["mamba_d_head"]
        b = c = config["mamba_n_groups"] * config["mamba_d_state"]
        taps = config["mamba_d_conv"]
        x_gate_b_c_dt = hidden * inner + hidden * inner + hidden * b + hidden * c + hidden * config["mamba_n_heads"]
        conv = (inner + b + c) * taps + (inner + b + c)
        small = config["mamba_n_heads"] * 3 + inner
        state = 4 * inner * config["mamba_d_state"] + 2 * (inner + b + c) * (taps - 1)
        return 0.0, state, x_gate_b_c_dt + conv + small + inner * hidden
    if "kv_lora_rank" in config:
        return latent(config)
    n, m, d = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    weights = hidden * n * d + hidden * m * d + hidden * m * d + n * d * hidden
    a_token = (m * d + m * d) * 2
    if kind in ("sliding_attention", "chunked_attention"):
        return 0.0, a_token * config["sliding_window"], weights
    return a_token, 0.0, weights


def z_norm(config: Config) -> int:
    width: int = config["linear_value_head_dim"]
    return width


def latent(config: Config) -> tuple[float, float, int]:
    hidden, n = config["hidden_size"], config["num_attention_heads"]
    down, rope = config["kv_lora_rank"], config["qk_rope_head_dim"]
    nope, v, q = config["qk_nope_head_dim"], config["v_head_dim"], config["q_lora_rank"]
    weights = hidden * q + q + q * n * nope + q * n * rope  # with the norm of q
    weights += hidden * down + down + hidden * rope + down * n * nope + down * n * v + n * v * hidden
    if "index_topk" in config:
        wide = config["index_head_dim"]
        weights += q * config["index_n_heads"] * wide + hidden * wide + hidden * config["index_n_heads"] + wide + wide
    return (down + rope) * 2.0, 0.0, weights


def block(config: Config, index: int) -> tuple[int, int]:
    """Return the parameters of the MLP or the mixture of layer `index`, and those a token passes."""
    hidden = config["hidden_size"]
    experts = config.get("n_routed_experts", 0)
    if not experts or index < config["first_k_dense_replace"]:
        dense = hidden * config["intermediate_size"] * 3
        return dense, dense
    one = hidden * config["moe_intermediate_size"] * 3
    always = config["n_shared_experts"] * one + hidden * experts + experts
    return experts * one + always, config["num_experts_per_tok"] * one + always
