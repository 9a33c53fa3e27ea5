"""The Dataset of an overhead run: streams, combinations, costs and the host they were measured on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kvsweep.costs.inputs import HARDWARE_FIELDS, MODEL_FIELDS, PART_FIELDS
from kvsweep.grid.sweep import policy_coords
from kvsweep.overhead.harness import LOOP, Timings
from kvsweep.overhead.host import host
from kvsweep.overhead.inputs import trials
from kvsweep.overhead.plan import OverheadPlan
from kvsweep.overhead.statistics import DRIFT_LIMIT, costs, drift
from kvsweep.policies.registry import PolicySet
from kvsweep.results.dataset import sweep_dataset, text_array, timestamp

Array = NDArray[Any]
Parts = dict[str, tuple[Sequence[str], Any]]

QUARTILES = (0.25, 0.75)


def overhead_dataset(plan: OverheadPlan, timings: Timings) -> xr.Dataset:
    """Return the results of a run on policy × path × request_count and policy × path × combination."""
    modes = list(dict.fromkeys(mode for subject in plan.subjects for mode in subject.policy.modes))
    codes = [[modes.index(mode) for mode in subject.modes] for subject in plan.subjects]
    variables = _streams(plan, timings) | _combinations(plan, timings)
    variables["decision_mode"] = (("policy", "combination"), np.array(codes, dtype="i1"))
    variables["control_seconds"] = (("sample",), timings.control)
    ds = sweep_dataset(variables, _coords(plan), _attrs(plan, timings), squeeze=False)
    ds["decision_mode"].attrs |= {"flag_values": np.arange(len(modes), dtype="i1"), "flag_meanings": " ".join(modes)}
    return ds


def warnings(plan: OverheadPlan, timings: Timings) -> list[str]:
    """Return what a reader of the results must know, a line each."""
    found = drift(timings.control)
    noisy = [
        f"the host is noisy: a fixed piece of work took {100 * found:.0f} % longer in one eighth of the run than in "
        f"another (more than {100 * DRIFT_LIMIT:.0f} %); costs are uncertain by as much"
    ]
    return [*plan.problems, *timings.problems, *plan.notes, *(noisy if found > DRIFT_LIMIT else ())]


def _streams(plan: OverheadPlan, timings: Timings) -> Parts:
    dims = ("policy", "path", "request_count")
    shape = len(plan.subjects), len(plan.paths), len(plan.request_counts)
    middle, quartiles = np.full(shape, np.nan), np.full((*shape, len(QUARTILES)), np.nan)
    for (i, policy), (j, path) in _cells(plan):
        if (policy, path) in timings.streams:
            times = timings.streams[policy, path]
            middle[i, j] = [np.median(kept) for kept in times]
            quartiles[i, j] = [np.quantile(kept, QUARTILES) for kept in times]
    loops = [[np.median(kept) for kept in timings.streams[LOOP, path]] for path in plan.paths]
    service = [[_service(subject.service_seconds, n) for n in plan.request_counts] for subject in plan.subjects]
    return {
        "stream_seconds": (dims, middle),
        "stream_seconds_quartile": ((*dims, "quartile"), quartiles),
        "stream_loop_seconds": (("path", "request_count"), np.array(loops)),
        "stream_service_seconds": (("policy", "request_count"), np.array(service)),
    }


def _service(seconds: Sequence[float], count: int) -> float:
    """Return the modelled time [s] of the requests of a stream, the mean over its trials."""
    size = len(seconds)
    around = np.concatenate([[0.0], np.cumsum([*seconds, *seconds])])
    rounds, rest = divmod(count, size)
    firsts = np.arange(trials(count)) * count % size
    return float(rounds * around[size] + np.mean(around[firsts + rest] - around[firsts]))


def _combinations(plan: OverheadPlan, timings: Timings) -> Parts:
    n, size = len(plan.subjects), len(plan.pool)
    rounds = np.full((n, len(plan.paths), plan.combination_rounds, size), np.nan)
    reps = np.zeros((n, len(plan.paths)), dtype=np.int64)
    for (i, policy), (j, path) in _cells(plan):
        if (policy, path) in timings.rounds:
            rounds[i, j], reps[i, j] = timings.rounds[policy, path], timings.reps[policy, path]
    loops = np.array([timings.loops[path] for path in plan.paths])
    names = [subject.policy.name for subject in plan.subjects]
    baseline = [names.index(name) for name in plan.baseline]
    found = [costs(rounds[:, j], loops[j], baseline, plan.seed) for j in range(len(plan.paths))]
    dims = ("policy", "path", "combination")
    service = np.array([subject.service_seconds for subject in plan.subjects])
    return {
        "round_seconds": (("policy", "path", "round", "combination"), rounds),
        "loop_seconds": (("path", "round"), loops),
        "timed_reps": (("policy", "path"), reps),
        "decision_seconds": (dims, np.stack([cost.decision for cost in found], axis=1)),
        "added_seconds": (dims, np.stack([cost.added for cost in found], axis=1)),
        "added_mean_bound": (("policy", "path", "bound"), np.stack([cost.mean_bound for cost in found], axis=1)),
        "added_median_bound": (("policy", "path", "bound"), np.stack([cost.median_bound for cost in found], axis=1)),
        "service_seconds": (("policy", "combination"), service),
    }


def _cells(plan: OverheadPlan) -> list[tuple[tuple[int, str], tuple[int, str]]]:
    """Return ((index, policy), (index, path)) of every pair of both."""
    names = [subject.policy.name for subject in plan.subjects]
    return [(policy, path) for policy in enumerate(names) for path in enumerate(plan.paths)]


def _coords(plan: OverheadPlan) -> Parts:
    coords: Parts = {
        "path": (("path",), text_array(plan.paths)),
        "request_count": (("request_count",), np.array(plan.request_counts, dtype=np.int64)),
        "combination": (("combination",), np.arange(len(plan.pool))),
        "round": (("round",), np.arange(plan.combination_rounds)),
        "quartile": (("quartile",), np.array(QUARTILES)),
        "bound": (("bound",), text_array(("lower", "upper"))),
    }
    for name in ("total_blocks", "miss_blocks", "request_rate", "p95_seconds"):
        coords[name] = (("combination",), np.array([getattr(work, name) for work in plan.pool], dtype=np.float64))
    for name in (*PART_FIELDS, *HARDWARE_FIELDS, *MODEL_FIELDS):
        value = getattr(plan.deployment, name)
        coords[name] = ((), np.array(value))
    return coords | dict(policy_coords(PolicySet(subject.policy for subject in plan.subjects)))


def _attrs(plan: OverheadPlan, timings: Timings) -> Mapping[str, Any]:
    machine = {f"host_{name}": value for name, value in host().items()}
    return {
        "title": f"What a decision costs: {len(plan.subjects)} policies on {', '.join(plan.paths)}",
        "history": f"{timestamp()} kvsweep overhead",
        "kvsweep_kind": "overhead",
        "kvsweep_config": dict(plan.config),
        "kvsweep_catalog_sha256": plan.catalog_sha256,
        "kvsweep_baseline_policies": ",".join(plan.baseline),
        "kvsweep_warnings": "\n".join(warnings(plan, timings)) or None,
        **machine,
        "clock": "processor time of the measuring thread; wall clock for streams of at most 100 requests",
        "harness_ratio": timings.harness_ratio,
        "decision_seconds_in_all": timings.decision_seconds,
        "control_drift": drift(timings.control),
    }
