"""`kvsweep.simulate`: single points on the scalar path, with everything that explains them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from kvsweep.costs.deployment import Deployment
from kvsweep.costs.inputs import SIMULATE_DEFAULTS
from kvsweep.costs.placement import TIERS, hit_percent, miss_blocks, tier_utilization
from kvsweep.costs.request import request_context
from kvsweep.errors import InputError, PolicyError
from kvsweep.grid.flags import assumptions, world_line
from kvsweep.grid.plan import INSTEAD, Plan, make_plan, notes
from kvsweep.policies.context import FRONT, side_of
from kvsweep.policies.outcome import Outcome, outcome
from kvsweep.policies.registry import Policy, PolicySet

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


def simulation_plan(
    options: Mapping[str, Any], spell: Mapping[str, str] | None = None, max_points: int | None = None
) -> Plan:
    """Return the checked plan of a simulation; `spell` and `max_points` as in `make_plan`."""
    given = {name: value for name, value in options.items() if value is not None}
    for name in ("dtype", "squeeze"):
        if name in given:
            raise InputError(
                f"{(spell or {}).get(name, name)}: has no effect on single points; allowed: leaving it out"
            )
    # The plan knows where blocks live by default, which the machine decides.
    dropped = {"placement", *(("miss_blocks",) if "hit_ratio" in given else ())}
    dropped |= {"total_blocks"} & {INSTEAD[name] for name in given if name in INSTEAD}
    defaults = {name: value for name, value in SIMULATE_DEFAULTS.items() if name not in dropped}
    plan = make_plan(defaults | given, spell, max_points)
    for name, points in plan.axes.items():
        if len(points) > 1 and name not in _SEVERAL:
            several = ", ".join(plan.called(option) for option in _SEVERAL)
            raise InputError(f"{plan.called(name)}: {len(points)} points; allowed: one (only {several} take several)")
    return plan


def simulate_plan(plan: Plan) -> dict[str, Any]:
    """Return the result of `simulate` for a plan of single points.

    A policy that fails on any row is left out of all and named in ``warnings``.
    """
    deployment = plan.deployments[0]
    policies = plan.policies
    requests = [(float(total), missing) for total in plan.numbers("total_blocks") for missing in _missing(plan, total)]
    rows = [_Row(plan, deployment, request) for request in requests]
    for policy in plan.policies.values():
        try:
            for row in rows:
                row.decide(policy)
        except PolicyError as error:
            policies = policies.without(policy.name, str(error))
    results = [row.as_dict(policies) for row in rows]
    return {
        "hardware": _hardware(deployment),
        "experiment": _experiment(plan, deployment),
        "results": results,
        "slo_summary": {
            name: "pass" if all(row[name]["meets_slo"] for row in results) else "fail" for name in policies
        },
        "warnings": [*policies.problems, *notes(plan)],
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


def _experiment(plan: Plan, deployment: Deployment) -> dict[str, Any]:
    return {
        "total_blocks": [int(total) for total in plan.numbers("total_blocks")],
        plan.hit_dim: plan.numbers(plan.hit_dim).tolist(),
        "request_rate": float(plan.numbers("request_rate")[0]),
        "p95_seconds": float(plan.numbers("p95_seconds")[0]),
        "placement": str(plan.axes["placement"][0]),
        "model": deployment.model,
        "model_params": deployment.model_params,
        "tokens_per_block": deployment.tokens_per_block,
        "bytes_per_block": deployment.bytes_per_block,
        "gpu_eta": deployment.gpu_eta,
        "weights_fit": deployment.weights_fit,
        "kv_tokens": deployment.capacities()[0] * deployment.tokens_per_block,
        "kv_fits": deployment.fit.line if deployment.fit else None,
        "memory_utilization": deployment.memory_utilization,
        "kv_dtype": deployment.kv_dtype,
        "weight_dtype": deployment.weight_dtype,
        "world": world_line(plan.deployments),
        "cost_model": deployment.cost_model,
        "path_model": deployment.path_model,
        "overlap": deployment.overlap,
        "attention_eta": deployment.attention_eta,
        "setup_seconds": deployment.setup_seconds,
        "assumptions": assumptions(plan.deployments),
    }


class _Row:
    """One (total, missing) pair: the context of its request and the outcome of each policy."""

    def __init__(self, plan: Plan, deployment: Deployment, blocks: tuple[float, float]) -> None:
        vram, dram, disk = (float(share) for share in plan.fractions()[0])
        rate, target = float(plan.numbers("request_rate")[0]), float(plan.numbers("p95_seconds")[0])
        self.context = request_context(deployment.rates(), (vram, dram, disk), blocks, rate, target)
        self.deployment = deployment
        self.placed = plan.axes["placement"][0] != "disk"
        self.outcomes: dict[str, Outcome] = {}

    def decide(self, policy: Policy) -> None:
        side = side_of(policy.recomputes, self.context.overlap)
        self.outcomes[policy.name] = outcome(policy, self.context._replace(recomputes=side))

    def whole(self) -> list[float]:
        """Return the time [s] of restoring every hit from each tier alone, however many fit there."""
        ctx = self.context._replace(recomputes=FRONT)
        hits = "{}_hit_blocks"
        alone = []
        for tier in TIERS:
            held = {hits.format(each): ctx.hit_blocks if each == tier else 0.0 for each in TIERS}
            alone.append(ctx._replace(**held).restore_seconds(0.0))
        return alone

    def as_dict(self, policies: PolicySet) -> dict[str, Any]:
        ctx = self.context
        row: dict[str, Any] = {
            "total_blocks": int(ctx.total_blocks), "miss_blocks": int(ctx.miss_blocks),
            "hit_blocks": int(ctx.hit_blocks), "request_rate": ctx.request_rate, "p95_seconds": ctx.p95_seconds,
            "storage_throughput": ctx.storage_throughput, "recompute_throughput": ctx.recompute_throughput,
        }  # fmt: skip
        if self.placed:
            row["placement"] = _tiers(self.deployment, (ctx.vram_hit_blocks, ctx.dram_hit_blocks, ctx.disk_hit_blocks))
        row["restore_all_seconds"] = dict(zip(TIERS, self.whole(), strict=True))
        row["recompute_all_seconds"] = ctx._replace(recomputes=FRONT).recompute_seconds(ctx.hit_blocks)
        row |= {name: dataclasses.asdict(self.outcomes[name]) for name in policies}
        row["speedups"] = _speedups(policies, self.outcomes)
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
        fast: {slow: ratio(outcomes[slow].total_time, outcomes[fast].total_time) for slow in policies if slow != fast}
        for fast in policies
    }
