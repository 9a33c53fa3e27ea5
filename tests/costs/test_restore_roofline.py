"""The restore roofline against reference figures and plain search."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from kvsweep.catalog.load import load
from kvsweep.costs.deployment import Deployment, deploy
from kvsweep.costs.roofline import break_even, break_even_bandwidth, intensity, kv_token_bytes
from tests.cli_runner import done, refused

GROWTH = {"llama-3.1-8b": 131.072, "llama-3.1-70b": 262.144, "qwen3-8b": 131.072, "qwen3-30b-a3b": 262.144}
"""By how many kFLOP a byte the intensity grows up to token 32,768: the tables' I at 32k less that at 0."""


def real(model: str, **options: object) -> Deployment:
    return deploy(load(), {"model": model, "gpu": "h100-sxm", **options})


@pytest.mark.parametrize("model", GROWTH)
def test_intensity_grows_as_the_reference_table_says(model: str) -> None:
    first, later = intensity([0, 32_768], real(model))
    assert (later - first) / 1e3 == pytest.approx(GROWTH[model], rel=1e-3)


def test_at_the_break_even_both_take_as_long() -> None:
    of = real("qwen3-30b-a3b")
    token, pair = of.token_costs()
    for position in (0.0, 5e3, 1e5):
        assert kv_token_bytes(of) / break_even_bandwidth(position, of) == pytest.approx(token + pair * position)


@pytest.mark.parametrize("tier", [1, 2])
@pytest.mark.parametrize("link", ["tcp-25g", "rdma-100g", "pcie5-x16", "nvlink-c2c-h2d"])
@pytest.mark.parametrize("model", ["qwen3-30b-a3b", "llama-3.1-70b", "gpt-oss-120b"])
def test_lengths_and_positions_are_the_least_that_pay(model: str, link: str, tier: int) -> None:
    for more in ({}, {"setup_seconds": 0.05}, {"cost_model": "linear", "setup_seconds": 0.05}):
        of = real(model, link=link, **more)
        found, (token, pair) = break_even(of, tier), of.token_costs()
        each = kv_token_bytes(of) / (of.throughputs()[tier] * of.bytes_per_block)
        n = np.arange(1.0, 400_000.0)
        pays = of.setup_seconds + each * n <= (token + 0.5 * pair * n) * n * (1.0 + 1e-12)
        assert found.length == (n[pays.argmax()] if pays.any() else found.length)
        assert pays.any() or math.isinf(found.length) or found.length >= n[-1]
        later = each <= token + pair * (n - 1.0)
        assert found.position == (later.argmax() if later.any() else found.position)


def test_the_command_answers_path_by_path(tmp_path: Path) -> None:
    parts = ("roofline", "--model", "qwen3-30b-a3b", "--gpu", "h100-sxm")
    rows = {row["path"]: row for row in json.loads(done(*parts, "--format", "json").stdout)}
    assert rows["tcp-25g"]["worth_from_tokens"] == 46_418 and rows["tcp-25g"]["ratio_32k"] < 1
    assert rows["pcie5-x16"]["ratio_1k"] > 1 and len(rows) == 9
    chosen = done(*parts, "--disk", "micron-9550-pro-7.68t", "--link", "rdma-100g", "-o", tmp_path / "worth.svg").stdout
    assert chosen.startswith("World       real") and "worth restoring above 8.85, 1.83, 0.54 GB/s" in chosen
    assert [line.split()[0] for line in chosen.splitlines()[-3:-1]] == ["rdma-100g", "micron-9550-pro-7.68t"]
    drawn = (tmp_path / "worth.svg").read_text()
    assert "Is it worth restoring? qwen3-30b-a3b on h100-sxm" in drawn


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gpu", "h100-sxm"), "--gpu: without --model"),
        (("--model", "qwen3-8b", "--stack", "h200"), "--stack: beside --model"),
        (("--model", "qwen3-8b", "--link", "pcie9"), "--link: no 'pcie9'"),
        (("--model", "qwen3-8b", "--gpu-count", "0"), "--gpu-count: "),
        (("--model", "qwen3-8b", "-o", "worth.txt"), "--output: worth.txt: suffix .txt; allowed: .pdf, .svg, .png"),
        (("--model", "qwen-900b"), "--model: no 'qwen-900b'"),
        (("--model", "qwen3-8b", "--gpu", "h1000"), "--gpu: no 'h1000'"),
    ],
)
def test_bad_options_are_refused_by_name(words: tuple[str, ...], said: str) -> None:
    assert said in refused("roofline", *words)
