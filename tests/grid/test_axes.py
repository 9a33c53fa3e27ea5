"""Axis syntax: every form, decimal steps, and refusals."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsweep.costs.inputs import NUMBER_FIELDS
from kvsweep.errors import InputError
from kvsweep.grid.axes import key_axis, number_axis, placement_axis, placement_weights

P95, RATE, HIT, TOTAL = (NUMBER_FIELDS[name] for name in ("p95_seconds", "request_rate", "hit_ratio", "total_blocks"))


def test_a_step_axis_is_decimal_and_includes_its_stop() -> None:
    rates = number_axis("0.01:0.30:0.01", RATE, "--request-rate")
    assert rates.tolist() == [float(f"0.{index:02d}") for index in range(1, 31)]
    assert number_axis("0:1:0.1", HIT, "x").tolist() == [index / 10 for index in range(11)]
    assert number_axis("5:60:5", P95, "x").tolist() == [float(p) for p in range(5, 61, 5)]
    assert number_axis("60:5:-5", P95, "x").tolist() == [float(p) for p in range(60, 4, -5)]
    assert number_axis("1:2:0.3", P95, "x").tolist() == [1.0, 1.3, 1.6, 1.9]


@given(st.integers(0, 1000), st.integers(1, 50), st.integers(1, 200))
def test_a_step_axis_equals_decimal_counting(start: int, step: int, count: int) -> None:
    stop = Decimal(start + step * (count - 1)) / 1000
    text = f"{Decimal(start) / 1000}:{stop}:{Decimal(step) / 1000}"
    if stop <= 1:
        assert number_axis(text, HIT, "x").tolist() == [(start + step * index) / 1000 for index in range(count)]


def test_the_other_forms() -> None:
    assert number_axis("0:1:n5", HIT, "x").tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert np.allclose(number_axis("log:1:1000:n4", RATE, "x"), [1, 10, 100, 1000])
    assert number_axis("3,1,2", P95, "x").tolist() == [3.0, 1.0, 2.0]
    assert number_axis("250 ms, 1 s", P95, "x").tolist() == [0.25, 1.0]
    assert number_axis(7, P95, "x").tolist() == [7.0]
    assert number_axis(np.array([1.0, 2.0]), P95, "x").tolist() == [1.0, 2.0]
    assert number_axis("1ms:5ms:2ms", P95, "x").tolist() == [0.001, 0.003, 0.005]


@pytest.mark.parametrize(
    "value",
    ["", " ", ",", "1,,2", "1:2", "1:2:3:4", "5:60:-5", "60:5:5", "1:2:0", "nan", "1,nan", "1:nan:1", "inf", "0:5:1",
     "-1", "a:b:c", "1:2:n0", "1:2:nx", "1:2:n-3", "log:0:1:n3", "log:1:10:3", "log:-1:1:n3", "1:2:1,3", "1,1", [],
     [1, 1], [1, "x"], [None], {}, "1:1e9:1e-9", "1e308:1e309:1e307", True],
)  # fmt: skip
def test_what_is_no_axis_is_refused_in_one_line_by_name(value: object) -> None:
    with pytest.raises(InputError) as caught:
        number_axis(value, P95, "--p95-seconds")
    assert str(caught.value).startswith("--p95-seconds: ")
    assert "\n" not in str(caught.value)


def test_whole_axes_refuse_fractions() -> None:
    with pytest.raises(InputError, match="whole number"):
        number_axis("1:2:n3", TOTAL, "--total-blocks")


def test_names() -> None:
    assert key_axis("h200, a5000", "--stack") == ["h200", "a5000"]
    assert key_axis(["h200"], "--stack") == ["h200"]
    for wrong in ("", ",", "a,a", [], [3], ["a", "a"]):
        with pytest.raises(InputError, match="^--stack: "):
            key_axis(wrong, "--stack")


def test_placements() -> None:
    assert placement_axis("disk,auto", "x") == ["disk", "auto"]
    assert placement_axis("disk, manual:1,2,3,auto", "x") == ["disk", "manual:1,2,3", "auto"]
    assert placement_axis("auto,simplex:1", "x")[:2] == ["auto", "manual:1,0,0"]
    assert placement_axis(["auto", "manual:0.5,0.3,0.2"], "x") == ["auto", "manual:0.5,0.3,0.2"]
    simplex = placement_axis("simplex:10", "x")
    assert len(simplex) == 66 and len(set(simplex)) == 66
    for label in simplex:
        assert math.isclose(sum(placement_weights(label)), 1.0, rel_tol=1e-11)
    assert all(math.isnan(weight) for weight in placement_weights("auto"))
    for wrong in ("", "tape", "manual:1,2", "manual:a,b,c", "manual:-1,1,1", "simplex:0", "simplex:x", ["disk", "disk"],
                  [], [1], "manual:nan,0,1", "manual:inf,1,1", "Auto"):  # fmt: skip
        with pytest.raises(InputError, match="^--placement: "):
            placement_axis(wrong, "--placement")
