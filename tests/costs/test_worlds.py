"""Two worlds and the models by name: what follows from the parts, and what it costs."""

from __future__ import annotations

import math

import pytest

import kvsweep
from kvsweep.catalog.load import load
from kvsweep.catalog.models import prefill_flops
from kvsweep.costs.deployment import deploy
from kvsweep.costs.worlds import HOST_LINKS, MEANT, REAL, REAL_PARTS, REFERENCE
from kvsweep.errors import InputError
from tests.cli_runner import run

CATALOG = load()
REAL_CHOICE = {"gpu": "h100-sxm", "model": "llama-3.1-8b"}


@pytest.mark.parametrize(
    ("chosen", "world", "said"),
    [
        ({}, REFERENCE, ""),
        ({"gpu": "H100", "model": "llama3-8b"}, REFERENCE, ""),
        (REAL_CHOICE, REAL, ""),
        ({"model": "qwen3-8b"}, REAL, ""),
        ({"gpu": "H100", "model": "llama-3.1-8b"}, REFERENCE, "--gpu h100-sxm"),
        ({"gpu": "h100-sxm", "model": "llama3-70b"}, REFERENCE, "--model llama-3.1-70b"),
        ({"gpu": "h100-sxm"}, REFERENCE, "--model llama-3.1-8b"),
        ({"stack": "h200", "model": "llama-3.1-8b"}, REFERENCE, "--gpu h200-sxm"),
    ],
)
def test_the_world_follows_from_the_parts(chosen: dict[str, str], world: str, said: str) -> None:
    deployment = deploy(CATALOG, chosen)
    assert deployment.world.name == world
    assert said in deployment.world.warning and bool(said) == bool(deployment.world.warning)
    assert deployment.cost_model == ("attention" if world == REAL else "linear")
    assert deployment.path_model == ("pipelined" if world == REAL else "summed")


def test_every_row_that_stands_for_another_is_in_the_catalog() -> None:
    for key in (*MEANT, *MEANT.values()):
        assert key in CATALOG.gpus or key in CATALOG.models
    assert all(key in CATALOG.links for key in HOST_LINKS.values())
    paths = {gpu.host_link.path for gpu in CATALOG.gpus.values() if gpu.host_link}
    assert paths - set(HOST_LINKS) == {"unified LPDDR5X"}
    assert deploy(CATALOG, {"model": "qwen3-8b"}).gpu == REAL_PARTS["gpu"]


@pytest.mark.parametrize(("gpu", "link"), [("a100-80-sxm", "pcie4-x16"), ("gh200-96", "nvlink-c2c-h2d")])
def test_a_real_gpu_has_its_own_link(gpu: str, link: str) -> None:
    assert deploy(CATALOG, {"gpu": gpu, "model": "llama-3.1-8b"}).link == link
    assert deploy(CATALOG, {"gpu": gpu, "model": "llama-3.1-8b", "link": "rdma-100g"}).link == "rdma-100g"


@pytest.mark.parametrize(
    ("tokens", "recompute", "restore"), [(10_000, 0.264, 0.042), (50_000, 2.29, 0.153), (100_000, 6.85, 0.312)]
)
def test_the_obvious_command_is_near_what_vllm_was_measured_at(tokens: int, recompute: float, restore: float) -> None:
    """H100, Llama-3.1-8B, CPU offload (vLLM blog, 2026-01-08); no constant comes from it."""
    row = kvsweep.simulate(prompt_tokens=tokens, **REAL_CHOICE)["results"][0]
    assert recompute / 1.25 < row["recompute_all_seconds"] < recompute * 1.25
    assert restore / 1.5 < row["restore_all_seconds"]["dram"] < restore * 1.25


