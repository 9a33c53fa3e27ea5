"""Published traces, where there are any: the environment variable KVSWEEP_DATA names the folder that holds them."""

from __future__ import annotations

import os
from pathlib import Path


class Skipped(Exception):
    """Data that a validation needs is not there."""


def published(pattern: str) -> Path | None:
    """Return the first file under the folder of data whose name is like `pattern`, None without it."""
    folder = os.environ.get("KVSWEEP_DATA")
    return next(iter(sorted(Path(folder).rglob(pattern))), None) if folder else None


def conversation() -> Path | None:
    """Return the Mooncake conversation trace (FAST '25)."""
    return published("conversation_trace.jsonl*")
