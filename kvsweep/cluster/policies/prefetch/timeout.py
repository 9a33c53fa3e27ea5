"""A request waits for a time that grows with what it wants."""

from __future__ import annotations

from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.clock import scaled


def waits_until(since: int, tokens: int, per: int) -> int:
    """Return when the time for `tokens` is over, `per` [ps] for 1024 of them [ps]; NEVER if the clock ends before."""
    if per // 1024 > (col.NEVER - since) // tokens:  # so that neither product nor sum below overflows
        return col.NEVER
    return int(min(col.NEVER, since + scaled(per, tokens, 1024)))
