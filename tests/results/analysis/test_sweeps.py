"""Derived quantities, writing and opening of result files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import kvsweep
from kvsweep.errors import InputError, ResultError
from kvsweep.results import attrs, files, netcdf
from kvsweep.results.analysis.sweeps import require_policies, require_sweep, simplest_first
from kvsweep.results.names import NAMES

AXES = {"stack": ["h200", "a100_ddr4_sata"], "placement": ["auto", "manual:1,1,1"], "total_blocks": 90_000,
        "hit_ratio": "0:1:0.25", "request_rate": "0.01:0.3:n5", "p95_seconds": "5:60:n4"}  # fmt: skip
REAL = {"gpu": "h100-sxm", "model": "llama-3.1-8b", "cost_model": ["linear", "attention"], "setup_seconds": 0.05,
        "overlap": ["ideal", "layerwise", "serial"], "placement": ["auto", "manual:1,2,1"], "total_blocks": 600,
        "hit_ratio": "0:1:n3", "request_rate": [0.1, 2], "p95_seconds": [1, 4]}  # fmt: skip


@pytest.fixture(scope="module")
def sweep() -> xr.Dataset:
    return kvsweep.sweep(**AXES, dtype="f8", squeeze=False)


@pytest.mark.parametrize("axes", [AXES, REAL], ids=["linear", "positional"])
def test_derived_quantities_equal_the_scalar_path(axes: dict[str, Any], sweep: xr.Dataset) -> None:
    sweep = sweep if axes is AXES else kvsweep.sweep(**axes, dtype="f8", squeeze=False)
    derived = {name: getattr(sweep.kvsweep, name) for name in (
        "storage_time", "recompute_time", "gpu_utilization", "storage_utilization", "latency_ratio", "slo_margin",
        "max_violation",
    )}  # fmt: skip
    for name, array in derived.items():
        assert array.dims == sweep.total_time.dims and array.attrs["units"] == NAMES[name].units
    generator = np.random.default_rng(3)
    for _ in range(40):
        index = {
            dim: int(generator.integers(length)) for dim, length in sweep.total_time.sizes.items() if dim != "policy"
        }
        cell = sweep.isel(index)
        options = {name: cell[name].item() for name in axes}
        row = kvsweep.simulate(**options, policies=sweep.policy.values.tolist())["results"][0]
        for name, array in derived.items():
            for policy in sweep.policy.values:
                assert np.isclose(array.isel(index).sel(policy=policy), row[policy][name], rtol=1e-12, atol=1e-12)
        states = sweep.kvsweep.verdict.isel(index)
        for policy in sweep.policy.values:
            result = row[policy]
            throughput_ok = result["gpu_violation"] == 0 and result["storage_violation"] == 0
            assert int(states.sel(policy=policy)) == 2 * (result["latency_violation"] == 0) + throughput_ok


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_verdicts_agree_with_the_stored_pass(dtype: str) -> None:
    ds = kvsweep.sweep(**AXES, dtype=dtype)
    assert np.array_equal(ds.kvsweep.verdict == 3, ds.meets_slo == 1)
    assert np.array_equal(ds.kvsweep.max_violation == 0, ds.meets_slo == 1) or dtype == "f4"
    exact = kvsweep.sweep(**AXES, dtype="f8")
    assert np.array_equal(ds.meets_slo, exact.meets_slo)


def test_success_rate_over_chosen_dims(sweep: xr.Dataset) -> None:
    assert np.allclose(sweep.kvsweep.success_rate(), sweep.meets_slo.mean(("request_rate", "p95_seconds")))
    assert sweep.kvsweep.success_rate(["stack"]).dims == tuple(dim for dim in sweep.meets_slo.dims if dim != "stack")
    assert sweep.kvsweep.success_rate("stack").equals(sweep.kvsweep.success_rate(["stack"]))
    with pytest.raises(InputError, match="over: no 'rate'"):
        sweep.kvsweep.success_rate(["rate"])


def test_sufficient_is_the_simplest_that_passes(sweep: xr.Dataset) -> None:
    """Fewest modes first, then order: Restore and Recompute before the two-mode policies."""
    names = sweep.policy.values.tolist()
    ranked = ["default_policy", "all_compute", "performance_aware", "slowest_tier_first"]
    passes = sweep.meets_slo.stack(point=sweep.meets_slo.dims[1:]).values
    found = sweep.kvsweep.sufficient.stack(point=sweep.meets_slo.dims[1:]).values
    for point, index in enumerate(found):
        wanted = [name for name in ranked if passes[names.index(name), point]]
        assert (names[index] == wanted[0]) if wanted else index == -1
    assert set(np.unique(found)) >= {-1, names.index("default_policy")}
    assert simplest_first([2, 1, 1], [1, 5, 3]) == [2, 1, 0]


def test_speedup_is_how_many_times_faster(sweep: xr.Dataset) -> None:
    ratio = sweep.kvsweep.speedup("performance_aware", "default_policy")
    times = sweep.total_time
    assert np.allclose(ratio, times.sel(policy="default_policy") / times.sel(policy="performance_aware"))
    with pytest.raises(InputError, match="did you mean 'all_compute'"):
        sweep.kvsweep.speedup("all_computee", "default_policy")


def test_the_accessor_works_on_slices(sweep: xr.Dataset) -> None:
    one = sweep.sel(policy="slowest_tier_first").isel(stack=0, placement=0)
    whole = sweep.kvsweep.storage_time.sel(policy="slowest_tier_first").isel(stack=0, placement=0)
    assert np.array_equal(one.kvsweep.storage_time, whole)
    assert one.kvsweep.verdict.dims == ("total_blocks", "hit_ratio", "request_rate", "p95_seconds")


def test_the_accessor_refuses_what_is_no_sweep() -> None:
    with pytest.raises(InputError, match="has no .*meets_slo"):
        _ = xr.Dataset().kvsweep.verdict


def test_files_round_trip_with_units_on_everything(sweep: xr.Dataset, tmp_path: Path) -> None:
    path = tmp_path / "sweep.nc"
    netcdf.write_netcdf(sweep, path)
    with kvsweep.open(path) as again:
        assert again.load().equals(sweep)
        assert again.attrs["Conventions"] == "CF-1.11"
        for name in again.variables:
            assert again[name].attrs["long_name"]
            assert "units" in again[name].attrs or again[name].dtype.kind in "OUT"
        assert again.kvsweep.verdict.equals(sweep.kvsweep.verdict)
    assert [file.name for file in tmp_path.iterdir()] == ["sweep.nc"]


def test_open_refuses_other_files_and_versions(tmp_path: Path) -> None:
    text = tmp_path / "text.nc"
    text.write_text("no data")
    foreign = tmp_path / "foreign.nc"
    xr.Dataset({"a": 1}).to_netcdf(foreign)
    later = tmp_path / "later.nc"
    xr.Dataset({"a": 1}, attrs={"kvsweep_schema_version": 99}).to_netcdf(later)
    for path, message in [
        (tmp_path / "gone.nc", "no such file"), (tmp_path, "no such file"), (text, "not a NetCDF file"),
        (foreign, "no kvsweep_schema_version"), (later, "version is 99; allowed: schema version 1"),
    ]:  # fmt: skip
        with pytest.raises(InputError, match=message):
            kvsweep.open(path)


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sweep.nc"
    path.write_text("old")

    def full_disk(self: xr.Dataset, store: object, **_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(xr.Dataset, "dump_to_store", full_disk)
    with pytest.raises(ResultError, match=f"cannot write {path}: No space left on device"):
        netcdf.write_netcdf(kvsweep.sweep(hit_ratio=0.5), path)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["sweep.nc"]


def test_writability_is_checked_before_any_work(tmp_path: Path) -> None:
    taken = tmp_path / "taken.nc"
    taken.write_text("")
    files.check_writable(taken, force=True)
    for path, message in [(taken, "exists"), (tmp_path, "is a folder"), (tmp_path / "no" / "x.nc", "does not exist")]:
        with pytest.raises(InputError, match=f"--output: .*{message}"):
            files.check_writable(path, force=False)


def test_attributes_become_what_netcdf_can_hold() -> None:
    made = attrs.to_attrs({"a": True, "b": None, "c": {"x": [1, 2]}, "d": 1.5, "e": "text"})
    assert made == {"a": 1, "c": "x:\n- 1\n- 2\n", "d": 1.5, "e": "text"}


def test_the_accessor_is_there_when_xarray_came_first() -> None:
    code = "import xarray, kvsweep; print(hasattr(xarray.Dataset(), 'kvsweep'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


@pytest.mark.parametrize("version", ["</script>", [1, 1], "x" * 5000])
def test_a_schema_version_of_any_type_is_refused_in_one_short_line(version: object, tmp_path: Path) -> None:
    path = tmp_path / "odd.nc"
    xr.Dataset({"a": 1}, attrs={"kvsweep_schema_version": version}).to_netcdf(path)
    with pytest.raises(InputError, match="its schema version is") as caught:
        kvsweep.open(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


@pytest.mark.parametrize("text", ["{[: :", "- a", "!!python/object/apply:os.getcwd []", "a: &a [*a]", "[" * 9999])
def test_an_attribute_of_somebody_else_is_no_mapping(text: str) -> None:
    assert attrs.mapping_attr(xr.Dataset(attrs={"kvsweep_config": text}), "kvsweep_config") == {}


@pytest.mark.parametrize("name", ["decision_mode", "policy_color", "tier_hit_blocks", "miss_blocks"])
def test_a_sweep_that_lacks_a_part_is_refused_by_name(name: str, sweep: xr.Dataset) -> None:
    with pytest.raises(InputError, match=f"no {name}; allowed: the result of a full sweep"):
        require_sweep(sweep.drop_vars(name))


def test_a_sweep_of_texts_or_without_points_is_refused(sweep: xr.Dataset) -> None:
    with pytest.raises(InputError, match="total_time of this Dataset does not hold numbers"):
        require_sweep(sweep.assign(total_time=sweep.total_time.astype(str)))
    with pytest.raises(InputError, match="no points along policy"):
        require_sweep(sweep.isel(policy=slice(0, 0)))


def test_a_frame_holds_what_varies(sweep: xr.Dataset) -> None:
    """Xarray's own has a column for every coordinate, and a row for every tier."""
    small = sweep.isel(stack=[0], hit_ratio=slice(2))
    frame = small.kvsweep.to_dataframe()
    assert list(frame.columns) == [str(name) for name in small.data_vars] and list(frame.index.names) == [
        *map(str, small.total_time.dims)
    ]
    assert len(frame) == small.total_time.size and (frame["total_time"] == small.total_time.values.ravel()).all()
    modes = np.array(small["decision_mode"].attrs["flag_meanings"].split())
    assert (frame["decision_mode"].to_numpy() == modes[small["decision_mode"].values.ravel()]).all()
    reduced = kvsweep.sweep(total_blocks=100, reduce="success_rate,total_time_mean").kvsweep.to_dataframe()
    assert reduced.shape == (44, 2)


def test_a_frame_of_a_study_is_refused_with_the_way_on() -> None:
    ds = xr.Dataset({"ttft": (("ttl", "statistic"), np.zeros((2, 3))), "cells": (("ttl",), np.zeros(2))})
    with pytest.raises(InputError, match="different dims; take one, as in ds.kvsweep.figure"):
        ds.kvsweep.to_dataframe()


def test_policies_are_found_by_id_and_label(sweep: xr.Dataset) -> None:
    assert sweep.kvsweep.policy("IO-aware policy").identical(sweep.kvsweep.policy("performance_aware"))
    assert sweep.kvsweep.speedup("IO-aware policy", "Restore").equals(
        sweep.kvsweep.speedup("performance_aware", "default_policy")
    )
    with pytest.raises(InputError, match="nothing"):
        sweep.kvsweep.policy("nothing")


def test_a_sweep_without_its_dim_of_policies_is_refused() -> None:
    ds = kvsweep.sweep(hit_ratio="0:1:n3")
    with pytest.raises(InputError, match="no dim policy; allowed: one policy as a list"):
        require_policies(ds.isel(policy=0))
    require_policies(ds.isel(policy=[0]))
