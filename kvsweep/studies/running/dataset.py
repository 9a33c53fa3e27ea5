"""The figures of a study as one Dataset: its axes as dims, then what a figure has of its own (statistic, tier, …)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kvsweep.cluster.outcome.dataset import REFERENCES, foresight
from kvsweep.results.attrs import to_attrs
from kvsweep.results.dataset import common_attrs, text_array, timestamp
from kvsweep.results.names import NAMES, attributes
from kvsweep.studies.axes import Axis
from kvsweep.studies.metrics import NO_CAUSE, ONLY_SOME, SHAPES, STATISTICS
from kvsweep.studies.running.outcome import Outcome
from kvsweep.studies.study import study_mapping
from kvsweep.version import __version__

STATES = ("pending", "done", "failed")
"""States of a cell, in the order of their codes."""
SUMS = ("hit_tokens", "uncached_tokens", "oracle_uncached_tokens", "prompt_tokens", "output_tokens")
OVER_WORKERS = ("occupancy", "evictions", "expirations", "bytes_in", "bytes_out")
COMMENT = (
    "Every point is a full simulation. Latencies are of the requests served. Figures by tier are sums over the workers "
    "that prefill, decode_occupancy and handoff_bytes over decode workers."
)
ORACLE_COMMENT = (
    " Regret is against eviction belady with nothing that expires and all else alike. It evicts what is next used "
    "last, but whole nodes, leaves first, tier by tier, and requests are then served at other times and places: no "
    "strict bound, so that regret may be below 0."
)
MAX_TOLD = 20


def study_dataset(outcome: Outcome) -> xr.Dataset:
    """Return the Dataset of a study, NaN in cells that have no figures."""
    study = outcome.study
    records = [outcome.record(index) for index in range(len(outcome.cells))]
    labels = _labels(records, study.slos)
    dims = [axis.name for axis in study.axes]
    variables: dict[str, xr.Variable] = {}
    for name, own in SHAPES.items():
        if any(not labels[dim] for dim in own):
            continue
        shape = [len(labels[dim]) for dim in own]
        values = _values(records, name, shape).reshape(*study.shape, *shape)
        variables[name] = xr.Variable((*dims, *own), values, _attributes(name))
    for name in ONLY_SOME:
        if np.isnan(variables[name].values).all():
            del variables[name]
    oracle = _values([outcome.records.get(key) for key in outcome.oracles], "uncached_tokens", ())
    if not np.isnan(oracle).all():
        values = oracle.reshape(study.shape)
        variables["oracle_uncached_tokens"] = xr.Variable(dims, values, _attributes("oracle_uncached_tokens"))
    _flag_bottleneck(variables["bottleneck"], labels["cause"])
    codes = [0 if record is None else 1 if "figures" in record else 2 for record in records]
    states = {"flag_values": np.arange(len(STATES), dtype=np.int8), "flag_meanings": " ".join(STATES)}
    state = np.array(codes, dtype=np.int8).reshape(study.shape)
    variables["cell_state"] = xr.Variable(dims, state, attributes("cell_state") | states)
    coords = {axis.name: _coordinate(axis) for axis in study.axes}
    coords |= {
        name: xr.Variable(name, text_array(points), attributes(name)) for name, points in labels.items() if points
    }
    ds = xr.Dataset(variables, coords)
    ds = ds.squeeze([axis.name for axis in study.axes if len(axis.values) == 1])
    about = _about(outcome, records)
    if "oracle_uncached_tokens" in ds:
        about["comment"] += ORACLE_COMMENT
    return ds.assign_attrs(to_attrs(common_attrs() | about))


def _labels(records: Sequence[Mapping[str, Any] | None], slos: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the points of the dims that are no axes."""
    labels: dict[str, list[str]] = {"statistic": list(STATISTICS), "slo": list(slos), "tier": [], "cause": []}
    for record in records:
        for name, points in (record or {}).get("labels", {}).items():
            labels[name] += [point for point in points if point not in labels[name]]
    return labels


def _values(records: Sequence[Mapping[str, Any] | None], name: str, shape: Sequence[int]) -> NDArray[np.float64]:
    values = np.full((len(records), *shape), np.nan)
    for index, record in enumerate(records):
        if record is not None and "figures" in record:
            found = np.asarray(record["figures"][name])
            values[(index, slice(found.size)) if shape else index] = found
    return values


def _flag_bottleneck(variable: xr.Variable, causes: Sequence[str]) -> None:
    meanings = (NO_CAUSE, *causes)
    variable.data = np.where(np.isnan(variable.values), -1, variable.values).astype(np.int8)
    variable.attrs |= {
        "flag_values": np.arange(-1, len(meanings), dtype=np.int8), "flag_meanings": " ".join(("unknown", *meanings)),
    }  # fmt: skip


def _attributes(name: str) -> dict[str, str]:
    found = attributes(name)
    if name in SUMS:
        found["cell_methods"] = "request: sum"
    elif name in OVER_WORKERS:
        found["cell_methods"] = "worker: sum"
    elif name == "queue_delay":
        found["cell_methods"] = "request: mean"
    return found


def _coordinate(axis: Axis) -> xr.Variable:
    texts = any(isinstance(value, str) for value in axis.values)
    whole = all(isinstance(value, int) for value in axis.values)
    points: Any = text_array([str(value) for value in axis.values]) if texts else np.array(axis.values)
    if not texts:
        points = points.astype(np.int64 if whole and axis.name != "ttl" else np.float64)
    return xr.Variable(axis.name, points, axis_attributes(axis.name, axis.path, texts))


def axis_attributes(name: str, path: str, texts: bool) -> dict[str, str]:
    """Return unit and meaning of an axis; those of other fields of the cluster file say which one."""
    if name in NAMES:
        return attributes(name)
    units = {} if texts else {"units": "s" if name.endswith("_seconds") else "1"}
    return {"long_name": f"{path} of the cluster file", **units}


def _about(outcome: Outcome, records: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    study, failures = outcome.study, outcome.failures
    told = {
        ", ".join(f"{name}={value}" for name, value in outcome.cells[index].point.items()): reason
        for index, reason in list(failures.items())[:MAX_TOLD]
    }
    kept = {key[:16]: {name: str(value) for name, value in cell.point.items()}
            for key, cell in zip(outcome.keys, outcome.cells, strict=True) if cell.kept}  # fmt: skip
    seconds = sum(float(record["seconds"]) for record in records if record and "seconds" in record)
    known = {each: None for cell in outcome.cells if cell.config for each in foresight(cell.config)}
    profiles = sorted({profile.kind for profile in study.profiles.values()})
    return {
        "title": study.title,
        "history": f"{timestamp()} kvsweep cluster sweep",
        "source": f"kvsweep {__version__}",
        "references": REFERENCES,
        "comment": COMMENT,
        "kvsweep_result": "cluster_study",
        "kvsweep_profile_kind": "assumed" if "assumed" in profiles else profiles[0],
        "kvsweep_foresight": list(known) or None,
        "kvsweep_config": study_mapping(study),
        "kvsweep_pending": sum(record is None for record in records),
        "kvsweep_failed": len(failures),
        "kvsweep_failures": told or None,
        "kvsweep_kept": kept or None,
        # Of a file that is to be the same bytes again, the time it took is no part.
        "kvsweep_cpu_seconds": None if "SOURCE_DATE_EPOCH" in os.environ else seconds,
    }
