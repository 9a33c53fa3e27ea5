"""Records, their fields and the rules between them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsweep.catalog.fields import Range, field_types, read_fields
from kvsweep.catalog.load import FILES
from kvsweep.catalog.rules import build_entry
from kvsweep.catalog.specs import Disk, Entry, Gpu, Link, Model, Stack
from kvsweep.errors import InputError

FLAT_GPU = {"peak_flops": 1e15, "hbm_bandwidth": 2e12, "hbm_capacity": 8e10}
SHAPE = {
    "architecture": "dense", "attention": "gqa", "layers": 32, "hidden_size": 4096, "heads": 32, "kv_heads": 8,
    "head_dim": 128, "v_head_dim": 128, "vocab": 128256, "max_context": 131072,
}  # fmt: skip


def refusal(cls: type[Entry], values: object) -> str:
    with pytest.raises(InputError) as caught:
        build_entry(cls, "X", values, "f.yaml: X")
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("cls", [cls for _, cls in FILES.values()])
def test_records_are_frozen_and_without_dict(cls: type[Entry]) -> None:
    assert dataclasses.fields(cls)
    assert hasattr(cls, "__slots__")
    assert cls.__dataclass_params__.frozen  # type: ignore[attr-defined]


@pytest.mark.parametrize("cls", [cls for _, cls in FILES.values()])
def test_every_number_has_a_unit_and_a_range(cls: type[Entry]) -> None:
    pending: list[type] = [cls]
    while pending:
        for name, accepted in field_types(pending.pop()).items():
            if dataclasses.is_dataclass(accepted.base):
                pending.append(accepted.base)
            elif accepted.base in (int, float):
                assert accepted.range is not None and accepted.range.unit, name
                assert math.isfinite(accepted.range.high), name
            else:
                assert accepted.base is str, name


def test_flat_entry_is_a_reference_and_takes_defaults() -> None:
    gpu = build_entry(Gpu, "X", FLAT_GPU, "f")
    assert isinstance(gpu, Gpu)
    assert (gpu.name, gpu.family, gpu.source, gpu.kind) == ("X", "reference", "user", "assumed")
    assert (gpu.max_link_bandwidth, gpu.cost, gpu.compute) == (0.0, None, None)


def test_groups_give_the_flat_fields_of_a_gpu() -> None:
    groups = {
        "compute": {"fp16_flops": 6.5e13, "source": "s", "kind": "vendor"},
        "memory": {"bytes_per_s": 3.2e11, "capacity_bytes": 1.6e10},
    }
    gpu = build_entry(Gpu, "X", groups, "f")
    assert isinstance(gpu, Gpu)
    assert (gpu.peak_flops, gpu.hbm_bandwidth, gpu.hbm_capacity) == (6.5e13, 3.2e11, 1.6e10)
    assert (gpu.family, gpu.source, gpu.kind) == ("datasheet", "s", "vendor")
    groups["compute"]["bf16_flops"] = 6e13
    assert build_entry(Gpu, "X", groups, "f").peak_flops == 6e13  # type: ignore[attr-defined]


def test_flat_field_wins_over_its_rule() -> None:
    link = build_entry(
        Link,
        "X",
        {"bandwidth": 1e10, "effective": {"low_bytes_per_s": 2e10, "bytes_per_s": 2e10, "high_bytes_per_s": 2e10}},
        "f",
    )
    assert isinstance(link, Link) and link.bandwidth == 1e10


def test_block_of_a_model_follows_from_its_shape() -> None:
    weights = {"total": 8e9, "active": 8e9}
    model = build_entry(Model, "X", {"weights": weights, "shape": SHAPE}, "f")
    assert isinstance(model, Model)
    assert (model.params, model.tokens_per_block, model.bytes_per_block, model.gpu_eta) == (8e9, 16, 2097152, 0.5)
    wider = build_entry(Model, "X", {"weights": weights, "shape": SHAPE, "tokens_per_block": 64}, "f")
    assert isinstance(wider, Model) and wider.bytes_per_block == 64 * 131072


def test_drive_without_capacity_is_unbounded() -> None:
    disk = build_entry(Disk, "X", {"rates": {"read_bytes_per_s": 1e9}}, "f")
    assert isinstance(disk, Disk) and disk.capacity == math.inf


@pytest.mark.parametrize(
    ("cls", "values", "message"),
    [
        (Gpu, FLAT_GPU | {"peak_flops": "fast"},
         "f.yaml: X: peak_flops: 'fast' is not a number, optionally with one of FLOP/s GFLOP/s TFLOP/s PFLOP/s; "
         "allowed: 1e+09 to 1e+18 FLOP/s"),
        (Gpu, FLAT_GPU | {"peak_flops": "64 GB/s"},
         "f.yaml: X: peak_flops: '64 GB/s' is not a number, optionally with one of FLOP/s GFLOP/s TFLOP/s PFLOP/s; "
         "allowed: 1e+09 to 1e+18 FLOP/s"),
        (Gpu, FLAT_GPU | {"peak_flops": "64"}, "f.yaml: X: peak_flops: 64.0 is out of range; allowed: 1e+09 to 1e+18 "
         "FLOP/s"),
        (Gpu, FLAT_GPU | {"peak_flops": True},
         "f.yaml: X: peak_flops: True is not a number; allowed: 1e+09 to 1e+18 FLOP/s"),
        (Gpu, FLAT_GPU | {"hbm_bandwidth": 4800},
         "f.yaml: X: hbm_bandwidth: 4800 is out of range; allowed: 1e+09 to 1e+15 byte/s"),
        (Gpu, FLAT_GPU | {"hbm_capacity": math.nan},
         "f.yaml: X: hbm_capacity: nan is out of range; allowed: 1e+08 to 1e+14 byte"),
        (Gpu, FLAT_GPU | {"cost": math.inf}, "f.yaml: X: cost: inf is out of range; allowed: 0 to 1e+09 USD"),
        (Gpu, FLAT_GPU | {"cost": -1}, "f.yaml: X: cost: -1 is out of range; allowed: 0 to 1e+09 USD"),
        (Gpu, FLAT_GPU | {"max_link_bandwidth": 900},
         "f.yaml: X: max_link_bandwidth: 900 is out of range; allowed: 0 or 1e+06 to 1e+15 byte/s"),
        (Gpu, FLAT_GPU | {"name": 4090}, "f.yaml: X: name: 4090 is not one line of text; put it in quotes"),
        (Gpu, FLAT_GPU | {"name": " "}, "f.yaml: X: name: ' ' is not one line of text"),
        (Gpu, {"peak_flops": 1e15},
         "f.yaml: X: hbm_bandwidth: missing; allowed: 1e+09 to 1e+15 byte/s, or give memory.bytes_per_s"),
        (Gpu, {"compute": {"fp8_flops": 1e15}},
         "f.yaml: X: peak_flops: missing; allowed: 1e+09 to 1e+18 FLOP/s, "
         "or give compute.bf16_flops or compute.fp16_flops"),
        (Gpu, {"memory": {"bytes_per_s": 1e12}},
         "f.yaml: X: memory: capacity_bytes: missing; allowed: 1e+08 to 1e+14 byte"),
        (Gpu, {"compute": {"kind": "vendr"}},
         "f.yaml: X: compute: kind: no 'vendr'; did you mean 'vendor'? choose from vendor, measured, assumed"),
        (Disk, {"bandwidth": 5e9, "rates": 7}, "f.yaml: X: rates: 7 is not a mapping of fields; "
         "allowed: source, kind, read_bytes_per_s, write_bytes_per_s"),
        (Link, {"effective": {"low_bytes_per_s": 3e9, "bytes_per_s": 2e9, "high_bytes_per_s": 4e9}},
         "f.yaml: X: effective: figures contradict each other; "
         "allowed: low_bytes_per_s <= bytes_per_s <= high_bytes_per_s"),
        (Stack, {"gpu": "a", "dram": "b", "disk": "c"}, "f.yaml: X: link: missing; allowed: text"),
        (Stack, {"gpu_count": 1.5}, "f.yaml: X: gpu_count: 1.5 is not a whole number; allowed: 1 to 1e+06"),
        (Stack, {"gpu_count": 0}, "f.yaml: X: gpu_count: 0 is out of range; allowed: 1 to 1e+06"),
    ],
)  # fmt: skip
def test_bad_values_are_refused_with_field_and_range(cls: type[Entry], values: dict[str, Any], message: str) -> None:
    assert refusal(cls, values) == message


def test_unknown_field_names_the_nearest() -> None:
    message = refusal(Gpu, {"peak_flop": 1e15})
    assert message.startswith("f.yaml: X: field: no 'peak_flop'; did you mean 'peak_flops'? choose from name, source")
    assert "'kv_heads'?" in refusal(Model, {"shape": {"kv_head": 8}})
    assert "no 'family'" in refusal(Gpu, {"family": "reference"})


def test_entry_that_is_no_mapping_is_refused() -> None:
    assert refusal(Link, [1]).startswith("f.yaml: X: [1] is not a mapping of fields; allowed: name, source")


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        ({"layers_window": 40, "window": 8}, "layers_window + layers_linear + layers_plain <= layers"),
        ({"window": 128}, "layers_window and window both 0 or both positive"),
        ({"state_bytes_per_sequence": 1e6}, "a state only with layers_linear"),
        ({"kv_lora_rank": 512}, "kv_lora_rank only with mla or hybrid"),
        ({"attention": "mla"}, "kv_lora_rank positive for attention mla"),
        ({"kv_heads": 64}, "kv_heads <= heads"),
        ({"experts_per_token": 2}, "experts_per_token <= experts"),
        ({"architecture": "moe"}, "experts positive exactly for architecture moe"),
    ],
)
def test_contradicting_shape_is_refused(change: dict[str, Any], allowed: str) -> None:
    message = refusal(Model, {"params": 8e9, "shape": SHAPE | change})
    assert message == f"f.yaml: X: shape: figures contradict each other; allowed: {allowed}"


def test_null_is_not_stated() -> None:
    assert read_fields(Gpu, {"cost": None, "note": "n"}, "f") == {"note": "n"}


@given(st.floats(1e9, 1e18))
def test_numbers_in_range_are_kept_exactly(value: float) -> None:
    assert read_fields(Gpu, {"peak_flops": value}, "f") == {"peak_flops": value}


@given(st.one_of(st.integers(), st.floats(), st.booleans(), st.text(), st.none(), st.lists(st.integers())))
def test_any_value_is_read_or_refused(value: object) -> None:
    try:
        found = read_fields(Gpu, {"peak_flops": value}, "f")
    except InputError as error:
        assert str(error).startswith("f: peak_flops: ") and str(error).endswith("allowed: 1e+09 to 1e+18 FLOP/s")
    else:
        assert found == {} if value is None else 1e9 <= found["peak_flops"] <= 1e18


@given(st.floats(1e10, 1e17).map(lambda x: f"{x:.3g}".replace("e+", "e")))
def test_numbers_that_yaml_takes_for_text_are_numbers(text: str) -> None:
    assert read_fields(Gpu, {"peak_flops": text}, "f") == {"peak_flops": float(text)}


def test_files_take_quantities_as_options_do() -> None:
    stated = {"peak_flops": "989 TFLOP/s", "hbm_bandwidth": "4.8 TB/s", "hbm_capacity": "141GB"}
    assert read_fields(Gpu, stated, "f") == {"peak_flops": 989e12, "hbm_bandwidth": 4.8e12, "hbm_capacity": 141e9}


def test_range_holds_zero_only_where_allowed() -> None:
    assert 0 in Range("byte/s", 1.0, 2.0, or_zero=True) and 0 not in Range("byte/s", 1.0, 2.0)
    assert math.nan not in Range("byte/s", 1.0, 2.0)
