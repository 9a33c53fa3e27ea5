"""Prefill, restore and roofline curves: the reference's values, slow twins, and what must hold of any of them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvsweep.catalog.load import load
from kvsweep.costs import curves, roofline
from kvsweep.costs.deployment import deploy

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "cases" / "curves.json").read_text())["cases"]
CATALOG = load()
PARTS = curves.comparable_parts(CATALOG)


def cases(kind: str) -> Any:
    found = [case for case in CASES if case["kind"] == kind]
    assert found
    return pytest.mark.parametrize("case", found, ids=[case["id"] for case in found])


def close(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=0.0)


def test_sets_are_the_published_ones() -> None:
    assert [len(parts) for parts in PARTS] == [12, 21, 7]
    assert PARTS.n_deployments == 1764
    assert not any(set(parts) & curves.ALIASES for parts in PARTS)


@cases("prefill_curve")
def test_prefill_matches_the_reference(case: dict[str, Any]) -> None:
    inputs = case["inputs"]
    model = curves.CurveModel(inputs["model_params"], inputs["layers"], inputs["dim"], inputs["eta"])
    seconds = curves.prefill_seconds(inputs["tokens"], CATALOG.gpus[inputs["gpu"]], model=model)
    close(seconds, case["expected"]["seconds"])


@cases("restore_curve")
def test_restore_matches_the_reference(case: dict[str, Any]) -> None:
    inputs = case["inputs"]
    path = curves.PathRates(
        CATALOG.drams[inputs["dram"]].bandwidth,
        CATALOG.disks[inputs["disk"]].bandwidth,
        CATALOG.links[inputs["link"]].bandwidth,
    )
    compression = inputs["kv_compression_as_coded"]
    seconds = curves.restore_seconds(inputs["tokens"], CATALOG.gpus[inputs["gpu"]], path, compression)
    close(seconds, case["expected"]["seconds"])


@cases("restore_violin")
def test_violins_match_the_reference(case: dict[str, Any]) -> None:
    inputs, expected = case["inputs"], case["expected"]
    grid = curves.restore_grid(CATALOG.gpus[inputs["gpu"]], PARTS, inputs["tokens"], compression=0.1)
    assert grid.shape == (12, 21, 7, len(inputs["tokens"]))
    pooled = grid.reshape(-1, grid.shape[-1])
    assert len(pooled) == inputs["deployments"] == expected["n"]
    for name, statistic in (("median", np.median), ("min", np.min), ("max", np.max)):
        close(statistic(pooled, axis=0), expected[name])


def naive_restore(
    tokens: float, gpu: Any, dram: float, disk: float, link: float, compression: float, g: float
) -> float:
    """One deployment at one length, line by line of the formula."""
    kv = tokens / 16.0 * 2e6
    if gpu.max_link_bandwidth > 0.0 and link > gpu.max_link_bandwidth:
        link = gpu.max_link_bandwidth
    on_path = kv / compression * (1.0 / disk + 1.0 / dram + 1.0 / (link * g))
    on_gpu = kv / (100e9 * gpu.hbm_bandwidth * g / 2.039e12) + 2.0 * kv / (gpu.hbm_bandwidth * g)
    on_gpu += 4.0 * 32.0 * 4096.0 * tokens / (gpu.peak_flops * g * 0.5)
    return on_path if on_path > on_gpu else on_gpu


@pytest.mark.parametrize("gpu_key", ["A5000", "High-End"])  # capped link, and 0 for uncapped
def test_restore_grid_agrees_with_its_slow_twin(gpu_key: str) -> None:
    gpu = CATALOG.gpus[gpu_key]
    grid = curves.restore_grid(gpu, PARTS, compression=20.0).reshape(-1, len(curves.TOKENS))
    parts = itertools.product(*(group.values() for group in PARTS))
    slow = [
        [
            naive_restore(tokens, gpu, dram.bandwidth, disk.bandwidth, link.bandwidth, 20.0, 1.0)
            for tokens in curves.TOKENS
        ]
        for dram, disk, link in parts
    ]
    close(grid, slow)
    on_path = naive_restore(16e3, gpu, PARTS.drams["DDR5-8000"].bandwidth, 80e6, 16e9, 20.0, 1.0)
    assert np.min(grid[:, 0]) < on_path  # both branches of the maximum were taken


def test_more_gpus_never_slow_a_curve() -> None:
    gpu = CATALOG.gpus["H100"]
    path = curves.PathRates(1e11, 1e10, 6e10)
    one, two = (curves.restore_seconds(curves.TOKENS, gpu, path, gpu_count=count) for count in (1.0, 2.0))
    assert np.all(two < one)
    close(two, [naive_restore(tokens, gpu, 1e11, 1e10, 6e10, 1.0, 2.0) for tokens in curves.TOKENS])
    close(curves.prefill_seconds(curves.TOKENS, gpu) / 2.0, curves.prefill_seconds(curves.TOKENS, gpu, 2.0))


@cases("roofline")
def test_roofline_matches_the_reference(case: dict[str, Any]) -> None:
    inputs, expected = case["inputs"], case["expected"]
    names = ("gpu", "dram", "disk", "link", "gpu_count", "dram_count", "model_params")
    chosen = {name: inputs[name] for name in names} | {"gpu_eta": inputs["eta"]}
    machine = roofline.machine(deploy(CATALOG, chosen))
    close(roofline.compute_seconds(inputs["blocks"], machine), expected["compute_seconds"])
    close(roofline.storage_compute_seconds(inputs["blocks"], machine), expected["storage_plus_compute_seconds"])


def test_compute_is_bound_by_memory_when_arithmetic_is_free() -> None:
    deployment = deploy(CATALOG, {"stack": "h200", "peak_flops": 1e21})
    machine = roofline.machine(deployment)
    vram = deployment.capacities()[0]
    blocks = np.array([0.5, 1.0, 1.5]) * vram
    expected = [0.5 * vram * 2e6 / 4.8e12, vram * 2e6 / 4.8e12, vram * 2e6 / 4.8e12 + 0.5 * vram * 2e6 / 6e11]
    close(roofline.compute_seconds(blocks, machine), expected)


def test_permutations_agree_with_one_deployment_at_a_time() -> None:
    grid = roofline.storage_compute_seconds(roofline.BLOCKS, roofline.permuted_machines(CATALOG))
    assert grid.shape == (6, 6, 7, 7, 7)
    keys = itertools.product(
        roofline.PERMUTED_GPUS, roofline.PERMUTED_DRAMS, roofline.PERMUTED_DISKS, roofline.PERMUTED_LINKS
    )
    slow = []
    for gpu, dram, disk, link in keys:
        chosen = {"gpu": gpu, "dram": dram, "disk": disk, "link": link, "dram_count": 4}
        slow.append(roofline.storage_compute_seconds(roofline.BLOCKS, roofline.machine(deploy(CATALOG, chosen))))
    close(grid.reshape(1764, 7), slow)


def test_cost_is_that_of_all_parts_and_unknown_when_one_has_no_price() -> None:
    assert roofline.cost_dollars(CATALOG, deploy(CATALOG, {"stack": "h200"})) == 40000 + 4 * 500 + 500 + 150
    assert roofline.cost_dollars(CATALOG, deploy(CATALOG, {"stack": "h200", "gpu_count": 2})) == 82650
    assert roofline.cost_dollars(CATALOG, deploy(CATALOG, {"gpu": "h100-sxm"})) is None
