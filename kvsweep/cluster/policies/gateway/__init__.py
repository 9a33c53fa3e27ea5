"""Gateway policies, one module each: which worker of a side serves a request.

A policy chooses among the candidates, the workers whose pool could hold the request (`room` pages); there is always
at least one. It may keep a turn (`State.turn`) and a worker for each session (`State.lists`).
"""

from __future__ import annotations

from kvsweep.cluster.policies.gateway.cache_aware import choose as cache_aware
from kvsweep.cluster.policies.gateway.from_file import choose as from_file
from kvsweep.cluster.policies.gateway.kv_cost import choose as kv_cost
from kvsweep.cluster.policies.gateway.least_loaded import choose as least_loaded
from kvsweep.cluster.policies.gateway.power_of_two import choose as power_of_two
from kvsweep.cluster.policies.gateway.random import choose as random
from kvsweep.cluster.policies.gateway.round_robin import choose as round_robin
from kvsweep.cluster.policies.gateway.session_affinity import choose as session_affinity
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.policy_functions import PolicyFunctions
from kvsweep.cluster.shared.state import State

POLICIES = ("round_robin", "random", "least_loaded", "power_of_two", "session_affinity", "cache_aware", "kv_cost")
"""Ids; the place of an id is its code in the core."""


def looks_at_caches(s: State) -> bool:
    """Return whether the policy compares what workers hold of the prompt, which `choose` then needs filled in."""
    return bool(s.run[col.GATEWAY] >= 5)


def choose(s: State, side: int, r: int, room: int, ask: PolicyFunctions) -> int:
    """Return the worker of `side` for request `r`, which needs `room` pages."""
    policy = s.run[col.GATEWAY]
    if policy == 0:
        return round_robin(s, side, r, room)
    if policy == 1:
        return random(s, side, r, room)
    if policy == 2:
        return least_loaded(s, side, r, room)
    if policy == 3:
        return power_of_two(s, side, r, room)
    if policy == 4:
        return session_affinity(s, side, r, room)
    if policy == 5:
        return cache_aware(s, side, r, room)
    if policy == 6:
        return kv_cost(s, side, r, room)
    return from_file(s, side, r, room, ask)
