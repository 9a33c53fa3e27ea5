"""Stop policies of prefetching, one module each: until when a request waits for what is fetched from L3."""

from __future__ import annotations

from kvsweep.cluster.policies.prefetch.best_effort import waits_until as best_effort
from kvsweep.cluster.policies.prefetch.timeout import waits_until as timeout
from kvsweep.cluster.policies.prefetch.wait_complete import waits_until as wait_complete

POLICIES = ("best_effort", "wait_complete", "timeout")
"""Ids; the place of an id is its code in the core."""


def waits_until(policy: int, since: int, tokens: int, per: int) -> int:
    """Return until when a request waits for a prefetch that is not done [ps]; -1 where it does not, or NEVER.

    It wants `tokens`; `since` [ps] is when it began and what every request may wait at least, `per` [ps] what it may
    wait longer for 1024 tokens.
    """
    if policy == 0:
        return best_effort()
    return wait_complete() if policy == 1 else timeout(since, tokens, per)
