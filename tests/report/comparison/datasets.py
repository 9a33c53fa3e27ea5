"""Pairs of sweeps the tests of the comparison's report share."""

from __future__ import annotations

import numpy as np
import xarray as xr

import kvsweep
from kvsweep.results.attrs import to_attrs
from tests.report.datasets import HOSTILE, dense, hostile, small

Pair = tuple[xr.Dataset, xr.Dataset]


def overlapping() -> Pair:
    """Return sweeps whose axes and policies overlap in part, with verdicts that change both ways."""
    other = kvsweep.sweep(
        stack="a100_ddr5_nvme",
        placement="auto",
        gpu_eta=0.35,
        total_blocks=20_000,
        hit_ratio="0:0.8:0.2",
        request_rate="0.01:0.30:n12",
        p95_seconds="5:73.75:n11",
        policies=["all_compute", "default_policy", "performance_aware"],
    )
    return small(), other


def quantised() -> Pair:
    """Return sweeps with planes long enough to be quantised."""
    a = dense()
    return a, a.assign(total_time=a["total_time"] * np.float32(1.25), meets_slo=1 - a["meets_slo"])


def without_axes() -> Pair:
    """Return sweeps that share one axis and hold the others at different values."""
    options = {"hit_ratio": "0:1:0.25", "p95_seconds": 10}
    return kvsweep.sweep(request_rate=0.1, **options), kvsweep.sweep(request_rate=0.2, stack="h200", **options)


def hostile_pair() -> Pair:
    """Return sweeps whose labels and settings try to leave the places they are put in."""
    a = hostile()
    b = a.assign_attrs(to_attrs({"kvsweep_config": {"stack": HOSTILE, "</script>": "<b>"}}), source=HOSTILE + "b")
    return a, b.assign(total_time=b["total_time"] * np.float32(0.5))


MAKERS = {"overlapping": overlapping, "quantised": quantised, "without_axes": without_axes, "hostile": hostile_pair}
