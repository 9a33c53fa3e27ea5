"""Placement, restore and recompute formulas: edge cases and properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsweep.catalog.load import load
from kvsweep.costs import placement, restore
from kvsweep.costs.deployment import CUSTOM, DEFAULT_STACK, deploy
from kvsweep.costs.inputs import NUMBER_FIELDS
from kvsweep.errors import InputError
from tests import naive

AUTO = (math.nan, math.nan, math.nan)
blocks = st.floats(0.0, 1e9)
rates = st.floats(1e-3, 1e9)
shares = st.tuples(*[st.floats(0.0, 1e6)] * 3)


@given(blocks, blocks, blocks)
def test_auto_fills_the_fastest_tier_first(hits: float, vram: float, dram: float) -> None:
    held = placement.residency(hits, (vram, dram), AUTO)
    assert held[0] == min(hits, vram)
    assert held[1] <= dram
    assert held[2] == 0.0 or held[1] == dram
    assert math.isclose(sum(held), hits)


@given(shares)
def test_weights_become_shares_that_sum_to_one(weights: tuple[float, float, float]) -> None:
    normalized = placement.normalized(*weights)
    assert math.isclose(sum(normalized), 1.0)
    if sum(weights) > 0.0:
        total = sum(weights)
        assert all(math.isclose(share, weight / total) for share, weight in zip(normalized, weights, strict=True))


def test_negative_weights_count_as_none_and_no_weight_is_all_disk() -> None:
    assert placement.normalized(-1.0, 1.0, 1.0) == (0.0, 0.5, 0.5)
    assert placement.normalized(0.0, 0.0, 0.0) == (0.0, 0.0, 1.0)


@given(st.tuples(blocks, blocks, blocks), st.tuples(rates, rates, rates))
def test_blend_lies_between_the_slowest_and_the_fastest_tier_in_use(
    held: tuple[float, float, float], throughputs: tuple[float, float, float]
) -> None:
    used = [rate for count, rate in zip(held, throughputs, strict=True) if count > 0.0] or [throughputs[2]]
    blend = restore.blended_throughput(held, throughputs)
    assert min(used) * (1 - 1e-9) <= blend <= max(used) * (1 + 1e-9)


@given(st.floats(1e6, 1e13), st.floats(1e6, 1e13), st.floats(1e3, 1e8), st.floats(1.0, 1e3))
def test_restore_is_monotone_in_bandwidth(disk: float, link: float, block: float, factor: float) -> None:
    slow = restore.linked_throughput(disk, link, block)
    assert restore.linked_throughput(disk * factor, link, block) >= slow
    assert restore.linked_throughput(disk, link * factor, block) >= slow


def test_misses_round_half_to_even_and_percent_is_decimal() -> None:
    assert [placement.miss_blocks(total, 50.0) for total in (1.0, 3.0, 5.0)] == [0.0, 2.0, 2.0]
    assert placement.hit_percent(0.07) == 7.0
    assert placement.miss_blocks(10_000.0, placement.hit_percent(0.42)) == 5800.0


@given(st.integers(0, 10**9), st.floats(0.0, 1.0))
def test_misses_are_whole_and_within_the_total(total: int, ratio: float) -> None:
    missing = placement.miss_blocks(float(total), placement.hit_percent(ratio))
    assert missing == int(missing)
    assert 0 <= missing <= total
    assert missing == np.rint(np.float64(total) * (100.0 - placement.hit_percent(ratio)) / 100.0)


def test_utilization_of_an_empty_or_absent_tier() -> None:
    assert placement.tier_utilization(0.0, 0.0) == 0.0
    assert placement.tier_utilization(1.0, 0.0) == math.inf
    assert placement.tier_utilization(5.0, 10.0) == 0.5


def test_a_stack_is_overridden_by_parts_and_parts_by_figures() -> None:
    catalog = load()
    assert deploy(catalog, {}).stack == DEFAULT_STACK
    h200 = deploy(catalog, {"stack": "h200"})
    assert (h200.gpu, h200.hbm_bandwidth) == ("H200", 4.8e12)
    other = deploy(catalog, {"stack": "h200", "gpu": "A100", "hbm_bandwidth": 1e12, "dram_count": 8})
    assert (other.stack, other.gpu, other.peak_flops, other.hbm_bandwidth) == ("h200", "A100", 3.12e14, 1e12)
    assert other.dram_count == 8
    assert deploy(catalog, {"gpu": "H100"}).stack == CUSTOM
    model = deploy(catalog, {"model": "llama3-70b", "bytes_per_block": 5e6})
    assert (model.model, model.model_params, model.bytes_per_block) == ("llama3-70b", 7e10, 5e6)


@pytest.mark.parametrize("gpu", sorted(load().gpus))
def test_rates_equal_the_naive_formulas_for_every_gpu(gpu: str) -> None:
    deployment = deploy(load(), {"gpu": gpu})
    expected = naive.rates(vars(deployment))
    actual = deployment.rates()
    assert actual.recompute_throughput == expected["recompute"]
    assert deployment.throughputs() == (expected["vram"], expected["dram"], expected["disk"])


def test_weights_larger_than_the_hbm_leave_no_capacity() -> None:
    deployment = deploy(load(), {"gpu": "A5000", "model_params": 7e10})
    assert deployment.capacities()[0] == 0.0
    assert not deployment.weights_fit


@pytest.mark.parametrize("field", NUMBER_FIELDS.values(), ids=lambda field: field.name)
@pytest.mark.parametrize("value", [-1, "-1", math.nan, "nan", "many", True, None, 1e300, []])
def test_every_input_refuses_what_lies_outside_its_range(field, value) -> None:
    if field.name == "disk_capacity" and value == 1e300:
        return  # remote stores have no end
    with pytest.raises(InputError) as caught:
        field.check(value, "--option")
    assert str(caught.value).startswith("--option: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("field", NUMBER_FIELDS.values(), ids=lambda field: field.name)
def test_every_input_accepts_its_bounds_and_units(field) -> None:
    assert field.check(field.highest, "x") == field.highest
    if field.open_below:
        with pytest.raises(InputError, match="out of range"):
            field.check(field.lowest, "x")
    else:
        assert field.check(field.lowest, "x") == field.lowest
    if field.whole:
        with pytest.raises(InputError, match="whole number"):
            field.check(field.lowest + 0.5, "x")
    if field.unit == "byte/s":
        assert field.check("64 GB/s", "x") == 6.4e10
