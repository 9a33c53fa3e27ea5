"""Any worker, equally likely."""

from __future__ import annotations

from kvsweep.cluster.policies.gateway.candidates import count, nth
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.state import State


def choose(s: State, side: int, r: int, room: int) -> int:
    """Return the candidate the request's first draw of this side falls on."""
    return nth(s, side, room, s.request[r, col.DRAW + 2 * side] % count(s, side, room))
