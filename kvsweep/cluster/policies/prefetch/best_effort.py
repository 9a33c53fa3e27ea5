"""A request never waits: it takes what has arrived."""

from __future__ import annotations


def waits_until() -> int:
    """Return -1, for not at all."""
    return -1
