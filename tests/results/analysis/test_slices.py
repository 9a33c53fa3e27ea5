"""Slices of a sweep: what is kept, what is fixed, and what a message says when a choice is missing."""

from __future__ import annotations

import numpy as np
import pytest

from kvsweep.errors import InputError
from kvsweep.results.analysis.slices import grid_dims, take_slice, value_text
from tests.results.sweep_samples import small, wide

AXES = ("request_rate", "p95_seconds")


def test_grid_dims_leave_out_policy_and_tier() -> None:
    assert grid_dims(small()) == ["hit_ratio", "request_rate", "p95_seconds"]
    assert grid_dims(wide()) == ["stack", "placement", "request_rate", "p95_seconds"]


def test_hit_ratio_is_cut_nearest_a_half_and_the_cut_is_reported() -> None:
    part = take_slice(small(), AXES, {})
    assert part.dataset["hit_ratio"].item() == 0.4
    assert part.assumed == ("hit_ratio",)
    chosen = take_slice(small(), AXES, {"hit_ratio": "0.8"})
    assert chosen.dataset["hit_ratio"].item() == 0.8 and chosen.assumed == ()


def test_numbers_are_found_although_binary_fractions_differ() -> None:
    rate = 0.1 * 0.7
    assert rate != 0.07
    part = take_slice(small(), ("hit_ratio", "p95_seconds"), {"request_rate": rate})
    assert part.dataset["request_rate"].item() == 0.07


def test_policies_stay_a_dim_in_the_order_asked_for() -> None:
    part = take_slice(small(), AXES, {"policy": "all_compute,default_policy"})
    assert part.dataset["policy"].values.tolist() == ["all_compute", "default_policy"]
    assert take_slice(small(), AXES, {"policy": ["default_policy"]}).dataset.sizes["policy"] == 1


def test_values_squeezed_out_may_be_stated() -> None:
    part = take_slice(small(), AXES, {"total_blocks": 200_000, "stack": "h200"})
    assert set(part.dataset["meets_slo"].dims) == {"policy", *AXES}


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({}, "stack is open: h200, a5000; choose one, as in --select stack=h200"),
        ({"stack": "h200"}, "placement is open: disk, auto; choose one, as in --select placement=disk"),
        ({"stack": "h100"}, "--select stack=h100: not on the axis; choose from h200, a5000"),
        ({"stak": "h200"}, "--select stak=h200: no 'stak'; did you mean 'stack'? choose from stack, placement"),
        ({"request_rate": 0.1}, "request_rate is an axis of the figure"),
        ({"policy": "recompute"}, "--select policy=recompute: no 'recompute'; did you mean 'all_compute'?"),
        ({"total_blocks": 1}, "--select total_blocks=1: not on the axis; choose from 50000"),
        ({"hit_ratio": "half"}, "--select hit_ratio=half: 'half' is not a number"),
    ],
)
def test_a_choice_that_cannot_be_used_is_named(chosen: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        take_slice(wide(), AXES, chosen, "--select ")
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_axis_and_long_axes_are_told_briefly() -> None:
    with pytest.raises(InputError, match="no dim hit_ratio; it has stack, placement, request_rate, p95_seconds"):
        take_slice(wide(), ("hit_ratio", "p95_seconds"), {})
    with pytest.raises(InputError, match=r"request_rate is open: 0\.01, 0\.02, .* … 0\.3 \(30 values\)"):
        take_slice(wide(), ("stack", "placement"), {"p95_seconds": 5})


def test_values_are_written_as_typed() -> None:
    texts = [value_text(value) for value in (0.1, np.float64(4e9), np.int64(3), "auto")]
    assert texts == ["0.1", "4000000000", "3", "auto"]
