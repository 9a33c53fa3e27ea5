"""The idle time to live that pays: chosen before the run from the gaps between uses of the same content (§6)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvsweep.cluster.shared.segments import Chains


@dataclass(frozen=True, slots=True)
class Gaps:
    """How long content waits for its next use, every use of every page once; on the dim `gap`, ascending."""

    seconds: NDArray[np.float64]
    """Gaps that end [s]."""
    pages: NDArray[np.int64]
    """How many uses of a page have each gap."""
    n_last: int
    """Uses of a page that nobody follows, whose gap is infinite."""


def gaps(arrival: NDArray[np.float64], found: Chains, n: int) -> Gaps:
    """Return the gaps between requests that contain the same page, in the first `n` requests; `arrival` is in [s]."""
    chain = found.chain[: found.offsets[n]]
    users = np.repeat(np.arange(n), np.diff(found.offsets[: n + 1]))
    order = np.argsort(chain, kind="stable")
    segment, times = chain[order], arrival[users[order]]
    follows = segment[1:] == segment[:-1]
    seconds = np.diff(times)[follows]
    pages = found.length[segment[1:][follows]]
    by_length = np.argsort(seconds, kind="stable")
    return Gaps(seconds[by_length], pages[by_length], int(found.length[np.unique(chain)].sum()))


def best_ttl(known: Gaps, saved_seconds: float, cost_per_second: float) -> float:
    """Return the τ [s] of greatest F(τ) · saved − cost · E[min(X, τ)], X the gap; of equal ones the greatest.

    Between two gaps nothing is gained and holding costs, so that only gaps can be best, 0, and infinity if holding is
    free.
    """
    if cost_per_second == 0.0:
        return math.inf
    ends = np.append(known.seconds[1:] != known.seconds[:-1], True)[: len(known.seconds)]
    held = np.cumsum(known.pages * known.seconds)[ends]
    returned = np.cumsum(known.pages)[ends]
    at, total = known.seconds[ends], int(known.pages.sum()) + known.n_last
    if not len(at) or at[0] > 0.0:
        at, held, returned = (np.append(0, each) for each in (at, held, returned))
    gain = returned * saved_seconds - cost_per_second * (held + at * (total - returned))
    return float(at[len(at) - 1 - int(gain[::-1].argmax())])
