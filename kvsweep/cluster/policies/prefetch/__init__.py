"""Stop policies of prefetching, one module each: until when a request waits for what is fetched from L3."""

from __future__ import annotations

from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.policies.prefetch.best_effort import waits_until as best_effort
from kvsweep.cluster.policies.prefetch.timeout import waits_until as timeout
from kvsweep.cluster.policies.prefetch.wait_complete import waits_until as wait_complete
from kvsweep.cluster.shared.state import State

POLICIES = ("best_effort", "wait_complete", "timeout")
"""Ids; the place of an id is its code in the core."""


def waits_until(s: State, r: int) -> int:
    """Return until when request `r` waits for its prefetch, which is not done [ps]; -1 where it does not, or NEVER."""
    policy = s.run[eng.STOP_POLICY]
    if policy == 0:
        return best_effort()
    return wait_complete() if policy == 1 else timeout(s, r)
