"""`kvsweep.simulate`: single points on the scalar path, with everything that explains them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from kvsweep.costs.deployment import Deployment
from kvsweep.costs.placement import TIERS, hit_percent, miss_blocks, tier_utilization
from kvsweep.costs.request import request_context
from kvsweep.errors import InputError
from kvsweep.grid.plan import Plan, make_plan
from kvsweep.policies.outcome import Outcome, outcome
from kvsweep.policies.registry import PolicySet

DEFAULTS: Mapping[str, Any] = {
    "total_blocks": 50_000, "miss_blocks": 0, "placement": "disk", "request_rate": 1.0, "p95_seconds": 1.0,
}  # fmt: skip

_SEVERAL = ("total_blocks", "miss_blocks", "hit_ratio")


def simulate(**options: Any) -> dict[str, Any]:
    """Return every policy's outcome for one request size, or for each of several.

    `options` are those of `kvsweep.sweep` (axes and settings); only ``total_blocks`` and ``miss_blocks`` or
    ``hit_ratio`` may have several points. Defaults: 50 000 blocks, 0 missing, 1 request/s, a target of 1 s.

    Returns
    -------
    dict
        ``hardware``, ``experiment`` (the inputs), ``results`` (a row for each (total, missing) pair: rates, an
        `Outcome` as a dict for each policy, ``speedups[A][B] = T_B / T_A``, and with placement auto or manual the
        ``placement`` of the hits), ``slo_summary`` (pass or fail over all rows), ``warnings``.

    Raises
    ------
    InputError
        For the first option that cannot be used.
    """
    return simulate_plan(simulation_plan(options))


def simulation_plan(options: Mapping[str, Any], spell: Mapping[str, str] | None = None) -> Plan:
    """Return the checked plan of a simulation; `spell` as in `make_plan`."""
    given = {name: value for name, value in options.items() if value is not None}
    defaults = {name: value for name, value in DEFAULTS.items() if name != "miss_blocks" or "hit_ratio" not in given}
    plan = make_plan(defaults | given, spell)
    for name, points in plan.axes.items():
        if len(points) > 1 and name not in _SEVERAL:
            option = (spell or {}).get(name, name)
            raise InputError(f"{option}: {len(points)} points; allowed: one (only {', '.join(_SEVERAL)} take several)")
    return plan


def simulate_plan(plan: Plan) -> dict[str, Any]:
    """Return the result of `simulate` for a plan of single points."""
    deployment = plan.deployments[0]
    label = str(plan.axes["placement"][0])
    rows = [
        _row(plan, deployment, label, total, missing)
        for total in map(float, plan.numbers("total_blocks"))
        for missing in _missing(plan, total)
    ]
    return {
        "hardware": _hardware(deployment),
        "experiment": _experiment(plan, deployment, label),
        "results": rows,
        "slo_summary": {
            name: "pass" if all(row[name]["meets_slo"] for row in rows) else "fail" for name in plan.policies
        },
    }


def _missing(plan: Plan, total: float) -> list[float]:
    if plan.hit_dim == "miss_blocks":
        return [float(missing) for missing in plan.numbers("miss_blocks")]
    return [miss_blocks(total, hit_percent(float(ratio))) for ratio in plan.numbers("hit_ratio")]


def _hardware(deployment: Deployment) -> dict[str, Any]:
    return {
        "stack_key": deployment.stack, "gpu_key": deployment.gpu, "dram_key": deployment.dram,
        "disk_key": deployment.disk, "link_key": deployment.link,
        "gpu_count": int(deployment.gpu_count), "dram_count": int(deployment.dram_count),
    }  # fmt: skip


def _experiment(plan: Plan, deployment: Deployment, label: str) -> dict[str, Any]:
    return {
        "total_blocks": [int(total) for total in plan.numbers("total_blocks")],
        plan.hit_dim: plan.numbers(plan.hit_dim).tolist(),
        "request_rate": float(plan.numbers("request_rate")[0]),
        "p95_seconds": float(plan.numbers("p95_seconds")[0]),
        "placement": label,
        "model": deployment.model,
        "model_params": deployment.model_params,
        "tokens_per_block": deployment.tokens_per_block,
        "bytes_per_block": deployment.bytes_per_block,
        "gpu_eta": deployment.gpu_eta,
        "weights_fit": deployment.weights_fit,
    }


def _row(plan: Plan, deployment: Deployment, label: str, total: float, missing: float) -> dict[str, Any]:
    rates, shares = deployment.rates(), tuple(float(share) for share in plan.fractions()[0])
    assert len(shares) == 3
    request = (float(plan.numbers("request_rate")[0]), float(plan.numbers("p95_seconds")[0]))
    row: dict[str, Any] = {
        "total_blocks": int(total), "miss_blocks": int(missing), "hit_blocks": int(total - missing),
        "request_rate": request[0], "p95_seconds": request[1],
    }  # fmt: skip
    outcomes: dict[str, Outcome] = {}
    for name, policy in plan.policies.items():
        context = request_context(rates, shares, (total, missing), *request, policy.recomputes)
        outcomes[name] = outcome(policy, context)
    row["storage_throughput"] = context.storage_throughput
    row["recompute_throughput"] = context.recompute_throughput
    if label != "disk":
        resident = (context.vram_hit_blocks, context.dram_hit_blocks, context.disk_hit_blocks)
        row["placement"] = _tiers(deployment, resident)
    row |= {name: dataclasses.asdict(result) for name, result in outcomes.items()}
    row["speedups"] = _speedups(plan.policies, outcomes)
    return row


def _tiers(deployment: Deployment, resident: tuple[float, float, float]) -> dict[str, Any]:
    tiers = [
        {
            "tier": tier, "capacity_blocks": capacity, "resident_blocks": blocks,
            "overflow_blocks": max(0.0, blocks - capacity), "utilization": tier_utilization(blocks, capacity),
        }
        for tier, capacity, blocks in zip(TIERS, deployment.capacities(), resident, strict=True)
    ]  # fmt: skip
    return {"tiers": tiers, "capacity_fits": all(tier["overflow_blocks"] == 0.0 for tier in tiers)}


def _speedups(policies: PolicySet, outcomes: Mapping[str, Outcome]) -> dict[str, dict[str, float]]:
    """Return ``T_B / T_A`` [1] for all ordered pairs A, B; NaN for two idle requests."""

    def ratio(slower: float, faster: float) -> float:
        if faster == 0.0:
            return math.nan if slower == 0.0 else math.inf
        return slower / faster

    return {
        fast: {
            slow: ratio(outcomes[slow].total_time, outcomes[fast].total_time) for slow in policies if slow != fast
        }
        for fast in policies
    }
