"""What a run of the engine's core tells beyond one of the paper's, or otherwise (README §11)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import kvsweep.cluster.shared.columns as col
from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.inputs.config import ClusterConfig
from kvsweep.cluster.policies.plugins import Plugins
from kvsweep.cluster.shared.state import Ints, State
from kvsweep.policies.registry import Policy

CAUSES = ("prefill", "prefill_slots", "prefill_capacity", "h2d", "decode_capacity", "handoff", "decode", "join")
ASSUMPTIONS = (
    "Fidelity engine: SGLang 0.5.9 with HiCache. Workers act at the boundaries of their loops, whose own time "
    "is taken to be hidden behind steps; messages take no time; whole nodes of a radix tree are evicted; a decode "
    "worker reserves room for prompts before they are prefilled, and retracts; loading from the host overlaps with "
    "computing layer by layer."
)


def delays(state: State, request: Ints) -> NDArray[np.float64]:
    """Return the time each request waited, by cause [s]; (request, cause). `request` is (column, request)."""
    times = {cause: np.zeros(request.shape[1], dtype=np.int64) for cause in CAUSES}
    colocated = bool(state.run[eng.COLOCATED])
    slots, capacity = request[col.SLOTS_BEFORE], request[col.CAPACITY_BEFORE]
    since = request[col.ARRIVAL] if colocated else request[col.RESERVED]
    times["prefill_slots"], times["prefill_capacity"] = slots, capacity
    times["prefill"] = request[col.BEGAN] - since - slots - capacity
    times["h2d"] = request[eng.LOADING]
    if not colocated:
        times["decode_capacity"] = request[col.RESERVED] - request[col.ARRIVAL]
        stretched = request[col.HANDED] - request[col.CHUNK_BEGAN] - request[col.CHUNK_ALONE]
        times["handoff"] = request[col.CHUNK_BEGAN] - request[col.CHUNK_QUEUED] + stretched
        times["decode"] = request[col.JOINED] - request[col.HANDED]
        times["join"] = request[col.FIRST_TOKEN] - request[eng.FIRST_AT_DECODE]
    table = np.stack([times[cause] for cause in CAUSES], axis=1) * 1e-12
    table[request[col.REJECTED] == 1] = np.nan
    return np.asarray(table, dtype=np.float64)


def hits(request: Ints) -> Ints:
    """Return the pages of each request found on device, host, L3 [page]; (request, tier). `request`: as in `delays`."""
    stored = request[eng.STORED_HITS]
    return np.stack([request[col.MATCHED], request[col.RETRIEVED] - stored, stored], axis=1)


def extensions(config: ClusterConfig, policy: Policy, plugins: Plugins) -> list[str]:
    """Return what a run has that no engine does."""
    found = {
        f"retention: {config.retention.policy}": config.retention.policy != "none",
        f"retrieval: {policy.name}": policy.name != "default_policy" or not policy.origin.startswith("built in"),
        f"eviction: {config.eviction.policy}": config.eviction.policy not in ("lru", "fifo", "lfu"),
        f"gateway: {config.gateway.policy}": plugins.gateway is not None,
    }
    return [name for name, there in found.items() if there]


def busy_times(state: State, end: int) -> tuple[Ints, Ints]:
    """Return the time that prefill and decode workers computed up to `end` [ps], the last finish."""
    decode = state.decode
    # After it there may be a wasted step of each worker.
    over = np.maximum(0, decode[:, eng.LAST_END] - np.maximum(decode[:, col.BOUNDARY], end))
    return state.prefill[:, col.BUSY_TIME], decode[:, col.BUSY_TIME] - over
