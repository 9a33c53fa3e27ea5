"""Reductions of grids too large to store: each slab is reduced as soon as it is evaluated.

Sums are taken per slab and added in slab order, so a result does not depend on the number of threads.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvsweep.errors import unknown_name
from kvsweep.grid.axes import key_axis
from kvsweep.grid.evaluate import Announce, Evaluator, Progress, Slab, require_memory, run_slabs
from kvsweep.grid.plan import Plan
from kvsweep.policies.registry import PolicySet
from kvsweep.results.analysis.ranking import simplest_first
from kvsweep.results.names import REDUCTIONS

_COMBINE: Mapping[str, np.ufunc] = {"total_time_min": np.minimum, "total_time_max": np.maximum}
_START = {"total_time_min": math.inf, "total_time_max": -math.inf}


def reduce_grid(
    plan: Plan,
    reduce: str | Sequence[str],
    over: str | Sequence[str],
    threads: int | None = None,
    progress: Progress | None = None,
    announce: Announce = lambda line: None,
) -> tuple[PolicySet, dict[str, tuple[Sequence[str], Any]], list[str], tuple[str, ...]]:
    """Return (policies, variables, dims kept, problems) of the named reductions over the dims `over`."""
    names, kept = check_reduction(plan, reduce, over)
    # Reduced values are summed in float64 whatever a stored grid would use.
    plan = dataclasses.replace(plan, dtype="f8")
    kept_shape = tuple(len(plan.axes[dim]) for dim in kept)
    require_memory(kept_bytes(plan, names, kept), f"keeping {', '.join(kept)}")
    evaluator = Evaluator(plan, announce)
    totals = {name: np.full((len(evaluator.policies), math.prod(kept_shape)), _START.get(name, 0.0)) for name in names}
    strides = _strides(plan, kept)

    def work(slab: Slab) -> tuple[NDArray[np.int64], dict[str, NDArray[np.float64]]]:
        return _reduce_slab(evaluator, slab, names, strides)

    for target, values in run_slabs(plan, work, threads, progress):
        for name in names:
            for total, value in zip(totals[name], values[name], strict=True):
                _COMBINE.get(name, np.add).at(total, target, value)
    count = plan.n_points / math.prod(kept_shape)
    variables: dict[str, tuple[Sequence[str], Any]] = {}
    for name, values in totals.items():
        if name not in _COMBINE:
            values = values / count
        variables[REDUCTIONS[name]] = (("policy", *kept), values.reshape(len(evaluator.policies), *kept_shape))
    return evaluator.policies, variables, kept, evaluator.problems


def check_reduction(plan: Plan, reduce: str | Sequence[str], over: str | Sequence[str]) -> tuple[list[str], list[str]]:
    """Return (names of the reductions, dims kept); raises InputError for one that does not exist."""
    names = _listed(reduce, REDUCTIONS, plan.called("reduce"))
    reduced = _listed(over, plan.axes, plan.called("reduce_over"))
    return names, [dim for dim in plan.axes if dim not in reduced]


def kept_bytes(plan: Plan, names: Sequence[str], kept: Sequence[str]) -> float:
    """Return the memory [byte] of the reductions `names` on the dims `kept`."""
    return 8.0 * math.prod(len(plan.axes[dim]) for dim in kept) * len(plan.policies) * len(names)


def _listed(value: str | Sequence[str], allowed: Iterable[str], what: str) -> list[str]:
    names = key_axis(value, what)
    for name in names:
        if name not in allowed:
            raise unknown_name(what, name, allowed)
    return names


def _strides(plan: Plan, kept: Sequence[str]) -> tuple[int, ...]:
    """Return, for each axis, how far one step along it moves in the flat kept grid; 0 for reduced axes."""
    strides: dict[str, int] = dict.fromkeys(plan.axes, 0)
    stride = 1
    for dim in reversed(kept):
        strides[dim] = stride
        stride *= len(plan.axes[dim])
    return tuple(strides[dim] for dim in plan.axes)


def _reduce_slab(
    evaluator: Evaluator, slab: Slab, names: Sequence[str], strides: tuple[int, ...]
) -> tuple[NDArray[np.int64], dict[str, NDArray[np.float64]]]:
    """Return the cells of the kept grid that one slab adds to, and the value of each reduction there.

    Rates and targets that are reduced are summed here; rows are folded into each other by the caller.
    """
    plan = evaluator.plan
    shape = tuple(part.stop - part.start for part in (slab.rows, slab.rates, slab.targets))
    rows = evaluator.rows(slab)
    reduced = tuple(axis for axis, stride in zip((1, 2), strides[-2:], strict=True) if stride == 0)
    order = simplest_first(
        [len(policy.modes) for policy in evaluator.policies.values()],
        [policy.order for policy in evaluator.policies.values()],
    )
    out = evaluator.scratch(shape)
    values: dict[str, list[Any]] = {name: [None] * len(order) for name in names}
    unmet = np.ones(shape, dtype=bool) if "sufficient" in names else None
    for index in order:
        evaluator.evaluate(list(evaluator.policies.values())[index], rows, slab, out)
        reassigned, time, meets, _ = out
        for name in names:
            if name == "sufficient":
                assert unmet is not None
                first = unmet & meets.view(bool)
                unmet &= ~meets.view(bool)
                values[name][index] = first.sum(axis=reduced, dtype=np.float64)
            elif name == "success_rate":
                values[name][index] = meets.sum(axis=reduced, dtype=np.float64)
            elif name == "reassigned_hit_blocks_mean":
                values[name][index] = reassigned.sum(axis=reduced)
            elif name == "total_time_mean":
                values[name][index] = time.sum(axis=reduced)
            else:
                values[name][index] = _COMBINE[name].reduce(time, axis=reduced)
    target = _targets(plan, slab, shape, strides)
    return target, {name: np.stack(arrays).reshape(len(order), -1) for name, arrays in values.items()}


def _targets(plan: Plan, slab: Slab, shape: tuple[int, ...], strides: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the flat kept-grid cell of each value a slab yields."""
    coordinates = np.unravel_index(np.arange(slab.rows.start, slab.rows.stop), plan.shape[:-2])
    cells = sum(
        (index * stride for index, stride in zip(coordinates, strides[:-2], strict=True)),
        start=np.zeros(shape[0], dtype=np.int64),
    )
    for part, stride in zip((slab.rates, slab.targets), strides[-2:], strict=True):
        if stride:
            cells = cells[..., None] + np.arange(part.start, part.stop) * stride
    return cells.ravel()
