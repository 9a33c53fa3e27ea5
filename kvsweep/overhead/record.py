"""The summary of an overhead run: for each path and policy the numbers people quote, and the JSON of the whole run."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from kvsweep.costs.inputs import PART_FIELDS
from kvsweep.results.attrs import mapping_attr

MICRO = 1e6


def summary(ds: xr.Dataset, policy: str, path: str) -> dict[str, Any]:
    """Return the costs of one policy on one path over all combinations, times in [us].

    ``percent_of_request_time`` is the mean over the combinations of added time over modelled time of the request
    [%]; ``times_baseline`` the mean cost over that of the baseline policies [1], both with the loop.
    """
    part = ds.sel(policy=policy, path=path)
    cost, added = MICRO * part["decision_seconds"].values, MICRO * part["added_seconds"].values
    loop = MICRO * float(part["loop_seconds"].median())
    return {
        "label": str(part["policy_label"].values),
        "decisions_timed": int(part["timed_reps"]) * ds.sizes["combination"] * ds.sizes["round"],
        "cost_us": _spread(cost) | {"min": float(cost.min()), "stdev": float(cost.std())},
        "added_us": _spread(added)
        | {
            "mean_interval": (MICRO * part["added_mean_bound"].values).tolist(),
            "median_interval": (MICRO * part["added_median_bound"].values).tolist(),
        },
        "times_baseline": float((cost.mean() + loop) / (np.mean(cost - added) + loop)),
        "percent_of_request_time": float(100.0 * np.mean(added / MICRO / part["service_seconds"].values)),
        "by_decision_mode": _by_mode(cost, part["decision_mode"]),
    }


def record(ds: xr.Dataset) -> dict[str, Any]:
    """Return the whole run as plain values: hardware, experiment, host, streams, summary; times in [s] or [us]."""
    config = mapping_attr(ds, "kvsweep_config")
    paths, policies = [str(path) for path in ds["path"].values], [str(name) for name in ds["policy"].values]
    host = {name.removeprefix("host_"): value for name, value in ds.attrs.items() if name.startswith("host_")}
    return {
        "hardware": {f"{part}_key": str(ds[part].values) for part in PART_FIELDS if part != "model"},
        "experiment": config,
        "host": host,
        "harness_ratio": float(ds.attrs["harness_ratio"]),
        "decision_seconds_in_all": float(ds.attrs["decision_seconds_in_all"]),
        "control_drift": float(ds.attrs["control_drift"]),
        "baseline_policies": str(ds.attrs["kvsweep_baseline_policies"]).split(","),
        "request_counts": ds["request_count"].values.tolist(),
        "streams": {path: {policy: _stream(ds, policy, path) for policy in policies} for path in paths},
        "summary": {path: {policy: summary(ds, policy, path) for policy in policies} for path in paths},
    }


def _spread(values: Any) -> dict[str, float]:
    return {
        "mean": float(values.mean()), "median": float(np.median(values)),
        "p95": float(np.percentile(values, 95)), "max": float(values.max()),
    }  # fmt: skip


def _by_mode(cost: Any, modes: xr.DataArray) -> dict[str, dict[str, float]]:
    labels = str(modes.attrs["flag_meanings"]).split()
    found = {}
    for code in np.unique(modes.values):
        here = cost[modes.values == code]
        found[labels[code]] = {
            "combinations": len(here), "mean_us": float(here.mean()), "median_us": float(np.median(here)),
        }  # fmt: skip
    return found


def _stream(ds: xr.Dataset, policy: str, path: str) -> dict[str, list[float]]:
    part = ds.sel(policy=policy, path=path)
    seconds, count = part["stream_seconds"].values, ds["request_count"].values
    low, high = part["stream_seconds_quartile"].values.T
    return {
        "total_seconds": seconds.tolist(),
        "total_seconds_q25": low.tolist(),
        "total_seconds_q75": high.tolist(),
        "per_request_us": (MICRO * seconds / count).tolist(),
        "percent_of_request_time": (100.0 * seconds / part["stream_service_seconds"].values).tolist(),
    }
