"""What a trace file does not say, or says wrongly, and its reader may be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TimeUnit = Literal["s", "ms", "us", "ns"]
SessionMeaning = Literal["full", "delta"]

TIME_UNITS: tuple[TimeUnit, ...] = ("s", "ms", "us", "ns")
SESSION_MEANINGS: tuple[SessionMeaning, ...] = ("full", "delta")
MADE_BLOCK_SIZE = 16
"""Size of the blocks made of token ids, document ids and lengths unless told otherwise [token]."""
MAX_BLOCK_SIZE = 65_536
"""Largest size of a block [token]."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What the reader of a file is told; None is what the file says, or what is found by rules and noted."""

    format: str | None = None
    """Name of the format (`kvsweep.trace.formats`)."""
    time_unit: TimeUnit | None = None
    """Unit of the file's times."""
    block_size: int | None = None
    """Size of the blocks the file names, or of those made of token ids, document ids and lengths [token]."""
    sessions: SessionMeaning | None = None
    """What a prompt of a session holds: all of it (``full``), or what is new after the turn before (``delta``)."""
    output_tokens: int | None = None
    """Length of the answers the file does not state [token]."""
    characters_per_token: float | None = None
    """Characters of a token in prompts of which the file has the text and not the length [1]."""
    session_rate: float = 1 / 60
    """Rate at which sessions start whose file has no common clock [1/s]."""
    seed: int = 0
    """Seed of those starts."""
