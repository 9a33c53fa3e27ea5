"""The idle entry of least key by a policy from a file."""

from __future__ import annotations

from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.clock import prefill_duration
from kvsweep.cluster.shared.policy_functions import PolicyFunctions, Score
from kvsweep.cluster.shared.state import State


def victim(s: State, w: int, tier: int, ask: PolicyFunctions) -> int:
    """Return the entry without resident children of least key; notes a fault where a key is no number."""
    e = s.prefill[w, col.IDLE_LIST + 2 * tier]
    best, least = -1, 0.0
    while e >= 0:
        if s.entry[e, col.CHILDREN + tier] == 0:
            key = answer(s, tier, e, s.run[col.NOW], ask.key)
            if key != key:
                s.run[col.FAULT] = col.FAULT_EVICTION
            if best < 0 or key < least:
                best, least = e, key
        e = s.entry[e, col.AFTER + tier]
    return int(best)


def answer(s: State, tier: int, e: int, now: int, score: Score) -> float:
    """Return what `score` says of idle entry `e` in `tier` at `now` [ps], from the fields of `plugins.IdleContext`."""
    own, page = s.entry[e], s.run[col.PAGE]
    begin, end = own[col.DEPTH] * page, (own[col.DEPTH] + own[col.LENGTH]) * page
    return score(
        float(tier), float(own[col.LENGTH]), float(own[col.DEVICE + tier]), float(own[col.DEPTH]),
        float(own[col.USES]), own[col.RELEASED] * 1e-12, own[col.BORN + tier] * 1e-12,
        prefill_duration(s, end - begin, end * end - begin * begin) * 1e-12, float(page), now * 1e-12,
    )  # fmt: skip
