"""The study file: a cluster file, profiles, traces, and the axes of which every combination is simulated.

Strict YAML like the cluster file; names of files in it are beside it. All of it is read and checked before any run.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kvsweep.catalog.fields import read_record
from kvsweep.catalog.load import load
from kvsweep.cluster.inputs.config import Slo, parse_config
from kvsweep.cluster.inputs.profiles import (
    AnyProfile,
    any_profile_mapping,
    parse_any_profile,
    read_any_profile,
    shipped,
)
from kvsweep.cluster.inputs.roofline import roofline
from kvsweep.errors import InputError, shown, unknown_name
from kvsweep.studies.axes import INPUTS, Axis, read_axis, sorted_axes
from kvsweep.studies.traces import TraceSpec, read_spec, spec_mapping
from kvsweep.yamlfile import read_yaml_file

ENTRIES = ("title", "cluster", "profile", "trace", "axes", "slo", "regret", "keep")
"""What a study file may hold."""
LARGEST = 200_000
"""Most simulations of a study."""
_ROOFLINE = ("model", "gpu", "tp", "link", "label")


@dataclass(frozen=True, slots=True)
class Study:
    """A checked study; `axes` has all dims, labels of profiles and traces among them, in the order of the result."""

    where: str
    folder: Path
    title: str
    cluster: Mapping[str, Any]
    profiles: Mapping[str, AnyProfile]
    traces: Mapping[str, TraceSpec]
    axes: tuple[Axis, ...]
    slos: Mapping[str, Mapping[str, float]]
    keep: tuple[Mapping[str, Any], ...]
    policy_files: tuple[Path, ...] = ()
    inputs: tuple[Path, ...] = ()
    """Files that are read for it, its own among them."""
    regret: bool = False
    """Whether the oracle is run for every cell that lacks it, so that all have a regret."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the length of each axis."""
        return tuple(len(axis.values) for axis in self.axes)

    @property
    def n_cells(self) -> int:
        """Return the number of simulations."""
        count = 1
        for length in self.shape:
            count *= length
        return count


def read_study(path: Path, axes: Sequence[str] = (), policy_files: Sequence[Path] = ()) -> Study:
    """Return the study file at `path`, axes given as ``name=values`` laid over its own.

    Raises InputError naming file, field and what is allowed.
    """
    values = read_yaml_file(path)
    for text in axes:
        name, sign, given = text.partition("=")
        if not sign or not name.strip() or not given.strip():
            raise InputError(f"--axis: {shown(text)}; allowed: NAME=VALUES, as in ttl=1,10,60")
        listed = values.get("axes") or {}
        values["axes"] = {**(listed if isinstance(listed, Mapping) else {}), name.strip(): given.strip()}
    study = parse_study(values, str(path), path.parent, policy_files)
    return replace(study, inputs=(path, *study.inputs))


def parse_study(
    values: Mapping[str, Any], where: str, folder: Path = Path(), policy_files: Sequence[Path] = ()
) -> Study:
    """Return the study stated by `values`, as in a study file; names of files in it are relative to `folder`."""
    for name in values:
        if name not in ENTRIES:
            raise unknown_name(f"{where}: field", name, ENTRIES)
    title = values.get("title", "cluster study")
    if not isinstance(title, str) or not title.strip():
        raise InputError(f"{where}: title: {shown(title)} is not text; allowed: one line")
    axes = values.get("axes") or {}
    if not isinstance(axes, Mapping):
        raise InputError(f"{where}: axes: {shown(axes)} is not a mapping; allowed: an axis and its values on each line")
    inputs = {name: _listed(values, axes, name, where) for name in INPUTS}
    profiles = _profiles(inputs["profile"], f"{where}: profile", folder)
    traces = _traces(inputs["trace"], f"{where}: trace")
    cluster = _cluster(values.get("cluster"), where, folder)
    study = Study(
        where=where,
        folder=folder,
        title=" ".join(title.split()),
        cluster=cluster,
        profiles=profiles,
        traces=traces,
        axes=_axes(axes, where, profiles, traces),
        slos=_slos(values.get("slo"), f"{where}: slo"),
        keep=(),
        policy_files=tuple(policy_files),
        inputs=(*policy_files, *_files(values.get("cluster"), inputs, traces, folder)),
        regret=_regret(values.get("regret", False), cluster, f"{where}: regret"),
    )
    if study.n_cells > LARGEST:
        raise InputError(f"{where}: axes: {study.n_cells} simulations; allowed: at most {LARGEST}")
    return replace(study, keep=_keep(values.get("keep"), study))


