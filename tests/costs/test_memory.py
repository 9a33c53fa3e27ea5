"""KV tokens that fit, against capacities that engines were seen to report."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsweep.catalog.configs.fields import Config
from kvsweep.catalog.configs.model import model_of
from kvsweep.catalog.load import load
from kvsweep.catalog.specs import Model
from kvsweep.costs.memory import Dtypes, Step, loaded_bytes, stored_bytes, visible_bytes, what_fits
from kvsweep.errors import InputError

GPUS = load().gpus
H100, H200 = visible_bytes(GPUS["h100-sxm"]), visible_bytes(GPUS["h200-sxm"])
RTX_3090, RTX_4090 = 24 * 2.0**30, 25_250_627_584.0


@cache
def model(name: str) -> Model:
    facts = json.loads((Path(__file__).parents[1] / "catalog/configs/facts.json").read_text(encoding="utf-8"))
    return model_of(Config(next(fact["config"] for fact in facts if fact["name"] == name), name), name)


@pytest.mark.parametrize(
    ("name", "memory", "gpus", "share", "length", "step", "seen"),
    [
        # llm-d's guides: 9271 blocks of 16; start-up log with max-model-len 65536; about 10 M tokens
        ("Qwen3-32B", H100, 2, 0.65, None, None, 148_336),
        ("gpt-oss-120b", H200, 1, 0.85, 65_536, None, 1_220_000),
        ("gpt-oss-120b", H200, 4, 0.85, None, None, 10_000_000),
        # vLLM issue 10517: an engine whose steps are as long as the context
        ("Llama-3.1-8B", RTX_3090, 1, 0.9, 20_000, Step(20_000, 256), 31_232),
        # LLMServingSim's run of vLLM 0.19: 2588 blocks of 16
        ("Llama-3.1-8B", RTX_4090, 1, 0.9, None, None, 41_408),
    ],
)  # fmt: skip
def test_reported_capacities(
    name: str, memory: float, gpus: int, share: float, length: float | None, step: Step | None, seen: float
) -> None:
    fit = what_fits(model(name), memory, gpus, share, sequence_tokens=length, step=step)
    assert fit.tokens == pytest.approx(seen, rel=0.1)


def test_copies_of_latent_vectors_cost_memory() -> None:
    # vLLM issue 51454: 7.7 times as much KV on 8 x B200 with data parallelism as with tensor parallelism.
    flash = model("DeepSeek-V4-Flash")
    fit = what_fits(flash, visible_bytes(GPUS["b200-sxm"]), 8)
    own = what_fits(flash, visible_bytes(GPUS["b200-sxm"]), 1)
    assert fit.token_bytes == own.token_bytes
    assert 8 * fit.kv / own.token_bytes / fit.tokens == pytest.approx(7.7, rel=0.1)


def test_padded_experts() -> None:
    # Tiles of 256 x 128 make 3072 x 2944 of 2880 x 2880, and 3072 x (4 x 768) on four ranks.
    gpt = model("gpt-oss-120b")
    experts = 36 * 128 * 3 * 2880**2 * 0.53125
    assert loaded_bytes(gpt, 1) == pytest.approx(stored_bytes(gpt) + experts * (3072 * 2944 / 2880**2 - 1))
    assert 4 * loaded_bytes(gpt, 4) == pytest.approx(stored_bytes(gpt) + experts * (3072 * 3072 / 2880**2 - 1))


def test_dtypes() -> None:
    qwen = model("Qwen3-32B")
    assert stored_bytes(qwen) == 65_524_246_528
    assert stored_bytes(qwen, "fp8") == pytest.approx(34_326_243_328, abs=1)  # the published FP8 checkpoint's
    half = what_fits(qwen, H100, 2, dtypes=Dtypes("fp8"))
    assert half.token_bytes == 65_536 and half.tokens == pytest.approx(2 * what_fits(qwen, H100, 2).tokens, abs=1)


def test_weights_that_do_not_fit_leave_no_token() -> None:
    fit = what_fits(model("Llama-3.1-70B"), H100, 1)
    assert fit.kv < 0.0 and fit.tokens == 0.0
    with pytest.raises(InputError, match="model llama3-8b: no shape and weights"):
        what_fits(load().models["llama3-8b"], H100, 1)


@given(
    st.sampled_from(("Qwen3-32B", "gpt-oss-120b", "Gemma-3-27B", "Qwen3.5-27B", "DeepSeek-V3")),
    st.floats(0.1, 1.0), st.integers(0, 3), st.floats(2e10, 3e11),
)  # fmt: skip
def test_more_memory_never_holds_less(name: str, share: float, power: int, memory: float) -> None:
    fit = what_fits(model(name), memory, 2**power, share)
    more = what_fits(model(name), memory * 1.01 + 1e9, 2**power, share, step=fit.largest_step)
    assert more.tokens >= fit.tokens
    assert fit.tokens * (fit.token_bytes + fit.sequence_bytes / fit.sequence_tokens) <= max(fit.kv, 0.0) + 1e-3
