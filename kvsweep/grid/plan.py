"""A sweep before it runs: every input checked, every axis laid out, its size and memory known."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvsweep.catalog.load import ENVIRONMENT, Catalog, load
from kvsweep.costs import placement as placements
from kvsweep.costs.deployment import Deployment, deploy
from kvsweep.costs.inputs import (
    CHOICE_FIELDS,
    HARDWARE_FIELDS,
    MODEL_FIELDS,
    NUMBER_FIELDS,
    PART_FIELDS,
    PROMPT_TOKENS,
    SWEEP_DEFAULTS,
    WORKLOAD_FIELDS,
)
from kvsweep.costs.worlds import REAL
from kvsweep.errors import InputError, PolicyError, shown, unknown_name
from kvsweep.grid.axes import MAX_AXIS, key_axis, number_axis, placement_axis, placement_weights
from kvsweep.grid.flags import flags
from kvsweep.policies.registry import PolicySet, load_policies

DEPLOYMENT_AXES = (*PART_FIELDS, *HARDWARE_FIELDS, *MODEL_FIELDS, *CHOICE_FIELDS)
"""Axes that pick the machine and the model; as dims they stand before `total_blocks`, in this order."""

WORKLOAD_AXES = ("total_blocks", "placement", "hit_ratio", "miss_blocks", "request_rate", "p95_seconds")

INSTEAD = {"prompt_tokens": "total_blocks"}
"""Inputs that stand for an axis in other units."""

OPTIONS = ("policies", "policy_files", "hardware", "dtype", "squeeze")

MAX_DEPLOYMENTS = 1_000_000


@dataclass(frozen=True)
class Plan:
    """A checked sweep. `axes` maps each dim after ``policy``, in order, to its float points or its labels."""

    axes: Mapping[str, NDArray[np.float64] | list[str]]
    deployments: list[Deployment]
    policies: PolicySet
    catalog: Catalog
    config: Mapping[str, Any]
    dtype: str = "f4"
    squeeze: bool = True
    policy_files: tuple[Path, ...] = ()
    given: frozenset[str] = field(default_factory=frozenset)
    spell: Mapping[str, str] = field(default_factory=dict)

    def called(self, option: str) -> str:
        """Return `option` as messages name it."""
        return self.spell.get(option, option)

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the dims after ``policy``."""
        return tuple(len(points) for points in self.axes.values())

    @property
    def n_points(self) -> int:
        """Grid points, policies not counted."""
        return math.prod(self.shape)

    @property
    def n_rows(self) -> int:
        """Points of all axes but request rate and latency target."""
        return math.prod(self.shape[:-2])

    @property
    def deployment_dims(self) -> tuple[str, ...]:
        """Dims that pick the machine and the model."""
        names = tuple(self.axes)
        return names[: names.index("total_blocks")]

    @property
    def hit_dim(self) -> str:
        """``hit_ratio`` or ``miss_blocks``, whichever the sweep is over."""
        return "miss_blocks" if "miss_blocks" in self.axes else "hit_ratio"

    @property
    def stored_bytes(self) -> int:
        """Memory [byte] of the full result."""
        per_point = 2 * np.dtype(self.dtype).itemsize + 2
        return self.n_points * len(self.policies) * per_point + self.n_rows * 4 * 8

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return the points of a numeric axis."""
        points = self.axes[name]
        assert isinstance(points, np.ndarray)
        return points

    def fractions(self) -> NDArray[np.float64]:
        """Return the normalised shares (placement, 3) of vram, dram, disk; NaN for ``auto``."""
        rows = []
        for label in self.axes["placement"]:
            weights = placement_weights(str(label))
            rows.append(weights if math.isnan(weights[0]) else placements.normalized(*weights))
        return np.array(rows, dtype=np.float64)


def make_plan(
    options: Mapping[str, Any], spell: Mapping[str, str] | None = None, max_points: int | None = None
) -> Plan:
    """Return the plan of a sweep described by `options`, as `kvsweep.sweep` takes them.

    `spell` says how messages call an option (the command line adds dashes). A grid of more than `max_points` is
    refused before it is laid out; None leaves it to the memory there is. Raises InputError for the first option
    that cannot be used.
    """
    names = {name: (spell or {}).get(name, name) for name in (*DEPLOYMENT_AXES, *INSTEAD, *WORKLOAD_AXES, *OPTIONS)}
    for name in options:
        if name not in names:
            raise unknown_name("sweep", name, names)
    given = {name: value for name, value in options.items() if value is not None}
    for one, other in (("miss_blocks", "hit_ratio"), ("prompt_tokens", "total_blocks")):
        if one in given and other in given:
            raise InputError(f"{names[one]}: give either {names[one]} or {names[other]}, not both")
    config = {**SWEEP_DEFAULTS, **given}
    if folders := _of_environment():
        # Part of the study: without these folders the same study would mean other machines.
        config["hardware"] = [*folders, *_paths(given.get("hardware", ()), names["hardware"])]
    if "miss_blocks" in given:
        del config["hit_ratio"]

    catalog = load(_paths(given.get("hardware", ()), names["hardware"]), names["hardware"])
    policies = _policies(given, names)  # what is wrong with them is told before the rest
    deployment_axes = _deployment_axes(given, names, catalog, max_points)
    deployments = _deployments(deployment_axes, catalog, names)
    policies = policies if "policies" in given else policies.unasked(any(each.is_positional for each in deployments))
    if "placement" not in given and all(deployment.world.name == REAL for deployment in deployments):
        config["placement"] = "auto"
    if "prompt_tokens" in given:
        config["total_blocks"] = _in_blocks(given["prompt_tokens"], names, deployments, max_points)
    if "stack" not in deployment_axes:
        deployment_axes = {"stack": [deployments[0].stack], **deployment_axes}
    axes = deployment_axes | _workload_axes(config, names, max_points)
    _check_size(axes, names, max_points)
    dtype, squeeze = _checked(axes, config, names)
    return Plan(
        axes=axes, deployments=deployments, policies=policies, catalog=catalog,
        config=_resolved(config), dtype=dtype, squeeze=squeeze,
        policy_files=tuple(_paths(given.get("policy_files", ()), names["policy_files"])),
        given=frozenset(given), spell=spell or {},
    )  # fmt: skip


def _of_environment() -> list[str]:
    """Return the folders of catalog files that the environment names."""
    return [folder for folder in os.environ.get(ENVIRONMENT, "").split(os.pathsep) if folder]


def _checked(axes: Mapping[str, Any], config: Mapping[str, Any], names: Mapping[str, str]) -> tuple[str, bool]:
    """Return the settings dtype and squeeze; refuses them and misses where they are out of range."""
    if "miss_blocks" in axes and np.max(axes["miss_blocks"]) > np.min(axes["total_blocks"]):
        raise InputError(
            f"{names['miss_blocks']}: {np.max(axes['miss_blocks']):g} is more than {names['total_blocks']} "
            f"{np.min(axes['total_blocks']):g}; allowed: 0 to the smallest total"
        )
    dtype, squeeze = config.get("dtype", "f4"), config.get("squeeze", True)
    if dtype not in ("f4", "f8"):
        raise InputError(f"{names['dtype']}: {shown(dtype)}; allowed: f4, f8")
    if not isinstance(squeeze, bool):
        raise InputError(f"{names['squeeze']}: {shown(squeeze)}; allowed: true, false")
    return str(dtype), squeeze


def notes(plan: Plan) -> list[str]:
    """Return what a reader of the results must know: inputs without effect, weights that do not fit, overflow."""
    lines = []
    if all(label == "disk" for label in plan.axes["placement"]):
        for name in ("dram", "dram_count", "dram_bandwidth", "dram_capacity", "hbm_capacity", "hbm_bandwidth"):
            if name in plan.given:
                lines.append(f"{plan.called(name)} has no effect with placement disk")
    unfit = [deployment for deployment in plan.deployments if not deployment.weights_fit]
    if unfit:
        which = f"{len(unfit)} of {len(plan.deployments)} deployments"
        lines.append(f"weights do not fit in HBM ({which}): VRAM capacity taken as 0, recompute rate unchanged")
    lines += flags(plan.deployments, float(np.max(plan.numbers("total_blocks"))), plan.given, plan.called)
    if _overflows(plan):
        lines.append("some points place more blocks in a tier than it holds; rates are not changed by overflow")
    return lines


def _overflows(plan: Plan) -> bool:
    """Return whether any placement can exceed a tier, by the point with the most hits."""
    hits = float(np.max(plan.numbers("total_blocks")))
    if plan.hit_dim == "hit_ratio":
        hits -= placements.miss_blocks(hits, placements.hit_percent(float(np.max(plan.numbers("hit_ratio")))))
    else:
        hits -= float(np.min(plan.numbers("miss_blocks")))
    held = np.array([deployment.capacities() for deployment in plan.deployments])
    shares = plan.fractions()
    automatic = np.isnan(shares[:, 0])
    # Every placement meets every deployment: the largest share of a tier meets its smallest capacity.
    manual = shares[~automatic].max(axis=0, initial=0.0)
    return bool((automatic.any() and hits > held.sum(axis=1).min()) or np.any(hits * manual > held.min(axis=0)))


def _paths(value: Any, what: str) -> list[Path]:
    """Return one path or several as a list."""
    paths = [value] if isinstance(value, str | os.PathLike) else value
    if not isinstance(paths, Sequence) or not all(isinstance(path, str | os.PathLike) for path in paths):
        raise InputError(f"{what}: {shown(value)} is no path; allowed: a path or a list of paths")
    return [Path(path) for path in paths]


def _policies(given: Mapping[str, Any], names: Mapping[str, str]) -> PolicySet:
    files = _paths(given.get("policy_files", ()), names["policy_files"])
    for file in files:
        if not file.is_file():
            raise InputError(f"{names['policy_files']}: {file}: no such file")
    policies = load_policies(files)
    if "policies" in given:
        policies = policies.select(key_axis(given["policies"], names["policies"]), names["policies"])
    if not policies:
        raise PolicyError(f"{names['policies']}: no policy is left to evaluate: {'; '.join(policies.problems)}")
    return policies


def _deployment_axes(
    given: Mapping[str, Any], names: Mapping[str, str], catalog: Catalog, max_points: int | None
) -> dict[str, Any]:
    axes: dict[str, Any] = {}
    longest = max_points or MAX_AXIS
    for name, kind in PART_FIELDS.items():
        if name in given:
            axes[name] = key_axis(given[name], names[name])
            for key in axes[name]:
                catalog.part(kind, key, names[name])
    for name in (*HARDWARE_FIELDS, *MODEL_FIELDS):
        if name in given:
            axes[name] = number_axis(given[name], NUMBER_FIELDS[name], names[name], longest)
    axes |= _choices(given, names)
    count = math.prod(len(points) for points in axes.values())
    if count > MAX_DEPLOYMENTS:
        raise InputError(f"{', '.join(axes)}: {count:.3g} deployments; allowed: at most {MAX_DEPLOYMENTS}")
    _check_size(axes, names, max_points)
    return axes


def _choices(given: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the axes of models by name."""
    axes = {name: key_axis(given[name], names[name]) for name in CHOICE_FIELDS if name in given}
    for name, chosen in axes.items():
        for key in chosen:
            if key not in CHOICE_FIELDS[name].values:
                raise unknown_name(names[name], key, CHOICE_FIELDS[name].values)
    return axes