def _files(
    cluster: Any, inputs: Mapping[str, list[Any]], traces: Mapping[str, TraceSpec], folder: Path
) -> tuple[Path, ...]:
    """Return the files that a study names; those of shipped profiles are none of its own."""
    named = [cluster, *inputs["profile"], *(getattr(spec, "file", None) for spec in traces.values())]
    return tuple(folder / each for each in named if isinstance(each, str))


def _regret(given: Any, cluster: Mapping[str, Any], where: str) -> bool:
    """Return whether the oracle is run for every cell."""
    if not isinstance(given, bool):
        raise InputError(f"{where}: {shown(given)}; allowed: true or false")
    if given and any(group["role"] == "vllm" for group in cluster["workers"]):
        raise InputError(f"{where}: true; vllm workers evict by their own rule, and none for them is an oracle; "
                         "allowed: false")  # fmt: skip
    return given


def _listed(values: Mapping[str, Any], axes: Mapping[str, Any], name: str, where: str) -> list[Any]:
    """Return the profiles or traces of a study, which may stand by themselves or among the axes."""
    if name in values and name in axes:
        raise InputError(f"{where}: {name}: stands there and among the axes; allowed: one of both")
    given = axes.get(name, values.get(name))
    if given is None:
        raise InputError(f"{where}: {name}: missing; allowed: a file, a description, or a list of these")
    listed = given if isinstance(given, list) else [given]
    if not listed:
        raise InputError(f"{where}: {name}: the list is empty; allowed: at least one")
    return listed


def _axes(
    given: Mapping[str, Any], where: str, profiles: Mapping[str, Any], traces: Mapping[str, Any]
) -> tuple[Axis, ...]:
    axes = [Axis("profile", "", tuple(profiles)), Axis("trace", "", tuple(traces))]
    for name, values in given.items():
        if name in INPUTS:
            continue
        axis = read_axis(str(name), values, f"{where}: axes")
        if axis.name in (other.name for other in axes):
            raise InputError(f"{where}: axes: {axis.name} is there twice; allowed: once")
        axes.append(axis)
    names = {axis.name for axis in axes}
    if "ttl" in names and names & {"retention", "retention_seconds"}:
        raise InputError(f"{where}: axes: ttl sets the retention; allowed: ttl, or retention and retention.seconds")
    if {"seed", "gateway_seed"} <= names:
        raise InputError(f"{where}: axes: seed sets gateway.seed, too; allowed: one of both")
    if {"request_rate", "rate_scale"} <= names:
        raise InputError(f"{where}: axes: request_rate and rate_scale both set arrivals; allowed: one of both")
    return tuple(sorted_axes(axes))


def _cluster(given: Any, where: str, folder: Path) -> dict[str, Any]:
    """Return the cluster file as mappings, checked as it stands."""
    if isinstance(given, str):
        path = folder / given
        try:
            values = read_yaml_file(path)
        except InputError as error:
            raise InputError(f"{where}: cluster: {error}") from error
        parse_config(values, str(path))
        return values
    if not isinstance(given, Mapping):
        raise InputError(f"{where}: cluster: {'missing' if given is None else shown(given)}; allowed: a cluster file")
    parse_config(given, f"{where}: cluster")
    return copy.deepcopy(dict(given))


def _profiles(listed: list[Any], where: str, folder: Path) -> dict[str, AnyProfile]:
    found: dict[str, AnyProfile] = {}
    for given in listed:
        label, profile = _profile(given, where, folder)
        if label in found:
            raise InputError(f"{where}: two are called {shown(label)}; allowed: names that differ (label)")
        found[label] = profile
    return found


