"""Greedy dual size frequency: what is used often and dear to compute stays, until younger pages are worth as much."""

from __future__ import annotations

from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.clock import prefill_duration
from kvsweep.cluster.shared.state import State


def key(s: State, tier: int, e: int) -> int:
    """Return the priority entry `e` had when it was released [ps/page]."""
    return int(s.entry[e, col.PRIORITY + tier])


def set_priority(s: State, w: int, tier: int, e: int) -> None:
    """Fix the priority of entry `e` of worker `w`, which is released: age + uses x time to compute one of its pages."""
    begin, pages = s.entry[e, col.DEPTH] * s.run[col.PAGE], s.entry[e, col.LENGTH]
    end = begin + pages * s.run[col.PAGE]
    worth = max(1, prefill_duration(s, end - begin, end * end - begin * begin) // pages)
    age = s.prefill[w, col.AGE + tier]
    s.entry[e, col.PRIORITY + tier] = age + min(s.entry[e, col.USES], (col.NEVER - 1 - age) // worth) * worth


def grow_older(s: State, w: int, tier: int, e: int) -> None:
    """Raise the age of a tier of worker `w` to the priority of its victim `e`."""
    s.prefill[w, col.AGE + tier] = max(s.prefill[w, col.AGE + tier], s.entry[e, col.PRIORITY + tier])
