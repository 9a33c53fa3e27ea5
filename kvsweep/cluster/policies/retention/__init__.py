"""Retention policies: how long idle pages stay when no room is needed.

``none`` keeps them. ``idle_ttl`` drops at periodic checks what has been idle for long enough. ``hazard_ttl`` does so,
too, after a time that is chosen before the run (`hazard`). One of a file says it for each page (`from_file`). In
fidelity paper no event is needed for the checks: what they would have dropped is dropped when a worker's KV is next
looked at, with the time of the check.
"""

from __future__ import annotations

from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.state import State

POLICIES = ("none", "idle_ttl", "hazard_ttl")
"""Ids; the core knows whether anything expires, and after how long, or whom to ask."""


def last_check(s: State) -> int:
    """Return the time of the last check up to and with now [ps], -1 where nothing ever expires."""
    if s.run[col.RETENTION] == 0:
        return -1
    check = s.run[col.CHECK]
    return int(s.run[col.NOW] // check * check)
