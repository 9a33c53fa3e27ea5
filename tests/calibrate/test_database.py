"""Kernel databases: made-up parquet files whose composed times are known by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from kvsweep.calibrate.fits.compose import compose
from kvsweep.calibrate.kernels.collectives import ALL_REDUCE, EXCHANGE, read_collective
from kvsweep.calibrate.kernels.database import Ranks, after_tokens, is_database, product_curve, read_database
from kvsweep.calibrate.kernels.layers import Parallel
from kvsweep.catalog import load
from kvsweep.cluster.inputs.step_profile import StepProfile, step_times
from kvsweep.cluster.vllm.steptime import line, table
from kvsweep.errors import InputError
from tests.cli_runner import run as kvsweep

MODEL = load().part("models", "llama-3.1-8b", "model")
SIZES = {
    "qkv": (6144, 4096),
    "o": (4096, 4096),
    "gate_up": (28672, 4096),
    "down": (4096, 14336),
    "head": (128256, 4096),
}


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def write_database(folder: Path) -> Path:
    """Write products of 1 ns a weight of 1 kB and of 1 µs a token, prompts of 1 ns a pair, decodes of 1 ns a token."""
    common = {"device": "Test GPU", "framework": "x"}
    products = [
        {**common, "gemm_dtype": "bfloat16", "m": m, "n": n, "k": k, "latency": (n * k / 1e9) * 1e-3 + m * 1e-3}
        for n, k in SIZES.values()
        for m in (1, 2, 4, 8, 64, 256, 1024)
    ]
    write(folder / "gemm" / "gemm_perf.parquet", products)
    heads = {**common, "num_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "kv_cache_dtype": "bfloat16"}
    prompts = [
        {**heads, "batch_size": 1, "isl": q, "step": 0, "latency": 1e-6 * q * q / 2} for q in (16, 64, 256, 1024)
    ]
    write(folder / "attention" / "context_attention_perf.parquet", prompts)
    decodes = [
        {**heads, "batch_size": n, "isl": 1, "step": k, "latency": 1e-6 * n * k}
        for n in (1, 2, 8, 64)
        for k in (15, 255, 1023)
    ]
    write(folder / "attention" / "generation_attention_perf.parquet", decodes)
    return folder


def composed(folder: Path) -> StepProfile:
    return compose(read_database(folder, MODEL), MODEL)


def test_products_and_attention_add_up(tmp_path: Path) -> None:
    assert is_database(write_database(tmp_path)) and not is_database(tmp_path / "attention")
    profile = composed(tmp_path)
    times = step_times(profile)
    weights = sum(n * k for name, (n, k) in SIZES.items() if name != "head")
    for tokens in (1, 64, 1024):
        expected = 32 * (weights / 1e9 * 1e-6 + 4 * tokens * 1e-6)
        assert line(times.tokens, times.token_seconds, tokens) == pytest.approx(expected, rel=0.01)
    assert table(times, 0.0, 0.0, 8.0, 255.0) == pytest.approx(32 * 8 * 255e-9, rel=0.01)
    mixed = 32 * (256**2 / 2 + 8 * 255) * 1e-9
    assert table(times, 256.0, 0.0, 8.0, 255.0) == pytest.approx(mixed, rel=0.02)


def test_what_was_not_measured_is_said(tmp_path: Path) -> None:
    """No cached prefix: attention after 1024 tokens follows the pairs, and counts as extrapolated."""
    profile = composed(write_database(tmp_path))
    assert profile.captured_saving_seconds == 0.0 and profile.skew is None
    assert profile.attention.measured_to[1] == 0.0 and "not measured" in profile.attention.boundary
    times = step_times(profile)
    pairs = 256 * (1024 + 128)
    assert table(times, 256.0, 1024.0, 0.0, 0.0) == pytest.approx(32 * pairs * 1e-9, rel=0.05)


def test_sizes_between_those_measured() -> None:
    grid = {(100, 100): {1.0: 2.0}, (1000, 1000): {1.0: 100.0}}
    assert product_curve(grid, 200, 100) == {1.0: 4.0}
    assert product_curve(grid, 1000, 1000) == {1.0: 100.0}


def test_experts_from_a_database(tmp_path: Path) -> None:
    assert MODEL.shape is not None
    folder = write_database(tmp_path)
    moe = {"moe_dtype": "bfloat16", "hidden_size": 4096, "inter_size": 512, "topk": 2, "num_experts": 8,
           "moe_tp_size": 1, "distribution": "balanced"}  # fmt: skip
    rows = [
        {**moe, "num_tokens": t, "moe_ep_size": ep, "latency": t * 1e-3 / ep} for t in (1, 64, 1024) for ep in (1, 2)
    ]
    write(folder / "moe" / "moe_perf.parquet", rows)
    shape = replace(MODEL.shape, experts=8, experts_per_token=2, moe_intermediate_size=512, dense_layers=0)
    model = replace(MODEL, shape=shape)
    seconds = [
        np.interp(64.0, *(np.array(part) for part in (profile.tokens.axes[0], profile.tokens.seconds)))
        for profile in (compose(read_database(folder, model, Ranks(ep=ep)), model) for ep in (1, 2))
    ]
    assert seconds[0] - seconds[1] == pytest.approx(32 * 64e-6 / 2, rel=0.02)


def collectives(path: Path, dtype: str = "bfloat16") -> Path:
    """Write all-reduces captured and not, and gathers and scatters of 3 and 5 µs more than a ns a number."""
    rows = [
        {"op_name": "all_reduce", "num_gpus": n, "message_size": size, "latency": size * n / 1e6 + late,
         "allreduce_dtype": dtype, "backend": backend}
        for n in (2, 4) for size in (128, 4096) for backend, late in (("vllm_graph", 0.0), ("vllm_eager", 1.0))
    ] + [
        {"op_name": name, "num_gpus": 4, "message_size": size, "latency": size / 1e6 + least,
         "allreduce_dtype": dtype, "backend": "nccl"}
        for name, least in (("all_gather", 3e-3), ("reduce_scatter", 5e-3)) for size in (1024, 1 << 20)
    ]  # fmt: skip
    write(path, rows)
    return path


def test_collectives_of_a_database_count_numbers(tmp_path: Path) -> None:
    """Sizes are those of numbers of two bytes, 128 of which are 256 bytes."""
    path = collectives(tmp_path / "r.parquet")
    assert read_collective(path, ALL_REDUCE, 4) == pytest.approx({256.0: 512e-9, 8192.0: 16384e-9})
    assert read_collective(path, EXCHANGE, 4) == pytest.approx({2048.0: 8e-6 + 2048e-9, 2**21: 8e-6 + 2**21 * 1e-9})
    with pytest.raises(InputError, match="no rows of op_name all_reduce, num_gpus 8"):
        read_collective(path, ALL_REDUCE, 8)
    with pytest.raises(InputError, match="allreduce_dtype: 'int3'; allowed: bfloat16"):
        read_collective(collectives(path, "int3"), ALL_REDUCE, 4)
    with pytest.raises(InputError, match="no rows of a type of two bytes"):
        read_collective(collectives(path, "int8"), ALL_REDUCE, 4)
    (tmp_path / "r.csv").write_text("bytes,seconds\n1024,1e-5\n")
    assert read_collective(tmp_path / "r.csv", EXCHANGE, 4) == {1024.0: 1e-5}


LATENT = load().part("models", "deepseek-v3", "model")


def write_latent(folder: Path, dtype: str = "bfloat16") -> Path:
    """Write a database of a made-up DeepSeek-V3, on one rank of 32.

    Products take 1 ns a weight of 1 kB and 1 µs a token; a module takes 50 µs, 2 µs a token and 1 ns a pair for a
    prompt, 100 µs and 1 ns a token read for decodes; experts take 1 µs a token.
    """
    assert LATENT.shape is not None
    sizes = [(2 * 18432, 7168), (7168, 18432), (2 * 2048, 7168), (7168, 2048)]
    plain = [(256, 7168), (129280, 7168)]
    products = [
        {"device": "Test GPU", "gemm_dtype": name, "m": m, "n": n, "k": k, "latency": n * k / 1e12 + m * 1e-3}
        for name, parts in ((dtype, sizes), ("bfloat16", plain)) for n, k in parts for m in (1, 8, 64, 512)
    ]  # fmt: skip
    write(folder / "gemm_perf.parquet", products)
    same = {"model": "deepseek-ai/DeepSeek-V3", "num_heads": 128, "kv_cache_dtype": "bfloat16", "gemm_type": dtype}
    prompts = [
        {**same, "batch_size": 1, "isl": q, "step": 0, "latency": 0.05 + 2e-3 * q + 1e-6 * q * q / 2}
        for q in (1, 16, 64, 256, 1024)
    ]
    write(folder / "mla_context_module_perf.parquet", prompts)
    decodes = [
        {**same, "batch_size": n, "isl": 1, "step": k, "latency": 0.1 + 1e-6 * n * k}
        for n in (1, 8, 64)
        for k in (16, 256, 1024)
    ]
    write(folder / "mla_generation_module_perf.parquet", decodes)
    experts = [
        {"moe_dtype": dtype, "hidden_size": 7168, "inter_size": 2048, "topk": 8, "num_experts": 256, "moe_tp_size": 1,
         "moe_ep_size": 8, "distribution": "balanced", "num_tokens": t, "latency": t * 1e-3}
        for t in (1, 64, 512, 4096)
    ]  # fmt: skip
    write(folder / "moe_perf.parquet", experts)
    return folder


@pytest.mark.parametrize("dtype", ["bfloat16", "fp8_block"])
def test_latent_attention_and_experts_shared_by_groups(tmp_path: Path, dtype: str) -> None:
    """Eight groups of `t` tokens, by hand: 3 dense layers, 58 of experts, exchange of 10 µs, modules in all 61."""
    kernels = read_database(write_latent(tmp_path, dtype), LATENT, Ranks(ep=8, dtype=dtype))
    exchange = (np.array([1.0, 1e9]), np.array([1e-5, 1e-5]))
    profile = compose(kernels, LATENT, Parallel(dp=8, ep=8, exchange=exchange))
    times = step_times(profile)
    dense = 3 * 18432 * 7168 * 1e-15
    shared = 3 * 2048 * 7168 * 1e-15
    router = 256 * 7168 * 1e-15
    for tokens in (1, 8, 64, 512):
        layer = dense + 2e-6 * tokens
        expert = shared + router + 3e-6 * tokens + 8 * tokens * 1e-6 + 1e-5
        expected = 3 * layer + 58 * expert
        assert line(times.tokens, times.token_seconds, tokens) == pytest.approx(expected, rel=0.005)
    assert line(times.sequences, times.sequence_seconds, 8) == pytest.approx(129280 * 7168e-15 + 8e-6, rel=0.005)
    assert table(times, 0.0, 0.0, 8.0, 256.0) == pytest.approx(61 * (1e-4 + 8 * 256e-9), rel=0.005)
    assert table(times, 256.0, 0.0, 0.0, 0.0) == pytest.approx(61 * (5e-5 + 256 * 2e-6 + 256**2 / 2e9), rel=0.005)
    after = 61 * (5e-5 + 256 * 2e-6 + (256**2 / 2 + 256 * 1024) / 1e9)
    assert table(times, 256.0, 1024.0, 0.0, 0.0) == pytest.approx(after, rel=0.005)
    assert "with its projections" in profile.attention.boundary
    assert LATENT.weights is not None
    experts = 3.0 * 7168 * 2048 * 256 * 58
    width = 2.0 if dtype == "bfloat16" else 1.0
    assert profile.weights_bytes == pytest.approx(width * (LATENT.weights.total - experts * 7 / 8))


def test_latent_attention_that_was_not_measured(tmp_path: Path) -> None:
    folder = write_latent(tmp_path)
    kimi = load().part("models", "kimi-k2", "model")
    with pytest.raises(InputError, match="latent attention of deepseek-ai/DeepSeek-V3; kimi-k2 was not measured"):
        read_database(folder, kimi, Ranks(ep=8))
    with pytest.raises(InputError, match="no rows of moe_dtype bfloat16, .* moe_ep_size 4"):
        read_database(folder, LATENT, Ranks(ep=4))
    with pytest.raises(InputError, match="no rows of .*num_heads 64"):
        read_database(folder, LATENT, Ranks(tp=2, ep=8))
    with pytest.raises(InputError, match="--tp: 3 ranks do not share the 128 heads"):
        read_database(folder, LATENT, Ranks(tp=3, ep=8))
    with pytest.raises(InputError, match="no rows of gemm_dtype fp8_block"):
        read_database(folder, LATENT, Ranks(ep=8, dtype="fp8_block"))
    (folder / "mla_context_module_perf.parquet").unlink()
    with pytest.raises(InputError, match="no mla_context_module_perf.parquet, which latent attention"):
        read_database(folder, LATENT, Ranks(ep=8))


def test_short_prompts_after_many_tokens_read_their_keys() -> None:
    """Noise of short prompts is not multiplied: 1 ns a pair, and never less than a decode over as many tokens."""
    prompts = {q: 1e-5 + 1e-9 * q * q / 2 + (2e-7 if q == 16.0 else 0.0) for q in (1.0, 16.0, 256.0, 1024.0, 4096.0)}
    decodes = {(1.0, 1000.0): 2e-5, (1.0, 100_000.0): 2e-3}
    grown = after_tokens(prompts, 100_000.0, decodes)
    assert grown[1.0] == pytest.approx(2e-3) and grown[16.0] == pytest.approx(2e-3)
    assert grown[256.0] == pytest.approx(1e-5 + 256**2 / 2e9 + 256 * 1e-4, rel=0.01)
    assert after_tokens(prompts, 0.0, decodes) == pytest.approx(prompts)


def test_broken_databases_say_where(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no gemm_perf.parquet"):
        read_database(tmp_path, MODEL)
    folder = write_database(tmp_path / "a")
    with pytest.raises(InputError, match="no rows of batch_size 1, num_heads 16"):
        read_database(folder, MODEL, Ranks(tp=2))
    write(folder / "more" / "gemm_perf.parquet", [{"m": 1}])
    with pytest.raises(InputError, match="2 files gemm_perf.parquet"):
        read_database(folder, MODEL)
    (folder / "more" / "gemm_perf.parquet").unlink()
    write(folder / "gemm" / "gemm_perf.parquet", [{"m": 1, "gemm_dtype": "bfloat16"}])
    with pytest.raises(InputError, match="no column 'n'"):
        read_database(folder, MODEL)
    (folder / "gemm" / "gemm_perf.parquet").write_text("x")
    with pytest.raises(InputError, match="not readable as parquet"):
        read_database(folder, MODEL)
    write(folder / "gemm" / "gemm_perf.parquet", [{"m": 1, "n": 1, "k": 1, "gemm_dtype": "bfloat16", "device": "x",
                                                   "latency": float("nan")}])  # fmt: skip
    with pytest.raises(InputError, match="latency: nan; allowed: a number from 0 on"):
        read_database(folder, MODEL)


def test_the_command(tmp_path: Path) -> None:
    folder = write_database(tmp_path / "a")
    refused = kvsweep("calibrate", str(folder), "-o", str(tmp_path / "p.yaml"))
    assert refused.exit_code == 2 and "--model: missing" in refused.output
    done = kvsweep("calibrate", str(folder), "--model", "llama-3.1-8b", "-o", str(tmp_path / "p.yaml"))
    assert done.exit_code == 0 and "before 0..0" in done.stdout, done.output
