"""The Dataset of a sweep: dims, coordinates, options, and that everything derived follows from the file alone."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import yaml

import kvsweep
from kvsweep.catalog.load import load
from kvsweep.costs.deployment import deploy
from kvsweep.errors import InputError
from kvsweep.grid.plan import make_plan
from tests.policies.test_registry import SOURCE, written

SMALL = {"hit_ratio": [0, 0.5, 1], "request_rate": [0.1, 0.2], "p95_seconds": [5, 50]}


def test_defaults_are_the_reference_sweep() -> None:
    ds = kvsweep.sweep()
    assert dict(ds.total_time.sizes) == {"policy": 4, "hit_ratio": 11, "request_rate": 30, "p95_seconds": 12}
    assert ds["stack"].item() == "a100_ddr5_nvme" and ds.placement.item() == "disk" and ds.total_blocks.item() == 10_000
    assert {name: str(ds[name].dtype) for name in ds.data_vars} == {
        "reassigned_hit_blocks": "float32", "total_time": "float32", "meets_slo": "int8", "decision_mode": "int8",
    }  # fmt: skip


def test_dims_stand_in_the_fixed_order_and_size_one_is_squeezed() -> None:
    axes = {"stack": ["h200", "a5000"], "gpu_count": [1, 2], "model": ["llama3-8b", "llama3-70b"]}
    axes |= {"total_blocks": [10, 20], "placement": ["auto", "disk"]}
    ds = kvsweep.sweep(**SMALL, **axes)
    wanted = (
        "policy",
        "stack",
        "model",
        "gpu_count",
        "total_blocks",
        "placement",
        "hit_ratio",
        "request_rate",
        "p95_seconds",
    )
    assert ds.total_time.dims == wanted
    one = kvsweep.sweep(hit_ratio=0.5, request_rate=1, p95_seconds=1)
    assert one.total_time.dims == ("policy",)
    whole = kvsweep.sweep(hit_ratio=0.5, request_rate=1, p95_seconds=1, squeeze=False)
    assert whole.total_time.dims == (
        "policy",
        "stack",
        "total_blocks",
        "placement",
        "hit_ratio",
        "request_rate",
        "p95_seconds",
    )
    assert kvsweep.sweep(**SMALL, policies=["all_compute"]).total_time.sizes["policy"] == 1


def test_list_axes_keep_their_order() -> None:
    ds = kvsweep.sweep(stack=["h200", "a5000"], hit_ratio=[1, 0, 0.5], request_rate=1, p95_seconds=1)
    assert ds.hit_ratio.values.tolist() == [1, 0, 0.5]
    assert ds["stack"].values.tolist() == ["h200", "a5000"]
    reversed_stacks = kvsweep.sweep(stack=["a5000", "h200"], hit_ratio=[1, 0, 0.5], request_rate=1, p95_seconds=1)
    assert np.array_equal(ds.total_time, reversed_stacks.total_time.sel(stack=["h200", "a5000"]))


def test_every_cell_equals_the_single_point() -> None:
    """A product over machine, model and workload axes against `simulate`, which knows no axes."""
    axes = {"gpu": ["A100", "H200"], "bytes_per_block": [1e6, 2e6], "disk_bandwidth": [2e9, 7e9]}
    ds = kvsweep.sweep(
        **axes, total_blocks=[1000, 99_999], placement=["auto", "manual:1,1,2"], **SMALL, dtype="f8", squeeze=False
    )
    flat = ds.stack(point=[dim for dim in ds.total_time.dims if dim not in ("policy", "stack")])
    picks = np.random.default_rng(1).choice(flat.sizes["point"], 60, replace=False)
    for index in picks:
        cell = flat.isel(point=index, stack=0)
        options = {name: cell[name].item() for name in (*axes, "total_blocks", "placement", *SMALL)}
        row = kvsweep.simulate(**options)["results"][0]
        assert cell.storage_throughput.item() == row["storage_throughput"]
        assert cell.recompute_throughput.item() == row["recompute_throughput"]
        assert cell.miss_blocks.item() == row["miss_blocks"]
        assert cell.tier_hit_blocks.values.tolist() == [tier["resident_blocks"] for tier in row["placement"]["tiers"]]
        for name in cell.policy.values:
            here = cell.sel(policy=name)
            assert here.total_time.item() == row[name]["total_time"]
            assert here.reassigned_hit_blocks.item() == row[name]["reassigned_hit_blocks"]
            assert bool(here.meets_slo) is row[name]["meets_slo"]


def test_coordinates_depend_on_what_they_depend_on() -> None:
    ds = kvsweep.sweep(stack=["h200", "a5000"], dram_count=[4, 8], model_params=[8e9, 7e10], **SMALL)
    assert set(ds.recompute_throughput.dims) == {"stack", "model_params"}
    assert set(ds.tier_throughput.dims) == {"stack", "tier"}
    assert ds.gpu.dims == ("stack",) and ds.gpu.values.tolist() == ["H200", "A5000"]
    assert ds.disk.dims == ("stack",) and ds.gpu_eta.dims == ()
    assert ds.miss_blocks.dims == ("hit_ratio",)
    assert ds.weights_fit.sel(stack="a5000", model_params=7e10).values.tolist() == [0, 0]
    assert "weights do not fit" in ds.attrs["kvsweep_warnings"]


def test_a_field_beside_stack_overrides_that_part_of_every_stack() -> None:
    ds = kvsweep.sweep(stack=["h200", "a100_ddr4_sata"], disk="NVMeGen5", **SMALL)
    catalog = load()
    for stack in ds["stack"].values:
        assert (
            ds.tier_throughput.sel(stack=stack, tier="disk").item()
            == (deploy(catalog, {"stack": stack, "disk": "NVMeGen5"}).throughputs()[2])
        )


def test_miss_blocks_take_the_place_of_hit_ratio() -> None:
    cells = {"request_rate": [0.1, 0.2], "p95_seconds": [5, 50]}
    ds = kvsweep.sweep(total_blocks=1000, miss_blocks="0:1000:n5", **cells)
    assert ds.total_time.dims == ("policy", "miss_blocks", "request_rate", "p95_seconds")
    same = kvsweep.sweep(
        total_blocks=1000, hit_ratio=[1, 0.75, 0.5, 0.25, 0], request_rate=[0.1, 0.2], p95_seconds=[5, 50]
    )
    assert np.array_equal(ds.total_time, same.total_time)
    assert same.miss_blocks.values.tolist() == ds.miss_blocks.values.tolist()


def test_a_simplex_of_placements_carries_its_shares() -> None:
    ds = kvsweep.sweep(placement="simplex:4", **SMALL)
    shares = np.stack([ds.vram_fraction, ds.dram_fraction, ds.disk_fraction])
    assert ds.sizes["placement"] == 15
    assert np.allclose(shares.sum(axis=0), 1.0)
    auto = kvsweep.sweep(placement=["auto", "disk"], **SMALL)
    assert math.isnan(auto.vram_fraction.sel(placement="auto")) and auto.disk_fraction.sel(placement="disk") == 1


def test_dropped_policies_appear_with_their_modes(tmp_path: Path) -> None:
    shared = SOURCE.replace('("halved",)', '("balanced", "halved")')
    ds = kvsweep.sweep(policy_files=[written(tmp_path, shared)], **SMALL)
    assert ds.policy.values.tolist()[-1] == "half"
    assert ds.policy_label.sel(policy="half").item() == "Half"
    meanings = ds.decision_mode.attrs["flag_meanings"].split()
    assert len(meanings) == len(set(meanings)) == len(ds.decision_mode.attrs["flag_values"])
    assert {meanings[code] for code in np.unique(ds.decision_mode.sel(policy="half"))} == {"halved"}
    assert {meanings[code] for code in np.unique(ds.decision_mode.sel(policy="slowest_tier_first"))} <= {
        "tail_none", "tail_balanced",
    }  # fmt: skip


def test_results_do_not_depend_on_threads_or_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    axes = {"hit_ratio": "0:1:n7", "request_rate": "0.01:0.5:n11", "p95_seconds": "1:60:n13"}
    one = kvsweep.sweep(**axes, threads=1)
    for size in (1, 10, 50, 1000):
        monkeypatch.setattr("kvsweep.grid.evaluate.slabs.__defaults__", (size,))
        assert one.equals(kvsweep.sweep(**axes, threads=3))


def test_the_stored_config_is_the_study_again() -> None:
    ds = kvsweep.sweep(stack=["h200", "a5000"], placement=["auto", "manual:1,2,3"], **SMALL, dtype="f8")
    again = kvsweep.sweep(**yaml.safe_load(ds.attrs["kvsweep_config"]))
    assert ds.equals(again)
    assert again.attrs["kvsweep_config"] == ds.attrs["kvsweep_config"]


def test_hardware_of_the_environment_is_part_of_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gpus.yaml").write_text("A100:\n  hbm_bandwidth: 1.0e+12\n")
    monkeypatch.setenv("KVSWEEP_HARDWARE", str(tmp_path))
    ds = kvsweep.sweep(**SMALL)
    monkeypatch.delenv("KVSWEEP_HARDWARE")
    again = kvsweep.sweep(**yaml.safe_load(ds.attrs["kvsweep_config"]))
    assert again.attrs["kvsweep_catalog_sha256"] == ds.attrs["kvsweep_catalog_sha256"]
    assert float(again.hbm_bandwidth) == 1e12


def test_settings_without_effect_on_single_points_are_refused() -> None:
    for name, value in (("dtype", "f8"), ("squeeze", False)):
        with pytest.raises(InputError, match=f"^{name}: has no effect"):
            kvsweep.simulate(**{name: value})


def test_progress_counts_every_point_once() -> None:
    calls: list[tuple[int, int]] = []
    kvsweep.sweep(**SMALL, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (12, 12)


def test_the_source_date_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert kvsweep.sweep(**SMALL).attrs["history"] == "1970-01-01T00:00:00Z kvsweep sweep"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"p95": 3}, "sweep: no 'p95'; did you mean 'p95_seconds'"),
        ({"stack": "h20"}, "stack: no 'h20'; did you mean 'h200'"),
        ({"gpu": "H2000"}, "gpu: no 'H2000'"),
        ({"hit_ratio": 0.5, "miss_blocks": 3}, "miss_blocks: give either miss_blocks or hit_ratio, not both"),
        ({"total_blocks": [10, 5], "miss_blocks": [0, 6]}, "miss_blocks: 6 is more than total_blocks 5"),
        ({"dtype": "f2"}, "dtype: 'f2'; allowed: f4, f8"),
        ({"policies": ["none"]}, "policies: no 'none'"),
        ({"policies": []}, "policies: the axis has no points"),
        ({"policy_files": ["/nowhere/x.py"]}, "policy_files: /nowhere/x.py: no such file"),
        ({"request_rate": 0}, "request_rate: 0 is out of range"),
        ({"p95_seconds": -1}, "p95_seconds: -1 is out of range"),
        ({"hit_ratio": 1.5}, "hit_ratio: 1.5 is out of range"),
        ({"gpu_count": 0}, "gpu_count: 0 is out of range"),
        ({"gpu_eta": 0}, "gpu_eta: 0 is out of range"),
        ({"gpu_eta": 1.01}, "gpu_eta: 1.01 is out of range"),
        ({"threads": 0}, "threads: 0; allowed"),
        ({"hardware": ["/nowhere"]}, "/nowhere"),
        ({"link_bandwidth": "1:1e6:n1000001"}, "deployments; allowed: at most"),
    ],
)  # fmt: skip
def test_what_cannot_be_swept_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        kvsweep.sweep(**options)  # type: ignore[arg-type]
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_grid_larger_than_memory_is_refused_with_the_way_out() -> None:
    with pytest.raises(InputError, match="GB of memory.*reduction that streams"):
        kvsweep.sweep(hit_ratio="0:1:n10000", request_rate="0.1:1:n10000", p95_seconds="1:60:n10000")


def test_notes_say_what_has_no_effect_and_what_overflows() -> None:
    plan = make_plan({"dram_count": 8, "total_blocks": 10**7, "placement": ["disk"]})
    from kvsweep.grid.plan import notes

    assert notes(plan)[0] == "dram_count has no effect with placement disk"
    assert any("than it holds" in line for line in notes(plan))
    assert not notes(make_plan({"placement": "auto", "dram_count": 8}))
