"""Slow, obvious twins: the analytic model as its formulas read, one point at a time, no code of the package."""

from __future__ import annotations

from typing import Any


def rates(part: dict[str, float]) -> dict[str, float]:
    block = part["bytes_per_block"]
    return {
        "vram": part["hbm_bandwidth"] / block,
        "dram": 1 / ((block / part["dram_bandwidth"]) + (block / part["link_bandwidth"])),
        "disk": 1 / ((block / part["disk_bandwidth"]) + (block / part["link_bandwidth"])),
        "recompute": 1
        / (
            part["tokens_per_block"]
            * ((2 * part["model_params"]) / ((part["peak_flops"] * part["gpu_count"]) * part["gpu_eta"]))
        ),
    }


def tiers(part: dict[str, float], placement: str, hits: float) -> dict[str, float]:
    if placement == "disk":
        return {"vram": 0.0, "dram": 0.0, "disk": hits}
    if placement == "auto":
        block = part["bytes_per_block"]
        free = max(0.0, part["hbm_capacity"] * part["gpu_count"] - 2 * part["model_params"])
        vram = min(hits, free / block)
        dram = min(hits - vram, part["dram_capacity"] * part["dram_count"] / block)
        return {"vram": vram, "dram": dram, "disk": hits - vram - dram}
    weights = [float(weight) for weight in placement.removeprefix("manual:").split(",")]
    total = sum(weights)
    shares = [weight / total for weight in weights] if total > 0 else [0.0, 0.0, 1.0]
    return dict(zip(("vram", "dram", "disk"), (hits * share for share in shares), strict=True))


def blend(held: dict[str, float], rate: dict[str, float]) -> float:
    blocks = sum(held.values())
    seconds = sum(held[tier] / rate[tier] for tier in ("vram", "dram", "disk") if held[tier] > 0)
    return blocks / seconds if blocks > 0 else rate["disk"]


def judge(point: dict[str, Any], k: float, tail: bool = False) -> dict[str, float]:
    """Return the times, utilisations and violations of recomputing k hit blocks."""
    held, rate = point["held"], point["rate"]
    hits = point["total"] - point["miss"]
    if tail:
        left, gone = dict(held), k
        for tier in ("disk", "dram", "vram"):
            taken = min(gone, left[tier])
            left[tier] -= taken
            gone -= taken
        storage = sum(left[tier] / rate[tier] for tier in left)
    else:
        storage = (hits - k) / point["blend"]
    compute = (point["miss"] + k) / rate["recompute"]
    total = max(storage, compute)
    ratios = {"latency": total / point["p"], "gpu": point["r"] * compute, "storage": point["r"] * storage}
    violations = {name: max(0.0, ratio - 1) for name, ratio in ratios.items()}
    return {"storage_time": storage, "recompute_time": compute, "total_time": total, "worst": max(violations.values())}


def point(part: dict[str, float], placement: str, total: float, miss: float, r: float, p: float) -> dict[str, Any]:
    rate, held = rates(part), tiers(part, placement, total - miss)
    return {
        "rate": rate, "held": held, "blend": blend(held, rate),
        "total": total, "miss": miss, "r": r, "p": p,
    }  # fmt: skip


def decide(policy: str, here: dict[str, Any]) -> tuple[float, str]:
    """Return (k, mode) of a built-in policy."""
    hits, miss, total = here["total"] - here["miss"], here["miss"], here["total"]
    x, y, r, p = here["blend"], here["rate"]["recompute"], here["r"], here["p"]
    if policy == "default_policy":
        return 0.0, "fixed_default"
    if policy == "all_compute":
        return hits, "fixed_all_compute"
    if policy == "slowest_tier_first":
        return _tail(here)
    balanced = min(max(total * y / (x + y) - miss, 0.0), hits) if hits > 0 else 0.0
    if judge(here, balanced)["worst"] == 0:
        return balanced, "balanced"
    corners = [0.0, hits, balanced, y / r - miss, p * y - miss, hits - x / r, hits - p * x]
    tried = [min(max(k, 0.0), hits) for k in corners]
    ranked = [(judge(here, k)["worst"], judge(here, k)["total_time"], index) for index, k in enumerate(tried)]
    return tried[min(ranked)[2]], "best_effort"


def _tail(here: dict[str, Any]) -> tuple[float, str]:
    """Balance by bisection: the restore time falls with k and the recompute time rises."""
    if judge(here, 0.0, tail=True)["storage_time"] <= judge(here, 0.0, tail=True)["recompute_time"]:
        return 0.0, "tail_none"
    low, high = 0.0, here["total"] - here["miss"]
    for _ in range(200):
        middle = (low + high) / 2
        both = judge(here, middle, tail=True)
        low, high = (middle, high) if both["storage_time"] > both["recompute_time"] else (low, middle)
    return (low + high) / 2, "tail_balanced"
