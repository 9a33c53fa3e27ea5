"""Measured operations: what service models are fitted to, whatever file they came from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

PATHS = ("handoff", "h2d", "d2h")
"""Copies that a profile has models of; a source is said to be of one as in h2d=FILE."""


class Operation(NamedTuple):
    """What an operation did, and how long it took.

    A prefill step executes `size` tokens of `requests` prompts, each after `context` tokens; a decode step runs `size`
    requests over `context` tokens, summed; a copy moves `size` bytes.
    """

    size: float
    context: float
    seconds: float
    requests: float = 1.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Operations of one kind: ``prefill``, ``decode`` or a copy of `PATHS`; `boundary` says what interval was timed."""

    kind: str
    rows: tuple[Operation, ...]
    boundary: str
    source: Path
    note: str = ""
    """What was left out, and whose figures they are."""
