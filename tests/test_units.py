"""Quantities as users type and read them."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsweep.costs.inputs import NUMBER_FIELDS
from kvsweep.errors import InputError, shown, unknown_name
from kvsweep.grid.axes import number_axis
from kvsweep.units import SUFFIXES, format_quantity, parse_quantity


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("64 GB/s", "byte/s", 6.4e10), ("2MiB", "byte", 2.0 * 2**20), ("1.5e3", "byte", 1500.0), (".5", "1", 0.5),
        ("50%", "1", 0.5), ("10ms", "s", 0.01), ("2 min", "s", 120.0), ("6/min", "1/s", 0.1), ("-3", "s", -3.0),
        ("inf", "byte", math.inf),
    ],
)  # fmt: skip
def test_reading(text: str, unit: str, value: float) -> None:
    assert parse_quantity(text, unit, "--x") == value


@pytest.mark.parametrize("text", ["", "fast", "1 GB", "1 2", "0x10", "1e", "--1", "1_000"])
def test_what_is_no_quantity_is_refused_by_name(text: str) -> None:
    with pytest.raises(InputError, match="^--p95-seconds: .* is not a number"):
        parse_quantity(text, "s", "--p95-seconds")


@pytest.mark.parametrize(
    "text",
    ["1" * 100_000 + "x\n.", "9" * 390 + "x\n.", "1" * 200 + "." + "1" * 190 + "x\n", "1" + " " * 100_000 + "\nx",
     "." * 99_999, "1e" + "9" * 100_000, "\n" * 50_000 + "1" + "\n" * 50_000 + "1"],
)  # fmt: skip
def test_text_of_any_length_is_refused_at_once(text: str) -> None:
    began = time.process_time()
    with pytest.raises(InputError, match="is not a number"):
        parse_quantity(text, "byte", "--x")
    with pytest.raises(InputError):
        number_axis(text, NUMBER_FIELDS["request_rate"], "--x")
    assert time.process_time() - began < 0.5


@given(st.floats(allow_nan=False), st.sampled_from(sorted(SUFFIXES)))
def test_any_float_reads_back(value: float, unit: str) -> None:
    assert parse_quantity(repr(value), unit, "x") == value


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (6.4e10, "byte/s", "64 GB/s"), (999.0, "byte", "999 B"), (math.nan, "s", "–"),
        (3.12e14, "FLOP/s", "312 TFLOP/s"),
        (0.25, "1", "0.25"), (1.5, "s", "1.5 s"),
    ],
)  # fmt: skip
def test_printing(value: float, unit: str, text: str) -> None:
    assert format_quantity(value, unit) == text


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("GLM-4.8", "glm-4.5"), ("zai-org/GLM-4.6", "glm-4.5"), ("Qwen/Qwen3-8B", "qwen3-8b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"), ("gpt-oss:120b", "gpt-oss-120b"), ("qwn3-8b", "qwen3-8b"),
    ],
)  # fmt: skip
def test_unknown_names_suggest_by_meaning(given: str, meant: str) -> None:
    names = ["qwen3-8b", "qwen3-235b-a22b", "llama-3.1-70b", "llama-3.1-8b", "glm-4.5-air", "glm-4.5", "gpt-oss-120b"]
    assert f"did you mean {meant!r}?" in str(unknown_name("--model", given, names))


def test_an_unknown_name_suggests_the_nearest_and_lists_the_rest() -> None:
    message = str(unknown_name("--gpu", "h2000", ["A100", "H200"]))
    assert message == "--gpu: no 'h2000'; did you mean 'H200'? choose from A100, H200"
    assert "did you mean" not in str(unknown_name("--gpu", "zzzz", ["A100", "H200"]))


def test_suffixes_scale_in_decimal() -> None:
    for whole in range(1, 1000):
        assert parse_quantity(f"{whole}%", "1", "x") == float(f"{whole}e-2")
        assert parse_quantity(f"{whole}ms", "s", "x") == float(f"{whole}e-3")
        assert parse_quantity(f"{whole / 100} GB", "byte", "x") == float(f"{whole}e7")
        assert parse_quantity(f"{whole}/min", "1/s", "x") == whole / 60


def test_a_value_is_shown_on_one_short_line_whatever_it_is() -> None:
    assert len(shown(10**5000)) <= 80
    assert len(shown([["x" * 10**6] * 100] * 100)) <= 80
