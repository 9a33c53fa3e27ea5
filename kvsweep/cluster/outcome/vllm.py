"""What a run of vLLM workers tells otherwise than others (README, In a cluster)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.state import Ints, State
from kvsweep.cluster.vllm import columns as c

CAUSES = ("sequences", "token_budget", "blocks", "preempted", "step")
ASSUMPTIONS = (
    "Colocated vLLM v1 workers: prompts and answers in one mixed step, at most two steps in flight, preemption by "
    "recomputing; step times from a step profile. CPU time of the engine is taken to be hidden behind steps, messages "
    "take no time, and answers are KV that no later prompt names."
)


def delays(_: State, request: Ints) -> NDArray[np.float64]:
    """Return the time each request waited, by cause [s]; (request, cause). `request` is (column, request)."""
    blocked = request[c.BLOCKED_FOR : c.BLOCKED_FOR_BLOCKS + 1]
    step = request[col.BEGAN] - request[col.ARRIVAL] - blocked.sum(axis=0)
    table = np.column_stack((*blocked, request[c.PREEMPTED_FOR], step)) * 1e-12
    table[request[col.REJECTED] == 1] = np.nan
    return np.asarray(table)


def hits(request: Ints) -> Ints:
    """Return the tokens of each request found in its worker's cache when it was first admitted [token].

    `request`: as in `delays`.
    """
    return np.asarray(request[c.HIT])
