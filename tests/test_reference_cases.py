"""The handed reference values of the analytic model, on the scalar path and through sweeps."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

import kvsweep
from kvsweep.catalog.load import load
from kvsweep.costs.deployment import deploy
from kvsweep.costs.request import request_context
from kvsweep.policies.outcome import outcome
from kvsweep.policies.registry import load_policies
from tests.conftest import reference_cases

REFERENCE = ("performance_aware", "default_policy", "all_compute")
EXACT = ("meets_slo", "decision_mode")
WORKLOAD = ("total_blocks", "miss_blocks", "request_rate", "p95_seconds")


def close(actual: float, expected: float) -> bool:
    return actual == expected or math.isclose(actual, expected, rel_tol=1e-12, abs_tol=0.0)


def simulated(inputs: dict[str, Any], placement: str) -> dict[str, Any]:
    options = {name: value for name, value in inputs.items() if name not in ("mode", "fractions")}
    return kvsweep.simulate(**options, placement=placement)["results"][0]


def assert_policies_match(row: dict[str, Any], expected: dict[str, Any]) -> None:
    for name in REFERENCE:
        for field, value in expected["policies"][name].items():
            actual = row[name][field]
            assert actual == value if field in EXACT else close(actual, value), (name, field, actual, value)
    assert close(row["storage_throughput"], expected["storage_throughput"])
    assert close(row["recompute_throughput"], expected["recompute_throughput"])


@pytest.mark.parametrize("case", reference_cases("simulator"), ids=lambda case: case["id"])
def test_single_points(case: dict[str, Any]) -> None:
    assert_policies_match(simulated(case["inputs"], "disk"), case["expected"])


@pytest.mark.parametrize("case", reference_cases("placement"), ids=lambda case: case["id"])
def test_placements(case: dict[str, Any]) -> None:
    inputs, expected = case["inputs"], case["expected"]
    fractions = inputs["fractions"]
    manual = f"manual:{fractions['vram']},{fractions['dram']},{fractions['disk']}"
    row = simulated(inputs, "auto" if inputs["mode"] == "auto" else manual)
    assert_policies_match(row, expected)
    assert row["placement"]["capacity_fits"] == expected["capacity_fits"]
    for tier, wanted in zip(row["placement"]["tiers"], expected["tiers"], strict=True):
        for field in ("tier", "capacity_blocks", "resident_blocks", "overflow_blocks", "utilization"):
            assert tier[field] == wanted[field] or close(tier[field], wanted[field]), (tier, field)


@pytest.mark.parametrize("case", reference_cases("sweep"), ids=lambda case: case["id"])
def test_sweeps(case: dict[str, Any]) -> None:
    inputs, expected = case["inputs"], case["expected"]
    parts = {name: inputs[name] for name in ("gpu", "dram", "disk", "link", "gpu_count", "dram_count")}
    ds = kvsweep.sweep(
        **parts, total_blocks=inputs["total_blocks"], p95_seconds=inputs["p95_values"],
        request_rate=inputs["request_rates"], hit_ratio=[percent / 100 for percent in inputs["cache_ratio_sweep"]],
    )  # fmt: skip
    rates = ds.kvsweep.success_rate()
    states = ds.kvsweep.verdict.sel(hit_ratio=inputs["hit_ratio"] / 100)
    for name in REFERENCE:
        cells = len(inputs["p95_values"]) * len(inputs["request_rates"])
        wanted = [round(percent * cells / 100) for percent in expected["policy_success_rates"][name]]
        assert (rates.sel(policy=name).values * cells).round(6).tolist() == wanted
        counts = np.bincount(states.sel(policy=name).values.ravel(), minlength=4).tolist()
        assert (
            dict(zip(("fail", "rpc_only", "p95_only", "pass"), counts, strict=True))
            == (expected["heatmap_state_counts"][name])
        )


def test_overhead_pool() -> None:
    (case,) = reference_cases("overhead_pool")
    expected = case["expected"]
    generator = random.Random(case["inputs"]["seed"])
    pool = []
    for _ in range(case["inputs"]["pool_size"]):
        total = int(1000 * 200 ** generator.random())
        missing = int(round(total * (1 - generator.uniform(0, 1))))
        pool.append((total, missing, 0.01 * 200 ** generator.random(), generator.uniform(1, 60)))
    assert [dict(zip(WORKLOAD, entry, strict=True)) for entry in pool[:5]] == expected["first5"]
    assert sum(total for total, *_ in pool) == expected["sum_total_blocks"]
    assert sum(missing for _, missing, *_ in pool) == expected["sum_miss_blocks"]

    parts = {name: case["inputs"][name] for name in ("gpu", "dram", "disk", "link")}
    rates = deploy(load(), parts).rates()
    policies = load_policies()
    for name, modes in expected["decision_modes"].items():
        results = [
            outcome(policies[name], request_context(rates, (0.0, 0.0, 1.0), (float(total), float(missing)), rate, p95))
            for total, missing, rate, p95 in pool
        ]
        seen = [result.decision_mode for result in results]
        assert {mode: seen.count(mode) for mode in modes} == modes
        mean = sum(result.total_time for result in results) / len(results)
        assert close(mean, expected["mean_service_seconds"][name])
