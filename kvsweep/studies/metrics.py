"""What is kept of a simulation: the figures of a run, whatever the fidelity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvsweep.cluster.outcome.dataset import CAUSES_OF, TIERS, Told
from kvsweep.cluster.outcome.summary import OBJECTIVES, longest_wait

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


def measure(run: Told, slos: Mapping[str, Mapping[str, float]]) -> Figures:
    """Return the figures of a run; `slos` are limits [s] by objective, by label.

    Latencies, attainment and goodput are of the requests served; a request that was rejected meets no SLO.
    """
    served = run.arrays["rejected"] == 0
    seconds = float(run.attrs["kvsweep_simulated_seconds"])
    hits = run.arrays["hit_tokens"].sum(axis=0)
    computed = int(run.arrays["uncached_tokens"].sum())
    answered = int(run.arrays["output_tokens"][served].sum())
    found: Figures = {name: _statistics(run.arrays[name][served]) for name in OBJECTIVES}
    found |= {
        "requests": float(served.size),
        "rejected_requests": float((~served).sum()),
        "prompt_tokens": float(run.arrays["prompt_tokens"][served].sum()),
        "output_tokens": float(answered),
        "uncached_tokens": float(computed),
        "hit_tokens": hits.astype(float).tolist(),
        "token_hit_ratio": float(hits.sum() / (hits.sum() + computed)) if computed else float("nan"),
        "tokens_per_second": answered / seconds if seconds else float("nan"),
    }
    met = [_meets(run, served, limits) for limits in slos.values()]
    found["slo_attainment"] = [float(each.mean()) for each in met]
    found["goodput"] = [float(each.sum()) / seconds if seconds else float("nan") for each in met]
    found |= _workers(run) | _costs(run, seconds)
    delays = run.arrays["queue_delay"][served]
    found["queue_delay"] = (delays.mean(axis=0) if len(delays) else np.full(delays.shape[1], np.nan)).tolist()
    cause = longest_wait(run.arrays)
    causes = [NO_CAUSE, *(str(name) for name in run.arrays["cause"])]
    found["bottleneck"] = float(causes.index(cause))
    found["simulated_seconds"] = seconds
    found["extrapolated_ratio"] = float(run.attrs["kvsweep_extrapolated_ratio"])
    chosen = run.attrs.get("kvsweep_retention_seconds")
    found["chosen_ttl"] = float("nan") if chosen is None else float(chosen)
    return found


def labels_of(run: Told) -> dict[str, list[str]]:
    """Return the points of the dims that figures have besides the axes of the study."""
    return {name: [str(value) for value in run.arrays[name]] for name in ("tier", "cause")}


def is_record(record: Mapping[str, Any], n_slos: int) -> bool:
    """Return whether `record` has the form of what a simulation leaves: figures, labels and time, or why it failed."""
    if "failed" in record:
        return isinstance(record["failed"], str)
    figures, labels = record.get("figures"), record.get("labels")
    if not isinstance(figures, dict) or not isinstance(labels, dict) or figures.keys() != SHAPES.keys():
        return False
    causes = next((names for names in CAUSES_OF.values() if labels == {"tier": [*TIERS], "cause": [*names]}), None)
    if causes is None or not isinstance(record.get("seconds"), float):
        return False
    sizes = {"statistic": len(STATISTICS), "slo": n_slos, "tier": len(TIERS), "cause": len(causes)}
    whole = all(_has_form(figures[name], [sizes[dim] for dim in dims]) for name, dims in SHAPES.items())
    return whole and figures["bottleneck"] in range(len(causes) + 1)


def _has_form(figure: Any, size: list[int]) -> bool:
    """Return whether `figure` is a float, or, with a `size`, a list of so many."""
    if not size:
        return isinstance(figure, float)
    return isinstance(figure, list) and [len(figure)] == size and all(isinstance(value, float) for value in figure)


def _meets(run: Told, served: NDArray[np.bool_], limits: Mapping[str, float]) -> NDArray[np.bool_]:
    met = served.copy()
    for name, limit in limits.items():
        # A request of one token has no time between tokens and meets any limit on it.
        met &= ~(run.arrays[name] > limit)
    return met


def _workers(run: Told) -> Figures:
    """Return sums over workers: of those with a cache to reuse by tier, of decode workers as one."""
    decodes = run.arrays["worker_role"] == "decode"
    figures: Figures = {}
    for name in ("occupancy", "evictions", "expirations", "bytes_in", "bytes_out"):
        figures[name] = run.arrays[name][~decodes].sum(axis=0).astype(float).tolist()
    figures["decode_occupancy"] = float(run.arrays["occupancy"][decodes].sum())
    figures["handoff_bytes"] = float(run.arrays["bytes_in"][decodes].sum())
    busy = run.arrays["utilization"]
    for name, those in (("prefill_utilization", ~decodes), ("decode_utilization", decodes)):
        figures[name] = float(busy[those].mean()) if those.any() else float("nan")
    return figures


def _costs(run: Told, seconds: float) -> Figures:
    gpus = sum(group["count"] * group["tp"] for group in run.attrs["kvsweep_config"]["workers"])
    return {"gpus": float(gpus), "worker_hours": len(run.arrays["worker_role"]) * seconds / 3600.0}


def _statistics(values: NDArray[np.float64]) -> list[float]:
    """Return mean and quantiles of the values that are numbers, NaN where there are none."""
    values = values[np.isfinite(values)]
    if not len(values):
        return [float("nan")] * len(STATISTICS)
    return [float(values.mean()), *(float(value) for value in np.percentile(values, QUANTILES))]
