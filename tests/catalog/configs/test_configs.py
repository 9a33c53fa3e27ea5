"""Models read from ``config.json``: against public facts, against a plain twin, and what is refused."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, get_args

import pytest

from kvsweep.catalog import models
from kvsweep.catalog.configs.fields import Config
from kvsweep.catalog.configs.model import model_of, read_model
from kvsweep.catalog.configs.quantization import BYTES, scheme
from kvsweep.catalog.load import load
from kvsweep.catalog.specs import Model, Shape, WeightDtype, Weights
from kvsweep.errors import InputError
from tests.catalog.configs.naive import bytes_and_parameters

FACTS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("facts.json").read_text(encoding="utf-8"))
SMALL = {
    "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16,
    "intermediate_size": 128, "vocab_size": 100_000, "max_position_embeddings": 4096, "tie_word_embeddings": False,
}  # fmt: skip


def model(config: dict[str, Any]) -> Model:
    return model_of(Config(config, "c.json"), "c")


def parts(entry: Model) -> tuple[Shape, Weights]:
    assert entry.shape is not None and entry.weights is not None
    return entry.shape, entry.weights


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact["name"])
def test_public_models(fact: dict[str, Any]) -> None:
    entry = model(fact["config"])
    shape, weights = parts(entry)
    assert models.kv_bytes_per_token(shape) == fact["kv_bytes_per_token_bf16"]
    assert models.kv_fixed_bytes_per_sequence(shape) == fact["fixed_bytes_per_sequence"]
    assert models.prefill_work(entry).products == fact["flops_per_token_context0"]
    assert (weights.total, weights.active) == (fact["params_total"], fact["params_active"])
    assert weights.bytes == pytest.approx(fact["weight_bytes_computed"], abs=1)
    assert models.index_bytes_per_token(shape) == fact.get("index_bytes_per_token", models.index_bytes_per_token(shape))


def test_rows_of_the_catalog() -> None:
    catalog = load().models
    known = [fact for fact in FACTS if fact["name"].casefold() in catalog]
    assert len(known) >= 47
    for fact in known:
        entry = catalog[fact["name"].casefold()]
        shape, weights = parts(entry)
        assert models.kv_bytes_per_token(shape) == fact["kv_bytes_per_token_bf16"], entry.key
        assert models.kv_fixed_bytes_per_sequence(shape) == fact["fixed_bytes_per_sequence"], entry.key
        assert models.prefill_work(entry).products == fact["flops_per_token_context0"], entry.key
        assert weights.bytes == pytest.approx(fact["weight_bytes_computed"], abs=1), entry.key


def generated(seed: int) -> dict[str, Any]:
    """Return a config of a random family and random dimensions."""
    rng = random.Random(seed)
    heads = rng.choice((2, 4, 8, 16, 40))
    config = SMALL | {
        "hidden_size": 64 * rng.randint(1, 120), "num_hidden_layers": rng.randint(1, 40), "num_attention_heads": heads,
        "num_key_value_heads": rng.choice([k for k in (1, 2, 4, 8) if heads % k == 0]),
        "head_dim": rng.choice((32, 64, 80, 128, 256)), "intermediate_size": rng.randint(100, 30_000),
        "vocab_size": rng.randint(30_000, 200_000), "tie_word_embeddings": rng.random() < 0.5,
    }  # fmt: skip
    family = rng.choice(("plain", "window", "chunk", "delta", "mamba", "latent", "sparse"))
    if family in ("window", "chunk", "delta", "mamba"):
        other = {"window": "sliding_attention", "chunk": "chunked_attention", "delta": "linear_attention"}
        kinds = ("full_attention", other.get(family, family))
        config["layer_types"] = [rng.choice(kinds) for _ in range(config["num_hidden_layers"])]
        config["sliding_window"] = rng.choice((128, 512, 1024, 4096))
    if family == "delta":
        config |= {
            "linear_num_key_heads": rng.randint(1, 16), "linear_num_value_heads": 2 * rng.randint(1, 16),
            "linear_key_head_dim": 64, "linear_value_head_dim": 128, "linear_conv_kernel_dim": rng.randint(2, 5),
        }  # fmt: skip
    if family == "mamba":
        config |= {
            "mamba_n_heads": rng.randint(1, 64), "mamba_d_head": 64, "mamba_n_groups": rng.randint(1, 8),
            "mamba_d_state": rng.choice((16, 128, 256)), "mamba_d_conv": 4,
        }  # fmt: skip
    if family in ("latent", "sparse"):
        config |= {
            "kv_lora_rank": rng.choice((256, 512)), "qk_rope_head_dim": 64, "qk_nope_head_dim": rng.choice((64, 128)),
            "v_head_dim": rng.choice((64, 128)), "q_lora_rank": rng.choice((512, 1536)),
        }  # fmt: skip
    if family == "sparse":
        config |= {"index_topk": 2048, "index_head_dim": 128, "index_n_heads": rng.choice((32, 64))}
    if rng.random() < 0.5:
        config |= {
            "model_type": "deepseek_v3", "n_routed_experts": rng.choice((8, 64, 256)), "moe_intermediate_size": 512,
            "num_experts_per_tok": rng.randint(1, 8), "n_shared_experts": rng.randint(0, 2),
            "first_k_dense_replace": rng.randint(0, 3),
        }  # fmt: skip
    return config


@pytest.mark.parametrize("seed", range(200))
def test_generated_configs_against_the_plain_twin(seed: int) -> None:
    config = generated(seed)
    if bytes_and_parameters(config)[2] < 1e6:
        config["vocab_size"] *= 100
    entry = model(config)
    shape, weights = parts(entry)
    per_token, fixed, total, passed = bytes_and_parameters(config)
    assert models.kv_bytes_per_token(shape) == per_token
    assert models.kv_fixed_bytes_per_sequence(shape) == fixed
    assert (weights.total, weights.per_token, weights.bytes) == (total, passed, 2.0 * total)
    assert models.prefill_flops(entry, 0, 1) >= 2 * passed


def test_a_path_is_taken_wherever_a_model_is_named(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(SMALL))
    by_file, by_folder = (load().part("models", str(path), "--model") for path in (file, tmp_path))
    assert by_file.shape == by_folder.shape == model(SMALL).shape
    assert by_file.bytes_per_block == 16 * 4 * 2 * 2 * 16 * 2


@pytest.mark.parametrize(
    ("quantization", "dtype", "size", "classes"),
    [
        (None, "bf16", 2.0, ()),
        ({"quant_method": "fp8"}, "fp8", 1.0, ("attention", "mlp", "shared", "experts")),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", BYTES["fp8"],
         ("attention", "mlp", "shared", "experts")),
        ({"quant_method": "mxfp4"}, "mxfp4", 0.53125, ("experts",)),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}, "nvfp4", 0.5625,
         ("attention", "mlp", "shared", "experts")),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["*self_attn*", "lm_head"]},
         "nvfp4", 0.5625, ("mlp", "shared", "experts")),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, "int4", 0.5 + 2.5 / 128,
         ("attention", "mlp", "shared", "experts")),
        ({"quant_method": "compressed-tensors", "ignore": ["re:.*mlp.gate$", "re:.*shared_expert.*", "lm_head"],
          "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}}},
         "int4", 0.5625, ("attention", "mlp", "experts")),
        ({"quant_method": "compressed-tensors", "ignore": ["model.layers.0.mlp.down_proj"],
          "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}},
         "fp8", 1.0, ("attention", "mlp", "shared", "experts")),
    ],
)  # fmt: skip
def test_quantised_weights(quantization: object, dtype: str, size: float, classes: tuple[str, ...]) -> None:
    found = scheme(Config({"quantization_config": quantization}, "c.json"))
    assert (found.dtype, found.size, found.classes) == (dtype, pytest.approx(size), classes)


def test_every_weight_dtype_has_its_bytes() -> None:
    assert set(get_args(WeightDtype)) == set(BYTES)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": None}, "c.json: hidden_size: missing; a language model's config.json states it"),
        ({"num_hidden_layers": "4"}, "c.json: num_hidden_layers: '4'; allowed: a whole number from 1 on"),
        ({"num_hidden_layers": 10**9}, "c.json: num_hidden_layers: 1000000000; allowed: at most 10000"),
        ({"layer_types": ["full_attention"]}, "allowed: a list of 4 items, one a layer"),
        ({"layer_types": ["spiral"] * 4}, "c.json: layer_types: no 'spiral'"),
        ({"num_kv_shared_layers": 2}, "c.json: num_kv_shared_layers: layers that share KV are not modelled"),
        ({"tie_word_embeddings": "yes"}, "c.json: tie_word_embeddings: 'yes'; allowed: true, false"),
        ({"head_dim": None, "num_attention_heads": 7}, "c.json: head_dim: missing, and 7 heads do not divide"),
        ({"quantization_config": {"quant_method": "magic"}}, "quant_method: 'magic'; allowed: fp8, mxfp4"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_told(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        model(SMALL | change)
    assert message in str(error.value)


@pytest.mark.parametrize("content", ["", "[1]", "{", "[" * 10_000, "\x00"])
def test_files_that_are_no_config(tmp_path: Path, content: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(content)
    with pytest.raises(InputError, match=r"--model: .*config\.json .*; allowed: a model's config\.json"):
        read_model(file, "--model")


def test_copies_of_parallel_ranks_are_allocated_not_moved() -> None:
    shape, _ = parts(model(next(fact["config"] for fact in FACTS if fact["name"] == "DeepSeek-V3.2")))
    assert models.kv_bytes_per_token_moved(shape) == 70_272 + 8_052
    assert models.kv_bytes_per_token_allocated(shape, 8) == 8 * (70_272 + 8_052)
    assert models.kv_bytes_per_token_moved(shape, "fp8") == 70_272 / 2 + 8_052


def test_sparse_attention_stops_growing_but_its_index_does_not() -> None:
    entry = model(next(fact["config"] for fact in FACTS if fact["name"] == "DeepSeek-V3.2"))
    base = models.prefill_work(entry).products
    one = lambda position: models.prefill_flops(entry, position, position + 1) - base  # noqa: E731
    index = 2 * 61 * 64 * 128
    assert one(100_000) - one(50_000) == pytest.approx(50_000 * index)
    assert one(1_000) == pytest.approx(1_000.5 * (index + 2 * 61 * 128 * 320))
