"""How much of what the host holds is retrieved, and how much recomputed (paper/README §10)."""

from __future__ import annotations

import math

from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.clock import path_duration, prefill_duration
from kvsweep.cluster.shared.policy_functions import PolicyFunctions
from kvsweep.cluster.shared.state import State
from kvsweep.policies.context import LINEAR


def retrieved_pages(s: State, w: int, r: int, split: tuple[int, int, int], ask: PolicyFunctions) -> int:
    """Return how many of the ``split[1]`` host pages that follow ``split[0]`` device pages are retrieved.

    ``split[2]`` pages are all there are. -1 where the policy answers NaN, which notes what it was asked.
    """
    matched, following, pages = split
    if following == 0 or s.run[col.RETRIEVAL] == col.RETRIEVE_ALL:
        return following
    if s.run[col.RETRIEVAL] == col.RETRIEVE_NONE:
        return 0
    page = s.run[col.PAGE]
    missing = pages - matched - following
    tokens, context = (following + missing) * page, matched * page
    squares = (context + tokens) * (context + tokens) - context * context
    compute = (following + missing) / (prefill_duration(s, tokens, squares) * 1e-12)
    restore = following / (path_duration(s, col.H2D, following) * 1e-12)
    # It counts itself however long it waited: policies divide by the rate.
    waited_longer = s.request[r, col.ARRIVAL] <= s.run[col.NOW] - s.run[col.RATE_WINDOW]
    rate = (recent_arrivals(s, w) + int(waited_longer)) / (s.run[col.RATE_WINDOW] * 1e-12)
    hits = float(following)
    asked = (
        float(following + missing), float(missing), hits, rate, s.real[col.TARGET], restore, compute,
        0.0, hits, 0.0, math.inf, restore, restore,
        float(page), s.real[col.TOKEN_SECONDS], s.real[col.PAIR_SECONDS], s.real[col.RECOMPUTES],
        LINEAR, 1.0, 0.0,
    )  # fmt: skip
    reassigned = ask.decide(*asked)
    if math.isnan(reassigned):
        for i in range(len(asked)):
            s.real[col.ASKED + i] = asked[i]
        return -1
    if reassigned <= 0.0:
        return following
    return 0 if reassigned >= hits else following - int(math.floor(reassigned + 0.5))


def note_arrival(s: State, w: int, r: int) -> None:
    """Count request `r` among the recent arrivals at prefill worker `w`."""
    s.request[r, col.NEXT_ROUTED] = -1
    if s.prefill[w, col.RECENT] == 0:
        s.prefill[w, col.RECENT_FIRST] = r
    else:
        s.request[s.prefill[w, col.RECENT_LAST], col.NEXT_ROUTED] = r
    s.prefill[w, col.RECENT_LAST] = r
    s.prefill[w, col.RECENT] += 1


def recent_arrivals(s: State, w: int) -> int:
    """Return the number of arrivals at `w` within the last rate window."""
    since = s.run[col.NOW] - s.run[col.RATE_WINDOW]
    while s.prefill[w, col.RECENT] > 0 and s.request[s.prefill[w, col.RECENT_FIRST], col.ARRIVAL] <= since:
        s.prefill[w, col.RECENT_FIRST] = s.request[s.prefill[w, col.RECENT_FIRST], col.NEXT_ROUTED]
        s.prefill[w, col.RECENT] -= 1
    return int(s.prefill[w, col.RECENT])
