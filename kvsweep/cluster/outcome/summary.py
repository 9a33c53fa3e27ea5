"""The figures of a run in a few numbers, and what its slow requests waited for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kvsweep.errors import InputError
from kvsweep.results.attrs import list_attr, mapping_attr

RESOURCES = {
    "prefill": "compute of prefill workers",
    "prefill_slots": "places of prefill workers (max_running)",
    "prefill_capacity": "device KV of prefill workers",
    "h2d": "host-to-device path of prefill workers",
    "decode_capacity": "device KV of decode workers",
    "handoff": "handoff between prefill and decode workers",
    "decode": "places and step boundaries of decode workers",
    "join": "loop boundaries of prefill workers, whose answer the gateway waits for",
    "sequences": "places of workers (max_sequences)",
    "token_budget": "tokens of a step (token_budget)",
    "blocks": "KV blocks of workers (n_blocks)",
    "preempted": "KV blocks of workers (n_blocks), which were taken from running requests",
    "step": "ends of steps: what arrives during one runs two later",
    "none": "nothing: its time is its own service",
}
"""Resource behind each cause of queueing."""
OBJECTIVES = ("ttft", "tpot", "e2e")
WAITING = ("ttft", "queue_delay", "cause", "arrival", "prefill_start", "prefill_end", "prefill_worker")
"""What tells for what requests waited; the last of them where prefill and decode are apart."""


def summarize(ds: xr.Dataset, slo: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Return the figures of ``kvsweep cluster summary --format json``.

    `slo` maps any of `OBJECTIVES` to a limit [s]; requests that meet all of them per second are the goodput.
    Latencies are of the requests that were served. Raises InputError for a file that holds no cluster run.
    """
    if ds.attrs.get("kvsweep_result") != "cluster":
        raise InputError("not a cluster run; allowed: a file that `kvsweep cluster run` wrote")
    served = ds["rejected"].values == 0
    seconds = float(ds.attrs["kvsweep_simulated_seconds"])
    hits = ds["hit_tokens"].values.sum(axis=0)
    computed = int(ds["uncached_tokens"].values.sum())
    cpu = ds.attrs.get("kvsweep_cpu_seconds")
    found: dict[str, Any] = {"requests": int(served.size), "rejected": int((~served).sum())}
    if beyond := int(ds.attrs.get("kvsweep_beyond_context", 0)):
        stated = mapping_attr(ds, "kvsweep_config").get("context")
        found["context"] = {**(stated if isinstance(stated, dict) else {}), "requests": beyond}
    found |= {f"{name}_seconds": _quantiles(ds[name].values[served]) for name in OBJECTIVES}
    found["hit_ratio"] = float(hits.sum() / (hits.sum() + computed)) if computed else None
    found["hit_tokens"] = {str(tier): int(n) for tier, n in zip(ds["tier"].values, hits, strict=True)}
    found["uncached_tokens"] = computed
    if slo:
        met = served.copy()
        for name, limit in slo.items():
            # A request of one token has no time between tokens and meets any limit on it.
            met &= ~(ds[name].values > limit)
        found["goodput"] = int(met.sum()) / seconds if seconds else None
    names = [str(name) for name in ds["worker"].values]
    found["utilization"] = dict(zip(names, ds["utilization"].values.tolist(), strict=True))
    if "kvsweep_retention_seconds" in ds.attrs:
        ttl = float(ds.attrs["kvsweep_retention_seconds"])
        found["retention_seconds"] = ttl if np.isfinite(ttl) else None
    if "kvsweep_foresight" in ds.attrs:
        found["foresight"] = list_attr(ds, "kvsweep_foresight")
    found["simulated_seconds"] = seconds
    found["cpu_seconds"] = None if cpu is None else float(cpu)
    found["extrapolated_ratio"] = float(ds.attrs["kvsweep_extrapolated_ratio"])
    found["bottleneck"] = bottleneck(ds)
    return found


