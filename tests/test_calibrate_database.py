"""Kernel databases: made-up parquet files whose composed times are known by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from cli_runner import run as kvsweep

from kvsweep.calibrate.compose import compose
from kvsweep.calibrate.database import is_database, product_curve, read_collectives, read_database
from kvsweep.catalog import load
from kvsweep.cluster.vllm.profile import StepProfile, step_times
from kvsweep.cluster.vllm.steptime import line, table
from kvsweep.errors import InputError

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
        for profile in (compose(read_database(folder, model, ep=ep), model) for ep in (1, 2))
    ]
    assert seconds[0] - seconds[1] == pytest.approx(32 * 64e-6 / 2, rel=0.02)


def test_all_reduces_of_a_database(tmp_path: Path) -> None:
    rows = [
        {
            "op_name": "all_reduce",
            "num_gpus": n,
            "message_size": size,
            "latency": size * n / 1e6 + late,
            "backend": backend,
        }
        for n in (2, 4)
        for size in (128, 4096)
        for backend, late in (("vllm_graph", 0.0), ("vllm_eager", 1.0))
    ]
    write(tmp_path / "r.parquet", rows)
    sizes, seconds = read_collectives(tmp_path / "r.parquet", 4)
    assert sizes == [128.0, 4096.0] and seconds == pytest.approx([512e-9, 16384e-9])
    with pytest.raises(InputError, match="no rows of op_name all_reduce, num_gpus 8"):
        read_collectives(tmp_path / "r.parquet", 8)


def test_broken_databases_say_where(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no gemm_perf.parquet"):
        read_database(tmp_path, MODEL)
    folder = write_database(tmp_path / "a")
    with pytest.raises(InputError, match="no rows of batch_size 1, num_heads 16"):
        read_database(folder, MODEL, tp=2)
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
    latent = next(model for model in load().models.values() if model.shape and model.shape.kv_lora_rank)
    with pytest.raises(InputError, match="latent attention"):
        read_database(folder, latent)


def test_the_command(tmp_path: Path) -> None:
    folder = write_database(tmp_path / "a")
    refused = kvsweep("calibrate", str(folder), "-o", str(tmp_path / "p.yaml"))
    assert refused.exit_code == 2 and "--model: missing" in refused.output
    done = kvsweep("calibrate", str(folder), "--model", "llama-3.1-8b", "-o", str(tmp_path / "p.yaml"))
    assert done.exit_code == 0 and "before 0..0" in done.stdout, done.output
