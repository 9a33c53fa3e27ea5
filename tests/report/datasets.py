"""Sweeps the tests of the report share."""

from __future__ import annotations

import xarray as xr

import kvsweep

HOSTILE = (
    '</script><script>pwned=1</script><img src=x onerror="pwned=2">&amp;\'"` \u2028 Ünïcødé 日本 ' + "very long " * 400
)


def small() -> xr.Dataset:
    """Return a sweep over three axes on which the policies differ."""
    return kvsweep.sweep(
        stack="a100_ddr5_nvme",
        total_blocks=20_000,
        hit_ratio="0:1:0.1",
        request_rate="0.01:0.30:n12",
        p95_seconds="5:60:n9",
    )


def several() -> xr.Dataset:
    """Return a sweep with category axes and a logarithmic one."""
    return kvsweep.sweep(
        stack="h200,a100_ddr5_nvme",
        placement=["disk", "auto", "manual:1,2,3"],
        model="llama3-8b,qwen3-8b",
        total_blocks="1000,10000,100000",
        hit_ratio="0:1:0.25",
        request_rate="log:0.01:1:n7",
        p95_seconds="5:60:n5",
    )


def dense() -> xr.Dataset:
    """Return a sweep whose times change along every axis, with planes long enough to be quantised."""
    return kvsweep.sweep(
        stack="a100_ddr5_nvme",
        placement="auto",
        total_blocks="1000:52000:1000",
        hit_ratio="0:1:0.02",
        gpu_eta="0.1:0.9:n52",
        request_rate=0.05,
        p95_seconds=20,
    )


def hostile() -> xr.Dataset:
    """Return a sweep whose labels try to leave the places they are put in."""
    ds = several()
    count = ds.sizes["policy"]
    labels = [HOSTILE] + [f"{index} {HOSTILE[:80]}" for index in range(1, count)]
    ds = ds.assign_coords(
        policy_label=("policy", labels),
        policy_description=("policy", [HOSTILE] * count),
        policy_color=("policy", ["red;background:url(//x)", *ds["policy_color"].values[1:]]),
        stack=[HOSTILE, "={{csp}}{{script}}"],
    )
    return ds.assign_attrs(title=HOSTILE, history=HOSTILE, kvsweep_warnings=HOSTILE, source=HOSTILE)