def _check_size(axes: Mapping[str, Any], names: Mapping[str, str], max_points: int | None) -> None:
    """Raise InputError naming the axes of several points where the grid has more than `max_points`."""
    count = math.prod(len(points) for points in axes.values())
    if max_points is not None and count > max_points:
        long = ", ".join(names[name] for name, points in axes.items() if len(points) > 1)
        raise InputError(f"{long}: {count} points together; allowed: at most {max_points}")


def _deployments(axes: Mapping[str, Any], catalog: Catalog, names: Mapping[str, str]) -> list[Deployment]:
    return [
        deploy(catalog, dict(zip(axes, point, strict=True)), names["cost_model"])
        for point in itertools.product(*axes.values())
    ]


def _in_blocks(
    tokens: Any, names: Mapping[str, str], deployments: Sequence[Deployment], max_points: int | None
) -> list[float]:
    """Return prompts of `tokens` [token] in blocks, the last one full."""
    sizes = {deployment.tokens_per_block for deployment in deployments}
    what = names["prompt_tokens"]
    if len(sizes) > 1:
        raise InputError(f"{what}: blocks have {len(sizes)} sizes; allowed: one {names['tokens_per_block']}")
    prompts = number_axis(tokens, PROMPT_TOKENS, what, max_points or MAX_AXIS)
    blocks = np.ceil(prompts / sizes.pop())
    if np.unique(blocks).size != blocks.size:
        raise InputError(f"{what}: two prompts have the same number of blocks; allowed: prompts of different blocks")
    return [float(count) for count in blocks]


def _workload_axes(config: Mapping[str, Any], names: Mapping[str, str], max_points: int | None) -> dict[str, Any]:
    axes: dict[str, Any] = {}
    longest = max_points or MAX_AXIS
    for name in WORKLOAD_AXES:
        if name == "placement":
            axes[name] = placement_axis(config[name], names[name], longest)
        elif name in config:
            axes[name] = number_axis(config[name], WORKLOAD_FIELDS[name], names[name], longest)
    return axes


def _resolved(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the study as plain YAML values, so that it can be stored and run again."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray | np.generic):
            return value.tolist()
        if isinstance(value, os.PathLike):
            return str(value)
        if isinstance(value, Iterable) and not isinstance(value, str):
            return [plain(item) for item in value]
        return value

    return {name: plain(config[name]) for name in (*DEPLOYMENT_AXES, *WORKLOAD_AXES, *OPTIONS) if name in config}
