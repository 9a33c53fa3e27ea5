"""The cells of a study: which configuration each one is, and the key under which its result is known."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import kvsweep.cluster
from kvsweep.catalog.load import load
from kvsweep.cluster.inputs.config import ClusterConfig, Eviction, Retention, config_mapping, parse_config
from kvsweep.cluster.inputs.profiles import AnyProfile, any_profile_mapping, service_profile, step_profile
from kvsweep.cluster.inputs.step_profile import StepProfile
from kvsweep.cluster.policies.plugins import select_plugin
from kvsweep.cluster.setup.context import with_context
from kvsweep.errors import InputError
from kvsweep.jit.fingerprint import fingerprint
from kvsweep.policies.registry import load_policies
from kvsweep.results.analysis.studies import ORACLE
from kvsweep.studies import metrics
from kvsweep.studies.axes import Value, set_field, set_retention
from kvsweep.studies.study import Study

_NO_FIELD = ("profile", "trace", "ttl", "link", "request_rate", "rate_scale", "seed")


@dataclass(frozen=True, slots=True)
class Workload:
    """What arrives in a cell: the label of a trace, its seed, the mean rate [1/s] (None for its own) and a factor."""

    trace: str
    seed: int
    rate: float | None
    scale: float


@dataclass(frozen=True, slots=True)
class Cell:
    """One simulation: its place, its point on every axis, and what is simulated; `refusal` says why it cannot be."""

    place: tuple[int, ...]
    point: Mapping[str, Value]
    workload: Workload
    config: ClusterConfig | None
    profile: AnyProfile | None
    refusal: str = ""
    kept: bool = False


def cells(study: Study) -> list[Cell]:
    """Return every cell of `study`, the last axis fastest.

    Raises InputError for a value with which no cell at all can be: a fault of the file, not of a combination.
    """
    for known in (_require, policy_digest):  # a file of policies may have been edited since the last study
        known.cache_clear()
    found = [_cell(study, place) for place in itertools.product(*(range(length) for length in study.shape))]
    hopeless = []
    for index, axis in enumerate(study.axes):
        able = {cell.place[index] for cell in found if not cell.refusal}
        refusals = {cell.place[index]: cell.refusal for cell in found if cell.refusal}
        hopeless += [(axis, axis.values[at], reason) for at, reason in refusals.items() if at not in able]
    for axis, value, _ in hopeless:
        alone = _refusal(study, {**_first(study, ("profile", "trace")), axis.name: value})
        if alone and not _refusal(study, _first(study, ("profile", "trace"))):
            raise InputError(f"{study.where}: axes: {axis.name}: {value}: {alone}")
    if hopeless:
        axis, value, refusal = hopeless[-1]
        raise InputError(f"{study.where}: axes: {axis.name}: {value}: {refusal}")
    return found


def _first(study: Study, names: Sequence[str]) -> dict[str, Value]:
    return {axis.name: axis.values[0] for axis in study.axes if axis.name in names}


def _refusal(study: Study, point: Mapping[str, Value]) -> str:
    """Return why a cell that sets only the axes of `point` cannot be, '' if it can."""
    try:
        config = _config(study, point)
        for kind, name in policies_of(config):
            _require(kind, name, study.policy_files)
        _profile(config, study.profiles[str(point["profile"])], point.get("link"))
    except InputError as error:
        return str(error)
    return ""


def _cell(study: Study, place: tuple[int, ...]) -> Cell:
    point = {axis.name: axis.values[at] for axis, at in zip(study.axes, place, strict=True)}
    seed, rate = int(point.get("seed", 0)), point.get("request_rate")
    workload = Workload(
        str(point["trace"]), seed, None if rate is None else float(rate), float(point.get("rate_scale", 1.0))
    )
    kept = any(all(point[name] == value for name, value in choice.items()) for choice in study.keep)
    try:
        config = _config(study, point)
        for kind, name in policies_of(config):
            _require(kind, name, study.policy_files)
        profile = _profile(config, study.profiles[str(point["profile"])], point.get("link"))
    except InputError as error:
        return Cell(place, point, workload, None, None, str(error), kept)
    return Cell(place, point, workload, config, profile, "", kept)


def _config(study: Study, point: Mapping[str, Value]) -> ClusterConfig:
    values: dict[str, Any] = copy.copy(dict(study.cluster))
    for axis in study.axes:
        if axis.name not in _NO_FIELD and axis.name in point:
            set_field(values, axis, point[axis.name], axis.name)
    if "ttl" in point:
        set_retention(values, float(point["ttl"]))
    if "seed" in point:
        values["gateway"] = {**(values.get("gateway") or {}), "seed": point["seed"]}
    return parse_config(values, "cluster")


def _profile(config: ClusterConfig, profile: AnyProfile, link: Value | None) -> AnyProfile:
    """Return `profile` with its handoff over another link of the catalog, at that link's full rate.

    Raises InputError where it is none for the workers of `config`.
    """
    profile = (step_profile if config.vllm else service_profile)(config, profile)
    if link is None:
        return profile
    if isinstance(profile, StepProfile):
        raise InputError(f"link: {link}: vllm workers hand nothing off; allowed: a study without this axis")
    entry = load().part("links", str(link), "link")
    handoff = dataclasses.replace(
        profile.handoff, bytes_per_s=entry.bandwidth, source=f"one {link} a worker", kind="assumed", payload_bytes=None
    )
    return dataclasses.replace(profile, handoff=handoff)


@cache
def code_digest() -> str:
    """Return a digest of the simulator's sources and of what is measured, so that no result outlives either."""
    folders = [Path(folder) for folder in kvsweep.cluster.__path__]
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    digest = blake2b(digest_size=16)
    for file in [*files, Path(metrics.__file__)]:
        digest.update(file.read_bytes() + b"\0")
    return digest.hexdigest()


