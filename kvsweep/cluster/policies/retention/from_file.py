"""How long an idle entry stays by a policy from a file, which is asked once for each time that it is idle."""

from __future__ import annotations

import math

from kvsweep.cluster.policies.eviction.from_file import answer
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.policy_functions import PolicyFunctions
from kvsweep.cluster.shared.state import State

LONGEST = 1 << 61
"""From here on a time to live is for ever [ps], so that the end of a shorter one is a time the clock can hold."""


def picoseconds(s: State, seconds: float) -> int:
    """Return the answer `seconds` of a policy [ps], 1 at least, NEVER from `LONGEST` on; notes a fault if it is NaN."""
    if math.isnan(seconds):
        s.run[col.FAULT] = col.FAULT_RETENTION
        return col.NEVER
    if seconds * 1e12 >= float(LONGEST):
        return col.NEVER
    return 1 if seconds <= 0.0 else max(1, int(math.floor(seconds * 1e12 + 0.5)))


def next_check(s: State, time: int) -> int:
    """Return the first check after `time` [ps]."""
    return int((time // s.run[col.CHECK] + 1) * s.run[col.CHECK])


def ask_idle(s: State, w: int, tier: int, tick: int, ask: PolicyFunctions) -> None:
    """Ask for the idle entries of a tier of worker `w` that had their first check by `tick`, as of that check."""
    check = s.run[col.CHECK]
    e = s.prefill[w, col.IDLE_LIST + 2 * tier]
    while e >= 0:
        first = next_check(s, s.entry[e, col.RELEASED])
        if s.entry[e, col.DROP_AT + tier] < 0 and first <= tick:
            ttl = picoseconds(s, answer(s, tier, e, first, ask.ttl))
            end = s.entry[e, col.RELEASED] + ttl
            s.entry[e, col.DROP_AT + tier] = -(-end // check) * check if ttl < col.NEVER else col.NEVER
        e = s.entry[e, col.AFTER + tier]


def begin_idle(s: State, w: int, tier: int, e: int) -> None:
    """Have entry `e` of worker `w`, which is released, asked for at the next check."""
    s.entry[e, col.DROP_AT + tier] = -1
    s.prefill[w, col.NEXT_DROP + tier] = min(s.prefill[w, col.NEXT_DROP + tier], next_check(s, s.run[col.NOW]))


def outlive(s: State, w: int, tier: int, e: int, check: int) -> None:
    """Note that the last entry below entry `e` is gone, and that `check` is the first that may drop it."""
    if s.entry[e, col.DROP_AT + tier] >= 0:
        s.entry[e, col.DROP_AT + tier] = max(s.entry[e, col.DROP_AT + tier], check)
        s.prefill[w, col.NEXT_DROP + tier] = min(s.prefill[w, col.NEXT_DROP + tier], s.entry[e, col.DROP_AT + tier])
