"""`kvsweep.sweep`: a plan evaluated and put into a Dataset."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kvsweep.costs.deployment import Deployment
from kvsweep.costs.inputs import CHOICE_FIELDS, PART_FIELDS
from kvsweep.costs.placement import TIERS, hit_percent
from kvsweep.costs.worlds import REAL
from kvsweep.errors import InputError, shown
from kvsweep.grid.evaluate import Announce, Progress, deciding, evaluate_grid
from kvsweep.grid.flags import assumptions, world_line
from kvsweep.grid.plan import Plan, make_plan, notes
from kvsweep.grid.reduce import check_reduction, reduce_grid
from kvsweep.policies.registry import PolicySet
from kvsweep.results.dataset import sweep_dataset, text_array, timestamp
from kvsweep.results.names import REDUCED_OVER

if TYPE_CHECKING:
    import xarray as xr

Coords = dict[str, tuple[Sequence[str], Any]]


def sweep(
    *,
    reduce: str | Sequence[str] | None = None,
    reduce_over: str | Sequence[str] = REDUCED_OVER,
    threads: int | None = None,
    progress: Progress | None = None,
    announce: Announce = lambda line: None,
    **options: Any,
) -> xr.Dataset:
    """Return the decisions of every policy over the product of the given axes, as a Dataset.

    Parameters
    ----------
    reduce : names of `kvsweep.results.names.REDUCTIONS`
        Stream these reductions instead of storing the grid, which may then be far larger than memory.
    reduce_over : dims
        Dims the reductions run over.
    threads : cores to use, all by default
    progress : called with (points done, points in all)
    announce : called with a line about what is waited for
    **options
        Axes and settings, each a number or name, a list, an array or axis text (``"5:60:5"``, ``"log:1:100:n9"``):
        ``stack gpu dram disk link model`` (catalog keys), ``gpu_count dram_count peak_flops hbm_bandwidth
        hbm_capacity memory_utilization dram_bandwidth dram_capacity disk_bandwidth disk_capacity link_bandwidth
        setup_seconds model_params tokens_per_block bytes_per_block max_model_len step_tokens gpu_eta attention_eta``
        (numbers in base units), ``cost_model path_model overlap kv_dtype weight_dtype`` (names), ``total_blocks``
        [block] or ``prompt_tokens`` [token],
        ``placement`` (``disk``, ``auto``, ``manual:V,D,K``, ``simplex:n``), ``hit_ratio`` [1] or ``miss_blocks``
        [block], ``request_rate`` [1/s], ``p95_seconds`` [s]; ``policies`` (ids), ``policy_files``, ``hardware``
        (overlay folders), ``dtype`` (``f4`` or ``f8``), ``squeeze``.

    Raises
    ------
    InputError
        For the first option that cannot be used, naming it and what is allowed.
    """
    return run_plan(make_plan(options), reduce, reduce_over, threads, progress, announce)


def run_plan(
    plan: Plan,
    reduce: str | Sequence[str] | None = None,
    reduce_over: str | Sequence[str] = REDUCED_OVER,
    threads: int | None = None,
    progress: Progress | None = None,
    announce: Announce = lambda line: None,
) -> xr.Dataset:
    """Return the Dataset of a plan, see `sweep`."""
    check_threads(plan, threads)
    timestamp()  # SOURCE_DATE_EPOCH is input, too: refused before any work
    run = (threads, progress, announce)
    if reduce is None:
        return deciding(plan, announce, lambda sound: _stored(sound, run))
    return deciding(plan, announce, lambda sound: _reduced(sound, reduce, reduce_over, run))


def check_threads(plan: Plan, threads: Any) -> None:
    """Raise InputError unless `threads` is None or a number of cores."""
    if threads is not None and (not isinstance(threads, int) or isinstance(threads, bool) or not 1 <= threads <= 1024):
        raise InputError(f"{plan.called('threads')}: {shown(threads)}; allowed: a whole number 1 to 1024")


def _stored(plan: Plan, run: tuple[Any, Any, Any]) -> xr.Dataset:
    policies, arrays, problems = evaluate_grid(plan, *run)
    dims = ("policy", *plan.axes)
    _globalize_modes(arrays["decision_mode"], policies)
    variables = {
        name: (dims, arrays[name].reshape(len(policies), *plan.shape))
        for name in ("reassigned_hit_blocks", "total_time", "meets_slo", "decision_mode")
    }
    row_dims = tuple(plan.axes)[:-2]
    rows = plan.shape[:-2]
    coords = _coords(plan, policies, plan.axes) | {
        "storage_throughput": (row_dims, arrays["storage_throughput"].reshape(rows)),
        "tier_hit_blocks": ((*row_dims, "tier"), arrays["tier_hit_blocks"].reshape(*rows, len(TIERS))),
    }
    ds = sweep_dataset(variables, coords, _attrs(plan, problems, "sweep"), plan.squeeze)
    modes = _mode_labels(policies)
    ds["decision_mode"].attrs |= {
        "flag_values": np.arange(len(modes), dtype="i1"), "flag_meanings": " ".join(modes),
    }  # fmt: skip
    ds["meets_slo"].attrs |= {"flag_values": np.array([0, 1], dtype="i1"), "flag_meanings": "misses meets"}
    return ds


def _reduced(plan: Plan, reduce: Any, reduce_over: Any, run: tuple[Any, Any, Any]) -> xr.Dataset:
    policies, variables, kept, problems = reduce_grid(plan, reduce, reduce_over, *run)
    known = _coords(plan, policies, kept)
    coords = {name: coord for name, coord in known.items() if set(coord[0]) <= {"policy", *kept}}
    over = [dim for dim in plan.axes if dim not in kept]
    lengths = ", ".join(f"{dim} ({len(plan.axes[dim])})" for dim in over)
    config = {**plan.config, "reduce": check_reduction(plan, reduce, reduce_over)[0], "reduce_over": over}
    attrs = _attrs(plan, problems, "reduction") | {"kvsweep_reduced_over": lengths, "kvsweep_config": config}
    return sweep_dataset(variables, coords, attrs, plan.squeeze)


def _attrs(plan: Plan, problems: Sequence[str], kind: str) -> dict[str, Any]:
    warnings = [*problems, *notes(plan)]
    return {
        "title": f"Restore or recompute: {plan.n_points} points x {len(plan.policies)} policies",
        "history": f"{timestamp()} kvsweep {kind}",
        "kvsweep_kind": kind,
        "kvsweep_config": dict(plan.config),
        "kvsweep_catalog_sha256": plan.catalog.sha256,
        "kvsweep_sources": sources(plan),
        "kvsweep_world": world_line(plan.deployments),
        "comment": assumptions(plan.deployments),
        "kvsweep_warnings": "\n".join(warnings) or None,
    }


def sources(plan: Plan) -> dict[str, str]:
    """Return where the figures of every catalog entry in use come from, as ``gpu H200: citation (kind)``."""
    found: dict[str, str] = {}
    for part, kind in PART_FIELDS.items():
        entries = plan.catalog.entries(kind)
        for key in dict.fromkeys(str(getattr(deployment, part)) for deployment in plan.deployments):
            if key in entries and part != "stack":
                entry = entries[key]
                found[f"{part} {key}"] = f"{plan.catalog.sources.get(entry.source, entry.source)} ({entry.kind})"
    return found


def _coords(plan: Plan, policies: PolicySet, kept: Collection[str]) -> Coords:
    """Return the axes and what else is known of each point of the `kept` dims, on the dims it depends on."""
    coords: Coords = {"tier": (("tier",), text_array(TIERS))}
    for name, points in plan.axes.items():
        coords[name] = ((name,), text_array(points) if isinstance(points, list) else points)
    for tier, shares in zip(TIERS, plan.fractions().T, strict=True):
        coords[f"{tier}_fraction"] = (("placement",), shares)
    coords |= policy_coords(policies) | _deployment_coords(plan)
    # Computed only where it is kept: total x hit ratio may be a grid far larger than memory.
    return coords | (_miss_coord(plan) if {"total_blocks", "hit_ratio"} <= set(kept) else {})


def policy_coords(policies: PolicySet) -> Coords:
    """Return what describes the policies, each on the dim ``policy``."""
    listed = list(policies.values())
    dim = ("policy",)
    return {
        "policy": (dim, text_array(list(policies))),
        "policy_label": (dim, text_array([policy.label for policy in listed])),
        "policy_description": (dim, text_array([policy.description for policy in listed])),
        "policy_color": (dim, text_array([policy.color for policy in listed])),
        "policy_recomputes": (dim, text_array([policy.recomputes for policy in listed])),
        "policy_order": (dim, np.array([policy.order for policy in listed])),
        "policy_modes": (dim, np.array([len(policy.modes) for policy in listed], dtype="i2")),
    }


_DEPENDS = {
    "gpu": ("stack", "gpu"), "dram": ("stack", "dram"), "disk": ("stack", "disk"), "link": ("stack", "link"),
    "model": ("model",), "gpu_count": ("stack", "gpu_count"), "dram_count": ("stack", "dram_count"),
    "peak_flops": ("stack", "gpu", "peak_flops"), "hbm_bandwidth": ("stack", "gpu", "hbm_bandwidth"),
    "hbm_capacity": ("stack", "gpu", "hbm_capacity"), "dram_bandwidth": ("stack", "dram", "dram_bandwidth"),
    "dram_capacity": ("stack", "dram", "dram_capacity"), "disk_bandwidth": ("stack", "disk", "disk_bandwidth"),
    "disk_capacity": ("stack", "disk", "disk_capacity"), "link_bandwidth": ("stack", "link", "link_bandwidth"),
    "model_params": ("model", "model_params"), "tokens_per_block": ("model", "tokens_per_block"),
    "bytes_per_block": ("model", "bytes_per_block"),
    "gpu_eta": ("model", "gpu_eta"), "attention_eta": ("model", "gpu_eta", "attention_eta"),
    "setup_seconds": ("setup_seconds",), "cost_model": ("cost_model",), "path_model": ("path_model",),
    "overlap": ("overlap",),
}  # fmt: skip
"""Axes each resolved property of a deployment depends on."""
_RECOMPUTE_AXES = {"stack", "gpu", "gpu_count", "peak_flops", "model", "model_params", "tokens_per_block", "gpu_eta"}
_TIER_AXES = {
    "stack", "gpu", "dram", "disk", "link", "hbm_bandwidth", "dram_bandwidth", "disk_bandwidth", "link_bandwidth",
    "model", "bytes_per_block",
}  # fmt: skip
_REAL_AXES = {
    "stack", "gpu", "model", "gpu_count", "dram_count", "link", "link_bandwidth", "attention_eta", "cost_model",
    "path_model", "kv_dtype", "tokens_per_block",
}  # fmt: skip
"""Axes that each may depend on, too, where a deployment is real or one of its models is chosen by name."""


def _deployment_coords(plan: Plan) -> Coords:
    """Return what every deployment resolved to; axes themselves are coordinates already."""
    names = plan.deployment_dims
    shape = tuple(len(plan.axes[name]) for name in names)
    grid = np.empty(len(plan.deployments), dtype=object)
    grid[:] = plan.deployments
    grid = grid.reshape(shape)
    real = any(each.world.name == REAL for each in plan.deployments) or any(name in names for name in CHOICE_FIELDS)
    also = _REAL_AXES if real else set()

    def along(wanted: set[str]) -> tuple[tuple[str, ...], list[Deployment], tuple[int, ...]]:
        wanted = wanted | also
        part = grid[tuple(slice(None) if name in wanted else slice(1) for name in names)]
        dims = tuple(name for name in names if name in wanted)
        return dims, list(part.ravel()), tuple(len(plan.axes[dim]) for dim in dims)

    coords: Coords = {}
    for name, depends in _DEPENDS.items():
        if name not in plan.axes:
            dims, deployments, lengths = along(set(depends))
            values = [getattr(deployment, name) for deployment in deployments]
            array = text_array(values) if isinstance(values[0], str) else np.array(values)
            coords[name] = (dims, array.reshape(lengths))
    dims, deployments, lengths = along(_RECOMPUTE_AXES)
    rates = np.array([deployment.rates().recompute_throughput for deployment in deployments])
    coords["recompute_throughput"] = (dims, rates.reshape(lengths))
    if any(deployment.is_positional for deployment in plan.deployments):
        token, pair = np.array([deployment.token_costs() for deployment in deployments]).T
        coords["token_seconds"], coords["token_pair_seconds"] = (
            (dims, each.reshape(lengths)) for each in (token, pair)
        )
    dims, deployments, lengths = along(_TIER_AXES)
    tiers = np.array([deployment.throughputs() for deployment in deployments])
    coords["tier_throughput"] = ((*dims, "tier"), tiers.reshape(*lengths, len(TIERS)))
    dims, deployments, lengths = along(set(names))
    fit = np.array([deployment.weights_fit for deployment in deployments], dtype="i1")
    coords["weights_fit"] = (dims, fit.reshape(lengths))
    return coords


def _miss_coord(plan: Plan) -> Coords:
    percent = np.array([hit_percent(float(ratio)) for ratio in plan.numbers("hit_ratio")])
    # The arithmetic of `miss_blocks` on arrays: rint rounds half to even, too.
    missing = np.rint(plan.numbers("total_blocks")[:, None] * (100.0 - percent) / 100.0)
    return {"miss_blocks": (("total_blocks", "hit_ratio"), missing)}


def _mode_labels(policies: PolicySet) -> list[str]:
    return list(dict.fromkeys(mode for policy in policies.values() for mode in policy.modes))


def _globalize_modes(codes: Any, policies: PolicySet) -> None:
    """Turn each policy's own mode indices, in place, into indices of the labels of all policies."""
    labels = _mode_labels(policies)
    for index, policy in enumerate(policies.values()):
        table = np.array([labels.index(mode) for mode in policy.modes], dtype="i1")
        if not np.array_equal(table, np.arange(len(table))):
            np.take(table, codes[index], out=codes[index])
