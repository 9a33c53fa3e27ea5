"""What is kept of a simulation: the figures of a run, from its Dataset alone, whatever the fidelity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kvsweep.catalog.yamlfile import read_yaml_mapping
from kvsweep.cluster.summary import OBJECTIVES, bottleneck

STATISTICS = ("mean", "p50", "p90", "p95", "p99")
QUANTILES = (50, 90, 95, 99)
NO_CAUSE = "none"

SHAPES: Mapping[str, tuple[str, ...]] = {
    "ttft": ("statistic",),
    "tpot": ("statistic",),
    "e2e": ("statistic",),
    "requests": (),
    "rejected_requests": (),
    "prompt_tokens": (),
    "output_tokens": (),
    "uncached_tokens": (),
    "hit_tokens": ("tier",),
    "token_hit_ratio": (),
    "slo_attainment": ("slo",),
    "goodput": ("slo",),
    "tokens_per_second": (),
    "occupancy": ("tier",),
    "decode_occupancy": (),
    "prefill_utilization": (),
    "decode_utilization": (),
    "evictions": ("tier",),
    "expirations": ("tier",),
    "bytes_in": ("tier",),
    "bytes_out": ("tier",),
    "handoff_bytes": (),
    "queue_delay": ("cause",),
    "bottleneck": (),
    "gpus": (),
    "worker_hours": (),
    "simulated_seconds": (),
    "extrapolated_ratio": (),
    "chosen_ttl": (),
}
"""Figures of a cell and the dims each has besides the axes of the study."""
ONLY_SOME = frozenset({"chosen_ttl"})
"""Figures that only some policies have; a study in which no cell has it leaves it out."""

Figures = dict[str, Any]
"""A float, or a list of them along the dim of `SHAPES`."""


def measure(ds: xr.Dataset, slos: Mapping[str, Mapping[str, float]]) -> Figures:
    """Return the figures of a run; `slos` are limits [s] by objective, by label.

    Latencies, attainment and goodput are of the requests served; a request that was rejected meets no SLO.
    """
    served = ds["rejected"].values == 0
    seconds = float(ds.attrs["kvsweep_simulated_seconds"])
    hits = ds["hit_tokens"].values.sum(axis=0)
    computed = int(ds["uncached_tokens"].values.sum())
    answered = int(ds["output_tokens"].values[served].sum())
    found: Figures = {name: _statistics(ds[name].values[served]) for name in OBJECTIVES}
    found |= {
        "requests": float(served.size),
        "rejected_requests": float((~served).sum()),
        "prompt_tokens": float(ds["prompt_tokens"].values[served].sum()),
        "output_tokens": float(answered),
        "uncached_tokens": float(computed),
        "hit_tokens": hits.astype(float).tolist(),
        "token_hit_ratio": float(hits.sum() / (hits.sum() + computed)) if computed else float("nan"),
        "tokens_per_second": answered / seconds if seconds else float("nan"),
    }
    met = [_meets(ds, served, limits) for limits in slos.values()]
    found["slo_attainment"] = [float(each.mean()) for each in met]
    found["goodput"] = [float(each.sum()) / seconds if seconds else float("nan") for each in met]
    found |= _workers(ds) | _costs(ds, seconds)
    delays = ds["queue_delay"].values[served]
    found["queue_delay"] = (delays.mean(axis=0) if len(delays) else np.full(delays.shape[1], np.nan)).tolist()
    cause = bottleneck(ds)
    causes = [NO_CAUSE, *(str(name) for name in ds["cause"].values)]
    found["bottleneck"] = float(causes.index(cause))
    found["simulated_seconds"] = seconds
    found["extrapolated_ratio"] = float(ds.attrs["kvsweep_extrapolated_ratio"])
    found["chosen_ttl"] = float(ds.attrs.get("kvsweep_retention_seconds", "nan"))
    return found


def labels_of(ds: xr.Dataset) -> dict[str, list[str]]:
    """Return the points of the dims that figures have besides the axes of the study."""
    return {name: [str(value) for value in ds[name].values] for name in ("tier", "cause")}


def _meets(ds: xr.Dataset, served: NDArray[np.bool_], limits: Mapping[str, float]) -> NDArray[np.bool_]:
    met = served.copy()
    for name, limit in limits.items():
        # A request of one token has no time between tokens and meets any limit on it.
        met &= ~(ds[name].values > limit)
    return met


def _workers(ds: xr.Dataset) -> Figures:
    """Return sums over workers: of those with a cache to reuse by tier, of decode workers as one."""
    decodes = ds["worker_role"].values == "decode"
    figures: Figures = {}
    for name in ("occupancy", "evictions", "expirations", "bytes_in", "bytes_out"):
        figures[name] = ds[name].values[~decodes].sum(axis=0).astype(float).tolist()
    figures["decode_occupancy"] = float(ds["occupancy"].values[decodes].sum())
    figures["handoff_bytes"] = float(ds["bytes_in"].values[decodes].sum())
    busy = ds["utilization"].values
    for name, those in (("prefill_utilization", ~decodes), ("decode_utilization", decodes)):
        figures[name] = float(busy[those].mean()) if those.any() else float("nan")
    return figures


def _costs(ds: xr.Dataset, seconds: float) -> Figures:
    groups = read_yaml_mapping(str(ds.attrs["kvsweep_config"]).encode(), "kvsweep_config").get("workers", [])
    gpus = sum(int(group.get("count", 1)) * int(group.get("tp", 1)) for group in groups)
    return {"gpus": float(gpus), "worker_hours": ds.sizes["worker"] * seconds / 3600.0}


def _statistics(values: NDArray[np.float64]) -> list[float]:
    """Return mean and quantiles of the values that are numbers, NaN where there are none."""
    values = values[np.isfinite(values)]
    if not len(values):
        return [float("nan")] * len(STATISTICS)
    return [float(values.mean()), *(float(value) for value in np.percentile(values, QUANTILES))]