def bottleneck(ds: xr.Dataset) -> str:
    """Return the cause for which the requests at and above the 95th percentile of TTFT waited longest in sum."""
    return longest_wait({name: ds[name].values for name in WAITING if name in ds})


def longest_wait(run: Mapping[str, NDArray[Any]]) -> str:
    """Return what `bottleneck` does from the arrays of a `run`: those of `WAITING` [s] by name.

    A request that waits for KV of decode workers while its prefill worker computes would wait there if it had it.
    """
    ttft, causes = run["ttft"], list(run["cause"])
    known = np.isfinite(ttft)
    if not known.any():
        return "none"
    slow = np.flatnonzero(known & (ttft >= np.percentile(ttft[known], 95)))
    waits = run["queue_delay"][slow].sum(axis=0)
    if "decode_capacity" in causes:
        behind = _behind_prefill(run, slow, causes)
        waits[causes.index("decode_capacity")] -= behind
        waits[causes.index("prefill")] += behind
    return str(causes[int(waits.argmax())]) if waits.max() > 0.0 else "none"


def _behind_prefill(run: Mapping[str, NDArray[Any]], slow: NDArray[np.int64], causes: list[Any]) -> float:
    """Return how long [s] the requests `slow` waited for KV of decode workers, not computed yet, behind others."""
    own = [causes.index(name) for name in ("prefill", "prefill_slots", "prefill_capacity")]
    begun, arrival, delays = run["prefill_start"][slow], run["arrival"][slow], run["queue_delay"][slow]
    waited = np.clip(begun - arrival - delays[:, own].sum(axis=1), 0.0, delays[:, causes.index("decode_capacity")])
    behind = 0.0
    for worker in np.unique(run["prefill_worker"][slow]):
        times, busy = _computed(run, run["prefill_worker"] == worker)
        these = run["prefill_worker"][slow] == worker
        until = np.interp((arrival + waited)[these], times, busy)
        behind += float((until - np.interp(arrival[these], times, busy)).sum())
    return behind


def _computed(run: Mapping[str, NDArray[Any]], those: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return times [s] and for how long [s] until each a worker had computed, that of the requests `those`."""
    order = np.argsort(run["prefill_start"][those])
    starts, ends = run["prefill_start"][those][order], np.maximum.accumulate(run["prefill_end"][those][order])
    first = np.concatenate(([True], starts[1:] > ends[:-1]))
    begins, stops = starts[first], ends[np.concatenate((first[1:], [True]))]
    total = np.cumsum(stops - begins)
    return np.stack((begins, stops), axis=1).ravel(), np.stack((total - (stops - begins), total), axis=1).ravel()


def resource(cause: str, workers: Iterable[str]) -> str:
    """Return the resource behind a cause of queueing at `workers`, by their names."""
    # Colocated workers are all there are.
    colocated = not any(name.startswith("prefill") for name in workers)
    return RESOURCES[cause].replace("prefill workers", "colocated workers") if colocated else RESOURCES[cause]


def _quantiles(values: NDArray[np.float64]) -> dict[str, float | None]:
    """Return mean and quantiles of the values that are numbers; None where there are none."""
    values = values[np.isfinite(values)]
    names = ("mean", "p50", "p90", "p95", "p99")
    if not len(values):
        return dict.fromkeys(names)
    figures = (values.mean(), *np.percentile(values, [50, 90, 95, 99]))
    return {name: float(figure) for name, figure in zip(names, figures, strict=True)}


def objectives(ds: xr.Dataset) -> dict[str, float]:
    """Return the service level objectives [s] of the cluster file a run was made with."""
    stated = mapping_attr(ds, "kvsweep_config").get("slo")
    limits = {name: stated.get(f"{name}_seconds") for name in OBJECTIVES} if isinstance(stated, dict) else {}
    return {name: float(limit) for name, limit in limits.items() if isinstance(limit, int | float) and limit > 0}
