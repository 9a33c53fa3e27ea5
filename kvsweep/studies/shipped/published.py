"""The set-ups of the paper's studies, its findings, and the workloads that stand in for its own.

Source: Compositional Performance Modeling of LLM Inference Clusters with Hierarchical KV Caching, §V-A and §VI. The
paper's traces and profiles are not public: coding sessions are generated, or read from a file of recorded ones; service
models are rooflines of the catalog, `assumed`, unless a profile is given.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from kvsweep.catalog import load
from kvsweep.cluster.inputs.config import ClusterConfig, parse_config
from kvsweep.cluster.inputs.profiles import find_profile
from kvsweep.cluster.inputs.roofline import roofline
from kvsweep.cluster.inputs.service_profile import Profile, read_profile
from kvsweep.errors import InputError
from kvsweep.results.attrs import to_attrs
from kvsweep.results.dataset import common_attrs, text_array, timestamp
from kvsweep.results.names import attributes
from kvsweep.studies.traces import FileTrace, MadeTrace, TraceSpec

DATA = "KVSWEEP_DATA"
"""Environment variable with the folder of recorded traces."""
MODELS: Mapping[str, str] = {"8B": "qwen3-8b", "32B": "qwen3-32b"}
CODING_RATES: Mapping[str, float] = {"8B": 0.5, "32B": 0.25}
"""Requests a second of the coding traces on 3P-1D in §VI [1/s]."""
LOADS = ("paper", "own")
"""The rates of the paper, and the pace at which the sessions were recorded or made, which is theirs."""
FIDELITIES = ("paper", "engine")
"""The rules the studies run by: the paper's, and the engine's beside them."""
DIFFER = 0.02
"""Share by which a figure of the engine differs where both are shown [1]."""
SESSIONS = 50
DEVICE_TOKENS = 262_144
"""KV that fits on a worker [token]."""
SOURCE = "arXiv text, section VI"


@dataclass(frozen=True, slots=True)
class Finding:
    """What the paper says of a model: simulated, and measured where it was."""

    name: str
    simulated: Mapping[str, float]
    measured: Mapping[str, float]


AFFINITY = (
    Finding("uncached_change", {"8B": -0.503, "32B": -0.477}, {"8B": -0.482, "32B": -0.461}),
    Finding("e2e_change", {"8B": -0.0023, "32B": 0.0121}, {"8B": 0.0044, "32B": 0.0132}),
)
"""Session affinity against round robin: uncached input tokens, mean end-to-end latency [1]."""
RETENTION = (
    Finding("occupancy_change", {"8B": -0.869, "32B": -0.929}, {}),
    Finding("ttft_change", {"8B": 0.074, "32B": 0.038}, {}),
)
"""A TTL of 60 s against LRU alone: time-weighted occupancy of L1 and L2, mean time to first token [1]."""


def cluster(n_prefill: int, fidelity: str = "paper", **changes: Any) -> ClusterConfig:
    """Return the paper's cluster of `n_prefill` prefill workers and one decode worker, with changed sections."""
    worker = {"tp": 2, "device_tokens": DEVICE_TOKENS, "max_running": 32}
    prefill = {"role": "prefill", "count": n_prefill, "host_tokens": 524_352, "chunk_tokens": 4096, **worker}
    values = {
        # Recorded sessions are of models with longer contexts than these.
        "name": f"{n_prefill}P-1D", "fidelity": fidelity, "page_size": 64, "context": {"beyond": "serve"},
        "workers": [prefill, {"role": "decode", **worker}], **changes,
    }  # fmt: skip
    return parse_config(values, "cluster of the paper")


def profiles(files: Mapping[str, Path | None]) -> dict[str, Profile]:
    """Return the profile of each model: the file or shipped one given for it, else a roofline of two L20Z."""
    catalog = load()
    found: dict[str, Profile] = {}
    for size, model in MODELS.items():
        file = files.get(size)
        found[size] = roofline(catalog, model, "l20z", 2) if file is None else read_profile(find_profile(file))
    return found


def coordinates(points: Mapping[str, Sequence[Any]]) -> dict[str, xr.Variable]:
    """Return the coordinates of a study from the points of its dims."""
    arrays = {name: text_array(each) if isinstance(each[0], str) else np.array(each) for name, each in points.items()}
    return {name: xr.Variable(name, array, attributes(name)) for name, array in arrays.items()}


def about(
    title: str, command: str, profiles: Mapping[str, Profile], fidelities: Sequence[str], spec: TraceSpec,
    findings: Sequence[Finding],
) -> dict[str, Any]:  # fmt: skip
    """Return the attributes of a study of §VI, with what the paper found."""
    found = {item.name: {"simulated": dict(item.simulated), "measured": dict(item.measured)} for item in findings}
    return to_attrs(
        common_attrs()
        | {
            "title": title,
            "history": f"{timestamp()} kvsweep study {command}",
            "kvsweep_result": f"{command}_study",
            "kvsweep_fidelity": ", ".join(fidelities),
            "kvsweep_trace": spec.label,
            "kvsweep_profiles": {size: f"{each.name} ({each.kind})" for size, each in profiles.items()},
            "kvsweep_paper": found,
        }
    )


def rate_of(load: str, size: str) -> float | None:
    """Return the rate of arrivals under a load [1/s], None for the trace's own."""
    return CODING_RATES[size] if load == "paper" else None


def coding_trace(recorded: Path | None, told: Mapping[str, Any] | None = None) -> TraceSpec:
    """Return coding sessions: generated, or those of a file that fit a worker whole and are of usual length.

    `told` are fields of `FileTrace` that say how the file is read.
    """
    if recorded is None:
        # The catalog's limit of these models: a session that outgrows it could not be served to its end.
        limit = min(_context(model) for model in MODELS.values())
        return MadeTrace("coding", 8 * SESSIONS, "generated", 0, {}, limit, SESSIONS)
    label = recorded.name.partition(".")[0]
    return FileTrace(file=str(recorded), label=label, longest_tokens=DEVICE_TOKENS, interquartile=1,
                     **(told or {}))  # fmt: skip


def _context(model: str) -> int:
    shape = load().models[model].shape
    assert shape is not None and shape.max_context is not None
    return int(shape.max_context)


def recorded_sessions() -> Path | None:
    """Return the file of recorded coding sessions below the folder in KVSWEEP_DATA, None without one."""
    folder = os.environ.get(DATA)
    if not folder:
        return None
    if not Path(folder).is_dir():
        raise InputError(f"{DATA}: {folder} is no folder; allowed: a folder with traces, or leave it unset")
    return next(iter(sorted(Path(folder).glob("weka/*.jsonl*"))), None)
