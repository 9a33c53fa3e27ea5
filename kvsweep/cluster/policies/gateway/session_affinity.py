"""Each session stays with the worker of its first request; sessions are dealt out in turn."""

from __future__ import annotations

from kvsweep.cluster.policies.gateway.candidates import pool
from kvsweep.cluster.policies.gateway.round_robin import choose as round_robin
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.state import State


def choose(s: State, side: int, r: int, room: int) -> int:
    """Return the worker of the request's session, or the next in turn where it has none or cannot hold the request."""
    session = s.request[r, col.SESSION]
    place = s.run[col.SESSIONS + side] + session
    known = s.lists[place] if session >= 0 else -1
    if known >= 0 and pool(s, side, known) >= room:
        return int(known)
    w = round_robin(s, side, r, room)
    if session >= 0 and known < 0:
        s.lists[place] = w
    return w