def cell_key(cell: Cell, trace_digest: str, study: Study) -> str:
    """Return the key of a cell's result: a digest of all it depends on, wherever the cell stands in a study."""
    assert cell.config is not None and cell.profile is not None
    config = config_mapping(with_context(_in_effect(cell.config), cell.profile))
    config.pop("name", None)
    about = [code_digest(), trace_digest, config, _profile_digest(cell.profile), dict(study.slos)]
    about.append([policy_digest(kind, name, study.policy_files) for kind, name in policies_of(cell.config)])
    text = json.dumps(about, sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def oracle_of(cell: Cell) -> Cell | None:
    """Return the cell that evicts by next use and lets nothing expire, all else alike: what regret is against.

    There is none for a cell that cannot be, or of vLLM workers, which evict by their own rule whatever the file says.
    """
    if cell.config is None or cell.config.vllm:
        return None
    eviction, retention = Eviction(policy=ORACLE), Retention()
    return dataclasses.replace(
        cell, config=dataclasses.replace(cell.config, eviction=eviction, retention=retention), kept=False
    )


_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "idle_ttl": ("seconds", "check_seconds"),
    "hazard_ttl": ("saved_seconds", "cost_per_second", "fit_ratio", "check_seconds"),
}
"""Fields of the retention that a built-in policy has; one of a file has its checks."""


def _in_effect(config: ClusterConfig) -> ClusterConfig:
    """Return `config` without what has no effect under its eviction and retention: the same simulation is run once."""
    eviction, kept = config.eviction, config.retention
    if eviction.policy != "tlru":
        eviction = Eviction(policy=eviction.policy)
    known = {name: getattr(kept, name) for name in _PARAMETERS.get(kept.policy, ("check_seconds",))}
    return dataclasses.replace(config, eviction=eviction, retention=Retention(policy=kept.policy, **known))


@cache
def _profile_digest(profile: AnyProfile) -> str:
    """Return a digest of `profile` as its file states it; thousands of cells share one."""
    text = json.dumps(any_profile_mapping(profile), sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def policies_of(config: ClusterConfig) -> tuple[tuple[str, str], ...]:
    """Return kind and name of the policies of a cluster file that may be from files."""
    return (
        ("gateway", config.gateway.policy),
        ("eviction", config.eviction.policy),
        ("retention", config.retention.policy),
        ("retrieval", config.retrieval.policy),
    )


@cache
def _require(kind: str, name: str, files: tuple[Path, ...]) -> None:
    """Raise InputError for a policy that is not there."""
    if kind == "retrieval":
        load_policies(files).select([name], "retrieval: policy")
    else:
        select_plugin(kind, name, files)


@cache
def policy_digest(kind: str, name: str, files: tuple[Path, ...]) -> str:
    """Return a digest of the decision of a policy; '' for a built-in one, whose source is the simulator's."""
    if kind == "retrieval":
        policy = load_policies(files)[name]
        return fingerprint(policy.decide, extra=(policy.recomputes, repr(policy.modes)))
    plugin = select_plugin(kind, name, files)
    return fingerprint(plugin.decide) if plugin else ""
