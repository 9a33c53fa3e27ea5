"""Traces of requests: reading, generating, converting, sampling and their statistics.

Names are imported when first used, so that the list of formats can be read without NumPy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvsweep.trace.model import Note, Trace
    from kvsweep.trace.options import ReadOptions
    from kvsweep.trace.read import read_trace

__all__ = ["Note", "ReadOptions", "Trace", "read_trace"]

_HOME = {"Note": "model", "Trace": "model", "ReadOptions": "options", "read_trace": "read"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
