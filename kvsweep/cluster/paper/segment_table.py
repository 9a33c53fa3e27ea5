"""Which entry holds what a prefill worker knows of a segment: a hash table of the pairs that came about.

Of all pairs of a large cluster few do: a table of all of them would be 14 times as large for 1000 workers, and no
faster.
"""

from __future__ import annotations

from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.state import State


def entry_at(s: State, w: int, segment: int) -> int:
    """Return the entry of `segment` at prefill worker `w`, -1 where it has none yet."""
    return int(s.entry_of[_slot(s, w, segment), col.SLOT_ENTRY])


def new_entry(s: State, w: int, segment: int) -> int:
    """Return a new entry for `segment` at prefill worker `w`, which has none."""
    e = s.run[col.N_ENTRIES]
    s.run[col.N_ENTRIES] += 1
    slot = _slot(s, w, segment)
    s.entry_of[slot, col.SLOT_WORKER], s.entry_of[slot, col.SLOT_SEGMENT] = w, segment
    s.entry_of[slot, col.SLOT_ENTRY] = e
    s.entry[e, col.OF_WORKER], s.entry[e, col.OF_SEGMENT] = w, segment
    return int(e)


def _slot(s: State, w: int, segment: int) -> int:
    """Return the slot of a pair, or the free one it would take: the first of either from its hash on."""
    last = s.entry_of.shape[0] - 1
    # Fibonacci hashing of both numbers; neither products nor sum can overflow.
    mixed = int(w) * 0x9E3779B1 + int(segment) * 0x5851F42D
    slot = (mixed ^ (mixed >> 29)) & last
    while s.entry_of[slot, col.SLOT_ENTRY] >= 0 and not (
        s.entry_of[slot, col.SLOT_WORKER] == w and s.entry_of[slot, col.SLOT_SEGMENT] == segment
    ):
        slot = (slot + 1) & last
    return int(slot)
