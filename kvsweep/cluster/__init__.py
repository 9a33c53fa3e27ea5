"""Discrete-event simulation of prefill-decode clusters with KV hierarchies; rules in ``paper/README.md``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvsweep.cluster.outcome.summary import summarize
    from kvsweep.cluster.simulation.run import run

__all__ = ["run", "summarize", "sweep"]

# Studies stand above clusters: `sweep` is reached by name, when asked for.
_LAZY = {"run": "cluster.simulation.run", "summarize": "cluster.outcome.summary", "sweep": "studies.running.run"}


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module(f"kvsweep.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
