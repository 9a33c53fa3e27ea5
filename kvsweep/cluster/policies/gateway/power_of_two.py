"""The less loaded of two workers drawn at random."""

from __future__ import annotations

from kvsweep.cluster.policies.gateway.candidates import count, load, nth
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.state import State


def choose(s: State, side: int, r: int, room: int) -> int:
    """Return the one of two different candidates with less load, the first drawn on a tie."""
    n = count(s, side, room)
    i = s.request[r, col.DRAW + 2 * side] % n
    first = nth(s, side, room, i)
    if n == 1:
        return first
    j = s.request[r, col.DRAW + 2 * side + 1] % (n - 1)
    second = nth(s, side, room, j + 1 if j >= i else j)
    return second if load(s, side, second) < load(s, side, first) else first