def test_attention_costs_what_the_flops_take() -> None:
    """A coefficient at a time against `prefill_flops`, with one share of the peak for all kernels."""
    model = CATALOG.models["gemma-3-12b"]
    deployment = deploy(CATALOG, {"gpu": "h100-sxm", "model": model.key, "gpu_eta": 0.5})
    a, b = deployment.token_costs()
    for start, end in ((0, 1), (0, 5000), (4000, 90_000)):
        seconds = a * (end - start) + b * (end**2 - start**2) / 2
        assert seconds == pytest.approx(prefill_flops(model, start, end) / (0.5 * 989e12), rel=1e-12)


def test_gpus_share_compute_and_links_and_add_up_activations() -> None:
    one, two = (deploy(CATALOG, {**REAL_CHOICE, "gpu_count": count}) for count in (1, 2))
    reduced = 2 * 32 * 4096 * 2 / (0.75 * 450e9)
    assert two.token_costs()[0] == pytest.approx(one.token_costs()[0] / 2 + reduced)
    assert two.token_costs()[1] == pytest.approx(one.token_costs()[1] / 2)
    block = 2_097_152
    assert one.throughputs()[1] == pytest.approx(1 / (10e-6 + block / 55.6e9))
    assert two.throughputs()[1] == pytest.approx(1 / (10e-6 + block / 2 / 55.6e9))
    assert one.throughputs()[2] == pytest.approx(14.73e9 / block) and one.throughputs()[0] == math.inf
    small = deploy(CATALOG, {**REAL_CHOICE, "bytes_per_block": 16384})
    assert small.throughputs()[1] * 16384 < 0.05 * 55.6e9


def test_models_by_name_may_be_axes_and_linear_rows_stay_as_they_are() -> None:
    chosen = {
        **REAL_CHOICE, "total_blocks": [1000, 5000], "hit_ratio": [0.0, 0.5, 1.0], "placement": "manual:0,1,1",
        "policies": "performance_aware,slowest_tier_first,all_compute",
    }  # fmt: skip
    ds = kvsweep.sweep(**chosen, cost_model="linear,attention", overlap=["ideal", "serial"], dtype="f8")
    assert ds.total_time.sizes["cost_model"] == 2 and ds.total_time.sizes["overlap"] == 2
    alone = kvsweep.sweep(**chosen, cost_model="linear", dtype="f8")
    part = ds.total_time.sel(cost_model="linear", overlap="ideal")
    assert (part.values == alone.total_time.values).all()
    assert (ds.total_time.sel(overlap="serial") >= ds.total_time.sel(overlap="ideal") * (1 - 1e-9)).all()
    full = ds.total_time.sel(policy="all_compute", overlap="ideal", total_blocks=5000).isel(hit_ratio=0, request_rate=0)
    linear, attention = full.isel(p95_seconds=0).values
    assert attention > linear
    assert "attention" in ds.attrs["comment"] and ds.attrs["kvsweep_world"].startswith("real")


def test_points_outside_the_model_are_told() -> None:
    def told(**chosen: object) -> str:
        return "\n".join(kvsweep.simulate(**chosen)["warnings"])

    assert "beyond the 131,072" in told(**REAL_CHOICE, prompt_tokens=200_000)
    assert "assumed" in told(gpu="l40s", model="llama-3.1-8b") and "assumed" not in told(**REAL_CHOICE)
    assert "measured up to 16,384" in told(**REAL_CHOICE, prompt_tokens=32_000)
    assert "no effect" in told(setup_seconds=1)
    assert "probably meant: --gpu h100-sxm" in told(gpu="H100", model="llama-3.1-8b")
    assert told(gpu="H100", model="llama3-8b") == ""


def test_what_cannot_be_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="cost_model: attention needs the shape of a model"):
        kvsweep.simulate(cost_model="attention")
    assert "--cost-model" in run("simulate", "--cost-model", "attention").stderr
    assert "--overlap" in run("simulate", "--overlap", "layer").stderr
    assert "--prompt-tokens" in run("simulate", "--prompt-tokens", "100", "--total-blocks", "7").stderr
    assert kvsweep.simulate(prompt_tokens=33)["results"][0]["total_blocks"] == 3
