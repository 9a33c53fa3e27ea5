"""What waiting requests wait for: how long the queue of a worker has been blocked for lack of slots, or of room."""

from __future__ import annotations

from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.state import State


def note_blocked(s: State, w: int, why: int) -> None:
    """Note why the first waiting request of worker `w` goes no further from now on."""
    own = s.prefill[w]
    own[col.BLOCKED_SLOTS] = blocked(s, w, col.BY_SLOTS)
    own[col.BLOCKED_CAPACITY] = blocked(s, w, col.BY_CAPACITY)
    own[col.BLOCKED], own[col.BLOCKED_SINCE] = why, s.run[col.NOW]


def blocked(s: State, w: int, why: int) -> int:
    """Return how long the queue of worker `w` has been blocked for a reason so far [ps]."""
    total = s.prefill[w, col.BLOCKED_SLOTS + why - col.BY_SLOTS]
    if s.prefill[w, col.BLOCKED] == why:
        total += s.run[col.NOW] - s.prefill[w, col.BLOCKED_SINCE]
    return int(total)


def begin_waiting(s: State, w: int, r: int) -> None:
    """Count from now on what request `r` waits for at worker `w`."""
    s.request[r, col.SLOTS_BEFORE] = blocked(s, w, col.BY_SLOTS)
    s.request[r, col.CAPACITY_BEFORE] = blocked(s, w, col.BY_CAPACITY)


def end_waiting(s: State, w: int, r: int) -> None:
    """Note how long request `r` waited at worker `w` for either reason, since `begin_waiting`."""
    request = s.request[r]
    request[col.SLOTS_BEFORE] = blocked(s, w, col.BY_SLOTS) - request[col.SLOTS_BEFORE]
    request[col.CAPACITY_BEFORE] = blocked(s, w, col.BY_CAPACITY) - request[col.CAPACITY_BEFORE]
