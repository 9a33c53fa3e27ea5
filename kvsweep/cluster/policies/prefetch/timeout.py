"""A request waits for a time that grows with what it wants."""

from __future__ import annotations

from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.clock import scaled
from kvsweep.cluster.shared.state import State


def waits_until(s: State, r: int) -> int:
    """Return when the time of request `r` is over, counted from its arrival [ps]; NEVER if the clock ends before."""
    tokens, per = s.request[r, eng.FETCH_WANTED] * s.run[col.PAGE], s.run[eng.TIMEOUT_PER_KI]
    begin = s.request[r, eng.FETCH_BEGAN] + s.run[eng.TIMEOUT]
    if per // 1024 > (col.NEVER - begin) // tokens:  # so that neither product nor sum below overflows
        return col.NEVER
    return int(min(col.NEVER, begin + scaled(per, tokens, 1024)))
