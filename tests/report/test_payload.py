"""The payload against the Dataset it packs."""

from __future__ import annotations

import gzip
import json
import math

import numpy as np
import pytest

import kvsweep
from kvsweep.errors import InputError
from kvsweep.report.payload import LEVELS, Payload, check_budget, independent, pack, quantise
from kvsweep.report.provenance import error_bound, precision
from tests.report.datasets import dense, hostile, several, small

QUANTITIES = ("total_time", "reassigned_hit_blocks", "storage_time", "recompute_time")


def read(payload: Payload, name: str) -> np.ndarray:
    """Return a plane on all dims, as the viewer reads it."""
    header = payload.header
    spec = header["planes"][name]
    lengths = {dim["name"]: len(dim["values"]) for dim in header["dims"]}
    quantity, _, policy = name.partition(".")
    if spec["type"] == "derived":
        if quantity == "total_time":
            return np.maximum(read(payload, f"storage_time.{policy}"), read(payload, f"recompute_time.{policy}"))
        blocks = read(payload, "miss_blocks") + read(payload, f"reassigned_hit_blocks.{policy}")
        return blocks / read(payload, "recompute_throughput")
    if spec["type"] == "log24":
        high = np.frombuffer(gzip.decompress(payload.planes[name + ".hi"]), np.uint8).astype(np.uint32)
        low = np.frombuffer(gzip.decompress(payload.planes[name + ".lo"]), np.uint8).reshape(2, -1).astype(np.uint32)
        codes = high * 65536 + low[1] * 256 + low[0]
        values = np.exp(spec["low"] + (codes - 1.0) * spec["step"])
        values[codes == 0] = 0.0
        values[codes == LEVELS + 2] = np.inf
    else:
        values = np.frombuffer(gzip.decompress(payload.planes[name]), "<" + spec["type"])
    kept = spec["dims"]
    values = values.reshape([lengths[dim] for dim in kept])
    index = tuple(slice(None) if dim in kept else None for dim in lengths)
    return np.broadcast_to(values[index], tuple(lengths.values()))


@pytest.mark.parametrize("make", [small, several, dense])
def test_round_trip_is_within_the_stated_error(make):
    ds = make()
    payload = pack(ds)
    bound = error_bound(payload)
    for policy in range(ds.sizes["policy"]):
        assert np.array_equal(read(payload, f"verdict.{policy}"), ds.kvsweep.verdict.values[policy])
        assert np.array_equal(read(payload, f"decision_mode.{policy}"), ds["decision_mode"].values[policy])
        for quantity in QUANTITIES:
            expected = (ds[quantity] if quantity in ds else getattr(ds.kvsweep, quantity)).values[policy]
            np.testing.assert_allclose(read(payload, f"{quantity}.{policy}"), expected, rtol=bound, atol=0.0)


def test_planes_that_fit_are_exact():
    payload = pack(small())
    assert error_bound(payload) == 0.0
    assert "not quantised" in precision(payload)


def test_large_planes_are_quantised_and_the_bound_is_small():
    payload = pack(dense())
    kinds = {spec["type"] for spec in payload.header["planes"].values()}
    assert {"log24", "derived"} <= kinds
    assert 0.0 < error_bound(payload) < 3e-6
    assert f"{error_bound(payload):.1g}" in precision(payload)


def test_quantised_zero_and_infinity_are_exact():
    codes, low, step = quantise(np.array([0.0, 1e-3, 5.0, 1e6, np.inf]))
    assert codes[0] == 0 and codes[-1] == LEVELS + 2
    assert np.exp(low + (codes[1:4] - 1.0) * step) == pytest.approx([1e-3, 5.0, 1e6], rel=math.expm1(step / 2))
    assert quantise(np.full(3, 2.0))[0].tolist() == [1, 1, 1]


def test_dims_a_plane_does_not_depend_on_are_left_out():
    array = np.broadcast_to(np.arange(3.0)[None, :, None], (2, 3, 4))
    values, kept = independent(array, ["a", "b", "c"])
    assert kept == ["b"] and values.tolist() == [0.0, 1.0, 2.0]
    assert pack(small()).header["planes"]["total_time.0"]["dims"] == ["hit_ratio"]


def test_coordinates_are_exact_and_the_header_is_standard_json():
    ds = several()
    header = json.loads(json.dumps(pack(ds).header, allow_nan=False))
    for dim in header["dims"]:
        assert dim["values"] == ds[dim["name"]].values.tolist()
    assert header["counts"] == [np.bincount(plane.ravel(), minlength=4).tolist() for plane in ds.kvsweep.verdict.values]


@pytest.mark.parametrize(
    ("options", "dims"),
    [
        ({"hit_ratio": 0.5, "request_rate": 0.1, "p95_seconds": 10}, {"request_rate", "p95_seconds"}),
        ({"request_rate": 0.1, "p95_seconds": 10}, {"hit_ratio", "request_rate"}),
        ({"squeeze": False, "miss_blocks": "0,500", "request_rate": 0.1}, None),
    ],
)
def test_squeezed_sweeps_still_have_two_axes(options, dims):
    payload = pack(kvsweep.sweep(**options))
    names = {dim["name"] for dim in payload.header["dims"]}
    assert dims is None or names == dims
    assert len(set(payload.header["axes"])) == 2 and set(payload.header["axes"]) <= names
    assert set(payload.header["start"]) == names


def test_the_budget_counts_points_and_names_the_ways_out():
    with pytest.raises(InputError) as refusal:
        pack(small(), cells_budget=11 * 12 * 9 - 1)
    message = str(refusal.value)
    assert "\n" not in message
    for way in ("coarser axes", "slice", "--reduce", "--max-points", "1,188", "1,187"):
        assert way in message
    pack(small(), cells_budget=11 * 12 * 9)
    check_budget({"a": 2000, "b": 2000}, 4_000_000)


def test_reductions_and_other_files_are_refused():
    reduced = kvsweep.sweep(reduce="success_rate")
    with pytest.raises(InputError, match="reductions of a sweep"):
        pack(reduced)
    with pytest.raises(InputError, match="full sweep"):
        pack(small().drop_vars("total_time"))


def test_sliders_start_where_policies_differ_most():
    ds = small()
    start = pack(ds).header["start"]
    passes = ds["meets_slo"]
    differ = (passes.max("policy") != passes.min("policy")).sum(["request_rate", "p95_seconds"])
    assert start["hit_ratio"] == int(differ.values.argmax())


def test_hostile_labels_are_kept_as_they_are():
    ds = hostile()
    header = pack(ds).header
    assert [policy["label"] for policy in header["policies"]] == ds["policy_label"].values.tolist()


def test_an_endless_axis_is_a_list_of_labels():
    ds = kvsweep.sweep(disk_capacity=["1e12", "inf"], placement="auto", hit_ratio=0.5)
    (dim,) = (dim for dim in pack(ds).header["dims"] if dim["name"] == "disk_capacity")
    assert (dim["kind"], dim["values"]) == ("category", ["1e+12", "inf"])
