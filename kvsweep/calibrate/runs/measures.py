"""How far a prediction is from a measured run: per request, in aggregate, and by component."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvsweep.calibrate.runs.diagnosis import diagnose
from kvsweep.calibrate.runs.measured import TIERS, Floats, MeasuredRun
from kvsweep.calibrate.runs.replay import Replay, engine_series
from kvsweep.cluster.vllm import columns as c

QUANTILES = {"mean": None, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
SHOWN_SERIES = ("running", "waiting", "kv_cache_pct", "prompt_throughput", "gen_throughput")
PARTS_ONLY = ("handoff between prefill and decode workers", "retrieval from the host tier", "L3")
"""Models of which no public end-to-end measurement exists."""
WINDOW = 5.0
"""Width of the windows of the figures [s]."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """TTFT, TPOT and E2E of each request [s]; TPOT is NaN for a single token."""

    ttft: Floats
    tpot: Floats
    e2e: Floats


def latencies(run: MeasuredRun, first_token: Floats, finish: Floats) -> Latencies:
    """Return the latencies of requests from the times of their tokens."""
    steps = run.output_tokens - 1
    tpot = np.where(steps > 0, (finish - first_token) / np.maximum(steps, 1), np.nan)
    return Latencies(first_token - run.arrival, tpot, finish - run.arrival)


def pairs(replay: Replay) -> tuple[Latencies, Latencies]:
    """Return the latencies measured and predicted."""
    run = replay.run
    return latencies(run, run.first_token, run.finish), latencies(run, replay.first_token, replay.finish)


def measures(replay: Replay) -> dict[str, Any]:
    """Return the errors of a replay as `kvsweep validate --format json` prints them; ratios, seconds."""
    measured, predicted = pairs(replay)
    found: dict[str, Any] = {
        "run": replay.run.name,
        "requests": len(replay.run),
        "e2e_mape": mape(measured.e2e, predicted.e2e),
        "ttft_mae_seconds": float(np.mean(np.abs(predicted.ttft - measured.ttft))),
        "tpot_mape": mape(measured.tpot, predicted.tpot),
        "aggregate": aggregate(measured, predicted),
        "hit_ratio": float(replay.served.request[:, c.HIT].sum() / replay.run.prompt_tokens.sum()),
        "preemptions": int(replay.served.request[:, c.PREEMPTIONS].sum()),
        "extrapolated_ratio": replay.served.extrapolated_ratio,
        "notes": [*replay.notes, *tier_notes(replay.run)],
        "checked_on_parts_only": list(PARTS_ONLY),
    }
    if replay.run.hit_tokens is not None:
        found |= reuse_by_tier(replay)
    if replay.run.series:
        found["components"] = components(replay)
    return found


def mape(measured: Floats, predicted: Floats) -> float | None:
    """Return the mean absolute error, relative to what was measured [1], over requests that have a value, if any."""
    known = np.isfinite(measured) & (measured > 0.0)
    return float(np.mean(np.abs(predicted[known] / measured[known] - 1.0))) if known.any() else None


def aggregate(measured: Latencies, predicted: Latencies) -> dict[str, Any]:
    """Return mean and percentiles of each latency, measured and predicted, with the relative error; None for none."""
    found: dict[str, Any] = {}
    for metric in ("ttft", "tpot", "e2e"):
        values = [getattr(each, metric) for each in (measured, predicted)]
        known = [value[np.isfinite(value)] for value in values]
        found[metric] = {name: _level(known, level) for name, level in QUANTILES.items()}
    return found


def _level(values: list[Floats], level: float | None) -> dict[str, float | None]:
    if not all(map(len, values)):
        return {"measured": None, "predicted": None, "error": None}
    a, b = (float(np.mean(value) if level is None else np.quantile(value, level)) for value in values)
    return {"measured": a, "predicted": b, "error": b / a - 1.0 if a else None}


def reuse_by_tier(replay: Replay) -> dict[str, Any]:
    """Return what `reuse` says of all hits together and of each tier that was measured, with the tokens of both.

    The worker that is replayed has a device cache alone, so what other tiers held is predicted as nothing.
    """
    run = replay.run
    predicted = replay.served.request[:, c.HIT]
    assert run.hit_tokens is not None
    held = {tier: predicted if tier == TIERS[0] else np.zeros_like(predicted) for tier in run.tier_hits}
    measured = {"all": run.hit_tokens, **run.tier_hits}
    return {
        "reuse": {tier: reuse(hits, held.get(tier, predicted), run.prompt_tokens) for tier, hits in measured.items()},
        "hit_tokens": {
            tier: {"measured": int(hits.sum()), "predicted": int(held.get(tier, predicted).sum())}
            for tier, hits in (run.tier_hits or {"all": run.hit_tokens}).items()
        },
    }


def tier_notes(run: MeasuredRun) -> list[str]:
    """Return what to know of tiers that were measured and that the worker does not have."""
    return [
        f"no tier {tier}: the worker has a device cache alone, hits of {tier} are predicted as 0"
        for tier in run.tier_hits
        if tier != TIERS[0]
    ]


def reuse(measured: Any, predicted: Any, prompt_tokens: Any) -> dict[str, float]:
    """Return how well reuse is met: error of the token hit ratio [1], share of requests whose count is exact, relative
    error of the tokens found, and the share of requests of which both say alike whether anything was found.
    """
    total = float(prompt_tokens.sum())
    volume = float(measured.sum())
    return {
        "hit_ratio_error": float((predicted.sum() - measured.sum()) / total),
        "exact_match_ratio": float((predicted == measured).mean()),
        "token_volume_error": float(predicted.sum() / volume - 1.0) if volume else 0.0,
        "attribution_match_ratio": float(((predicted > 0) == (measured > 0)).mean()),
    }


def components(replay: Replay) -> dict[str, Any]:
    """Return the mean over time of each series, measured and predicted, and what `diagnose` makes of them."""
    series, run = replay.run.series, replay.run
    inside = (series["t"] > 0.0) & (series["t"] < min(run.finish.max(), replay.finish.max()))
    predicted = engine_series(replay.served, replay.limits, run.prompt_tokens, series["t"])
    found: dict[str, Any] = {name: _pair(series[name][inside], predicted[name][inside]) for name in SHOWN_SERIES}
    if not series["kv_cache_pct"].any():
        del found["kv_cache_pct"]
    return {"means": found, **diagnose(replay)}


def _pair(measured: Floats, predicted: Floats) -> dict[str, float | None]:
    if not len(measured):
        return {"measured": None, "predicted": None, "error": None}
    a, b = float(np.mean(measured)), float(np.mean(predicted))
    return {"measured": a, "predicted": b, "error": b / a - 1.0 if a else None}


def windows(run: MeasuredRun, first_token: Floats, finish: Floats, width: float = WINDOW) -> Mapping[str, Floats]:
    """Return outstanding and completed requests and delivered tokens in windows of `width` [s].

    Tokens are spread evenly between a request's first and last one.
    """
    edges = np.arange(0.0, max(run.finish.max(), finish.max()) + width, width)
    ends = edges[1:]
    outstanding = [(run.arrival <= end).sum() - (finish <= end).sum() for end in ends]
    span = np.maximum(finish - first_token, 1e-9)
    share = np.clip((edges[:, None] - first_token) / span, 0.0, 1.0)
    delivered = np.where(edges[:, None] >= first_token, 1.0 + share * (run.output_tokens - 1), 0.0).sum(axis=1)
    return {
        "window": edges[:-1],
        "outstanding": np.array(outstanding, float),
        "completed_requests": np.histogram(finish, edges)[0].astype(float),
        "delivered_tokens": np.diff(delivered),
    }
