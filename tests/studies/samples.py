"""Small studies for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from kvsweep.catalog import load
from kvsweep.catalog.fields import field_types
from kvsweep.cluster.inputs.config import ClusterConfig
from kvsweep.cluster.inputs.presets import cluster_file
from kvsweep.cluster.inputs.roofline import roofline

FIDELITIES = field_types(ClusterConfig)["fidelity"].choices
"""Every fidelity there is: what holds of studies holds under all of them."""


def cluster(n_prefill: int = 2, **changes: Any) -> dict[str, Any]:
    """Return the paper's cluster file as a mapping, with changes."""
    return {**yaml.safe_load(cluster_file("small", n_prefill, 2, "paper")), **changes}


def study(**changes: Any) -> dict[str, Any]:
    """Return a study of two gateways and two host sizes over a few coding sessions, with changes."""
    values: dict[str, Any] = {
        "title": "small study",
        "cluster": cluster(),
        "profile": {"model": "qwen3-8b", "gpu": "l20z", "tp": 2},
        "trace": {"generate": "coding", "sessions": 6, "turns": 6, "request_rate": 0.5},
        "axes": {"gateway": ["round_robin", "session_affinity"], "host_tokens": [0, 262144]},
    }
    return {**values, **changes}


def written(folder: Path, **changes: Any) -> Path:
    """Return the file of a small study in `folder`."""
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(study(**changes), sort_keys=False))
    return path


def profile() -> Any:
    """Return the profile of the small study."""
    return roofline(load(), "qwen3-8b", "l20z", 2)