def _profile(given: Any, where: str, folder: Path) -> tuple[str, AnyProfile]:
    if isinstance(given, str):
        return _profile_file(given, where, folder)
    if not isinstance(given, Mapping):
        raise InputError(f"{where}: {shown(given)}; allowed: a file, {{model, gpu, tp, link}} or a whole profile")
    if "prefill" in given or "format" in given:
        label = given.get("label", given.get("name"))
        return str(label), parse_any_profile({name: value for name, value in given.items() if name != "label"}, where)
    for name in given:
        if name not in _ROOFLINE:
            raise unknown_name(f"{where}: field", name, _ROOFLINE)
    for name in ("model", "gpu"):
        if not isinstance(given.get(name), str):
            raise InputError(f"{where}: {name}: {shown(given.get(name))}; allowed: a key of the catalog")
    tp, link = given.get("tp", 1), given.get("link", "rdma-400g")
    if type(tp) is not int or not 1 <= tp <= 1024:
        raise InputError(f"{where}: tp: {shown(tp)}; allowed: a whole number of 1 to 1024 GPUs")
    try:
        profile = roofline(load(), given["model"], given["gpu"], tp, str(link))
    except InputError as error:
        raise InputError(f"{where}: {str(error).replace('--', '')}") from error
    return str(given.get("label", given["model"])), profile


def _profile_file(given: str, where: str, folder: Path) -> tuple[str, AnyProfile]:
    """Return the profile in a file, or the one of that name that comes with kvsweep, and its label."""
    is_name = len(Path(given).parts) == 1 and Path(given).suffix not in (".yaml", ".yml")
    if is_name and not (folder / given).exists():
        names = shipped()
        if given not in names:
            raise unknown_name(where, given, names)
        return given, read_any_profile(names[given])
    return Path(given).name.partition(".")[0], read_any_profile(folder / given)


def _traces(listed: list[Any], where: str) -> dict[str, TraceSpec]:
    found: dict[str, TraceSpec] = {}
    for given in listed:
        spec = read_spec(given, where)
        if spec.label in found:
            raise InputError(f"{where}: two are called {shown(spec.label)}; allowed: names that differ (label)")
        found[spec.label] = spec
    return found


def _slos(given: Any, where: str) -> dict[str, dict[str, float]]:
    """Return limits [s] by objective of each SLO, under a label made of them."""
    found = {}
    for values in given if isinstance(given, list) else [] if given is None else [given]:
        slo: Slo = read_record(Slo, values, where)
        limits = {name: getattr(slo, f"{name}_seconds") for name in ("ttft", "tpot", "e2e")}
        known = {name: limit for name, limit in limits.items() if limit is not None}
        if not known:
            raise InputError(f"{where}: an SLO without limits; allowed: ttft_seconds, tpot_seconds, e2e_seconds")
        found[" ".join(f"{name}<={limit:g}s" for name, limit in known.items())] = known
    return found


def _keep(given: Any, study: Study) -> tuple[dict[str, Any], ...]:
    """Return the choices of cells of which every request is kept: values by axis, several conditions at once."""
    where = f"{study.where}: keep"
    listed = given if isinstance(given, list) else [] if given is None else [given]
    axes = {axis.name: axis for axis in study.axes}
    for choice in listed:
        if not isinstance(choice, Mapping):
            raise InputError(f"{where}: {shown(choice)} is no choice of cells; allowed: {{axis: value, …}}")
        for name, value in choice.items():
            if name not in axes:
                raise unknown_name(where, name, axes)
            if value not in axes[name].values:
                points = ", ".join(map(str, axes[name].values))
                raise InputError(f"{where}: {name}: {shown(value)} is not on the axis; allowed: {points}")
    return tuple(dict(choice) for choice in listed)


def study_mapping(study: Study) -> dict[str, Any]:
    """Return `study` as a study file would state it, everything resolved but for the cluster's defaults."""
    values: dict[str, Any] = {
        "title": study.title,
        "cluster": dict(study.cluster),
        "profile": [{"label": label, **any_profile_mapping(profile)} for label, profile in study.profiles.items()],
        "trace": [spec_mapping(spec) for spec in study.traces.values()],
        "axes": {axis.path if axis.path and "_" in axis.name and "." in axis.path and "*" not in axis.path
                 else axis.name: list(axis.values) for axis in study.axes if axis.name not in INPUTS},
    }  # fmt: skip
    if study.slos:
        values["slo"] = [{f"{name}_seconds": limit for name, limit in slo.items()} for slo in study.slos.values()]
    if study.regret:
        values["regret"] = True
    if study.keep:
        values["keep"] = [dict(choice) for choice in study.keep]
    return values
