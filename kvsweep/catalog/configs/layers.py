"""Which layers of a config attend to what, and which are mixtures of experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvsweep.catalog.configs.fields import Config
from kvsweep.errors import InputError

FULL, WINDOW, STATE, MAMBA, PLAIN = "full", "window", "state", "mamba", "plain"
"""Kinds of layers: whole context, a window of it, linear attention, Mamba, and MLP or experts alone."""
NAMES: Mapping[str, str] = {
    "full_attention": FULL, "attention": FULL, "sliding_attention": WINDOW, "chunked_attention": WINDOW,
    "linear_attention": STATE, "mamba": MAMBA,
}  # fmt: skip
"""Kinds by the items of ``layer_types``."""
LETTERS: Mapping[str, str] = {"*": FULL, "M": MAMBA, "-": PLAIN, "E": PLAIN}
"""Kinds by the letters of ``hybrid_override_pattern``."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: how it mixes tokens (`kind`), and whether it has an MLP and experts."""

    kind: str
    mlp: bool
    experts: bool


def layers(config: Config) -> list[Layer]:
    """Return the layers of a config in order."""
    count = config.count("num_hidden_layers", "n_layer", "num_layers")
    if count > 10_000:
        raise InputError(f"{config.where}: num_hidden_layers: {count}; allowed: at most 10000")
    if config.count("num_kv_shared_layers", default=0, lowest=0):
        raise InputError(f"{config.where}: num_kv_shared_layers: layers that share KV are not modelled; allowed: 0")
    pattern = config.text("hybrid_override_pattern")
    if pattern:
        return _by_letters(config, pattern, count)
    kinds, experts = _kinds(config, count), _experts(config, count)
    both = config.flag("enable_moe_block")  # an MLP beside the experts, as in Gemma 4
    return [Layer(kind, both or not is_moe, is_moe) for kind, is_moe in zip(kinds, experts, strict=True)]


def _by_letters(config: Config, pattern: str, count: int) -> list[Layer]:
    unknown = sorted(set(pattern) - set(LETTERS))
    if unknown or len(pattern) != count:
        raise InputError(
            f"{config.where}: hybrid_override_pattern: {pattern[:40]!r}; allowed: {count} letters of {''.join(LETTERS)}"
        )
    return [Layer(LETTERS[letter], letter == "-", letter == "E") for letter in pattern]


def _kinds(config: Config, count: int) -> list[str]:
    linear = config.part("linear_attn_config")
    if linear is not None:
        full = linear.values.get("full_attn_layers")
        if not isinstance(full, list):
            raise InputError(f"{linear.where}: full_attn_layers: missing; allowed: a list of layers, counted from 1")
        return [FULL if index + 1 in full else STATE for index in range(count)]
    if config.has("layer_types") and not _window_off(config):
        return [NAMES[name] for name in config.rows("layer_types", count, list(NAMES))]
    if config.has("attention_chunk_size"):
        if not config.values.get("no_rope_layers"):  # Llama 4: every fourth layer attends to the whole context
            return [FULL if (index + 1) % 4 == 0 else WINDOW for index in range(count)]
        return [WINDOW if roped else FULL for roped in config.rows("no_rope_layers", count)]
    every = config.count("full_attention_interval", default=0, lowest=0)
    if every:
        return [FULL if (index + 1) % every == 0 else STATE for index in range(count)]
    period = config.count("attn_layer_period", default=0, lowest=0)
    if period:
        offset = config.count("attn_layer_offset", default=0, lowest=0)
        return [FULL if index % period == offset else MAMBA for index in range(count)]
    return _window_kinds(config, count)


def _window_off(config: Config) -> bool:
    """Return whether sliding layers are named but switched off, as most Qwen configs have it."""
    named = config.values.get("layer_types")
    only = isinstance(named, list) and {str(name) for name in named} <= {"full_attention", "sliding_attention"}
    return config.values.get("use_sliding_window") is False and only


def _window_kinds(config: Config, count: int) -> list[str]:
    if not config.has("sliding_window") or config.values.get("use_sliding_window") is False:
        return [FULL] * count
    pattern = config.count("sliding_window_pattern", "_sliding_window_pattern", default=0, lowest=0)
    if not pattern and config.text("model_type").startswith("gemma2"):
        pattern = 2
    if pattern:
        return [FULL if (index + 1) % pattern == 0 else WINDOW for index in range(count)]
    if config.flag("use_sliding_window") and config.has("max_window_layers"):
        first = config.count("max_window_layers", lowest=0)
        return [WINDOW if index >= first else FULL for index in range(count)]
    return [WINDOW] * count


def expert_count(config: Config) -> int:
    """Return the routed experts of a mixture layer, 0 for none."""
    return config.count("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts", default=0, lowest=0)


def _experts(config: Config, count: int) -> list[bool]:
    """Return which layers are mixtures, by the rule of the config's own family."""
    if expert_count(config) < 2:
        return [False] * count
    if isinstance(config.values.get("moe_layer_freq"), list):
        return [bool(item) for item in config.rows("moe_layer_freq", count)]
    step = config.count("interleave_moe_layer_step", default=0, lowest=0)
    if step:
        return [(index + 1) % step == 0 for index in range(count)]
    period = config.count("expert_layer_period", default=0, lowest=0)
    if period:
        offset = config.count("expert_layer_offset", default=0, lowest=0)
        return [index % period == offset for index in range(count)]
    plain = config.values.get("mlp_only_layers") or []
    sparse = config.count("decoder_sparse_step", default=1)
    first = config.count("first_k_dense_replace", default=0, lowest=0)
    every = config.count("moe_layer_freq", default=1)
    return [
        index >= first and index % every == 0 and (index + 1) % sparse == 0 and index not in plain
        for index in range(count)
    ]
