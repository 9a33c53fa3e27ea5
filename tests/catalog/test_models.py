"""KV bytes and FLOPs against the published table of shapes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsweep.catalog import models
from kvsweep.catalog.load import load
from kvsweep.catalog.specs import Model, Shape
from kvsweep.errors import InputError

CATALOG = load()

# Key, KV bytes per token, fixed bytes per sequence, published intensity gained from position 0 to 32k, 128k [FLOP/B].
KAPPA = [
    ("llama-3.1-8b", 131_072, 0, 131e3, 524e3),
    ("llama-3.1-70b", 327_680, 0, 262e3, 1048e3),
    ("llama-3.1-405b", 516_096, 0, 524e3, 2097e3),
    ("qwen3-8b", 147_456, 0, 131e3, 524e3),
    ("qwen3-32b", 262_144, 0, 262e3, 1049e3),
    ("qwen3-30b-a3b", 98_304, 0, 262e3, 1049e3),
    ("qwen3-235b-a22b", 192_512, 0, 524e3, 2097e3),
    ("qwen3-coder-480b-a35b", 253_952, 0, None, None),
    ("mistral-7b-v0.3", 131_072, 0, 131e3, 524e3),
    ("mixtral-8x7b", 131_072, 0, 131e3, 524e3),
    ("deepseek-v3", 70_272, 0, 2330e3, 9321e3),
    ("kimi-k2", 70_272, 0, 1165e3, 4660e3),
    ("glm-4.5", 376_832, 0, 393e3, 1573e3),
    ("glm-4.5-air", 188_416, 0, 394e3, 1573e3),
    ("gpt-oss-120b", 36_864, 4.5 * 2**20, 262e3, 1048e3),
    ("gpt-oss-20b", 24_576, 3 * 2**20, 262e3, 1049e3),
    ("gemma-3-27b", 81_920, 416 * 2**20, 65e3, 262e3),
    ("gemma-3-12b", 65_536, 320 * 2**20, 66e3, 262e3),
    ("qwen3.5-27b", 65_536, 153_944_064, None, None),
    ("qwen3.5-397b-a17b", 30_720, 192_061_440, None, None),
    ("glm-5", 89_856, 0, None, None),
    ("minimax-m2.5", 253_952, 0, None, None),
]


def model(key: str) -> Model:
    return CATALOG.models[key]


def shape(key: str) -> Shape:
    found = CATALOG.models[key].shape
    assert found is not None
    return found


def without_window(key: str) -> Model:
    """Return the model with its window layers left out: the published intensities leave them out too."""
    full = replace(shape(key), layers=shape(key).layers_full_attention, layers_window=0, window=0)
    return replace(model(key), shape=full)


@pytest.mark.parametrize(("key", "per_token", "fixed", "at_32k", "at_128k"), KAPPA)
def test_published_table(key: str, per_token: int, fixed: float, at_32k: float | None, at_128k: float | None) -> None:
    assert models.kv_bytes_per_token(shape(key)) == per_token
    assert models.kv_fixed_bytes_per_sequence(shape(key)) == fixed
    full = without_window(key)
    for position, gained in ((32_768, at_32k), (131_072, at_128k)):
        if gained is not None:
            first = models.prefill_flops(full, 0, 1)
            # Table entries are rounded to 1e3 each; one token at `position` costs 2·position pairs more than at 0.
            attention = models.prefill_flops(full, position, position + 1) - first
            assert attention / per_token == pytest.approx(gained, abs=1e3)


def test_window_layers_kept_whole() -> None:
    # An engine without a mixed allocator was seen to hold 108 KiB a token against 80 KiB: the same effect.
    assert models.kv_bytes_per_token_all_layers(shape("gpt-oss-20b")) == 49_152
    assert models.kv_bytes_per_token_all_layers(shape("gemma-3-27b")) == 507_904
    assert models.kv_bytes_per_token_all_layers(shape("qwen3.5-27b")) == 65_536


def test_dtype_scales_what_grows_but_not_the_recurrent_state() -> None:
    assert models.kv_bytes_per_token(shape("llama-3.1-8b"), "fp8") == 65_536
    assert models.kv_fixed_bytes_per_sequence(shape("gpt-oss-20b"), "fp8") == 1.5 * 2**20
    assert models.kv_fixed_bytes_per_sequence(shape("qwen3.5-27b"), "fp8") == 153_944_064


@pytest.mark.parametrize(
    ("key", "ranks", "copies"),
    [("llama-3.1-8b", 1, 1), ("llama-3.1-8b", 8, 1), ("llama-3.1-8b", 16, 2), ("qwen3-30b-a3b", 8, 2),
     ("deepseek-v3", 8, 8), ("phi-4", 4, 1.2)],
)  # fmt: skip
def test_allocated_under_tensor_parallelism(key: str, ranks: int, copies: float) -> None:
    logical = models.kv_bytes_per_token(shape(key))
    assert models.kv_bytes_per_token_allocated(shape(key), ranks) == pytest.approx(copies * logical)


@given(st.sampled_from(sorted(key for key, entry in CATALOG.models.items() if entry.shape)), st.integers(1, 512))
def test_ranks_never_hold_less_than_the_logical_bytes(key: str, ranks: int) -> None:
    assert models.kv_bytes_per_token_allocated(shape(key), ranks) >= models.kv_bytes_per_token(shape(key))


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_prefill_work_adds_up_over_chunks(first: int, second: int, third: int) -> None:
    start, middle, end = sorted((first, second, third))
    entry = model("gpt-oss-120b")
    whole = models.prefill_flops(entry, start, end)
    parts = models.prefill_flops(entry, start, middle) + models.prefill_flops(entry, middle, end)
    assert parts == pytest.approx(whole, rel=1e-12)


def test_prefill_work_by_hand() -> None:
    # 2·P·n + L·n_h·(d_qk+d_v)·n² for Llama-3.1-8B, P without embeddings and head, with norms.
    expected = 2 * 6_979_584_000 * 1000 + 32 * 32 * 256 * 1000**2
    assert models.prefill_flops(model("llama-3.1-8b"), 0, 1000) == expected
    assert models.prefill_flops(model("qwen3.5-27b"), 0, 1) == 2 * 24_353_196_544 + 16 * 24 * 512
    # The published active count stands in where the blocks are not counted.
    bare = replace(model("qwen3.5-27b").weights, per_token=None)
    assert models.prefill_flops(replace(model("qwen3.5-27b"), weights=bare), 0, 1) == 2 * 2.7e10 + 16 * 24 * 512


def test_prefill_needs_a_shape() -> None:
    with pytest.raises(InputError, match="model llama3-8b: no shape and weights in the catalog"):
        models.prefill_flops(model("llama3-8b"), 0, 1)
