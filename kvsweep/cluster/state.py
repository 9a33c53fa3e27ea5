"""The state of a run: a few integer arrays that the core changes in place, allocating nothing.

So a run can pause at any instant and go on, and the same source runs compiled and as plain Python.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Reals = NDArray[np.float64]


class State(NamedTuple):
    """All of a run; column names are in `kvsweep.cluster.columns`.

    int64 throughout, as mixed widths multiply Numba's specialisations; but for the largest table, and for real sums.
    """

    clock: Ints
    settings: Ints
    real: Reals
    """Settings that are real numbers."""
    request: Ints
    """(request, column)."""
    draws: Ints
    """(request, 4) random numbers of the gateway."""
    prefill: Ints
    """(prefill, column)."""
    decode: Ints
    """(decode, column)."""
    turn: Ints
    """(2) next worker of each side in turn."""
    sessions: Ints
    """(2, session) worker of each session."""
    queues: Ints
    """(prefill, queue, head | tail)."""
    decode_queues: Ints
    """(decode, queue, head | tail)."""
    step: Ints
    """(prefill, place) requests of the step."""
    batch: Ints
    """(decode, place) requests that decode."""
    growth: Ints
    """(decode, residue) sequences that need a page at the steps of this residue."""
    inbound: Ints
    """(decode, place) sources that are sending."""
    idle: Ints
    """(prefill, tier, head | tail) of the idle entries in order of release."""
    segment: Ints
    """(segment) length [page]."""
    chain_offsets: Ints
    """(request + 1) where the chain of each request begins in `chain` and `chain_entry`."""
    chain: Ints
    """Segments of all chains."""
    chain_entry: Ints
    """Entries of these segments at the prefill worker of the request."""
    entry_of: NDArray[np.int32]
    """(prefill, segment) entry, -1 for none yet."""
    entry: Ints
    """(entry, column)."""
    chunk: Ints
    """(chunk, column)."""
    prefill_times: Ints
    """Fixed, per token, per pair, least [fs]."""
    decode_times: Ints
    """(decode, batch size, 2) base, per context token [fs]."""
    path_times: Ints
    """(path, 2) setup [fs], per byte [1e-18 s]."""
    domain: Ints
    """(7, 2) measured ranges."""
    occupancy: Reals
    """(2 prefill + decode, 2): device and host pool of each prefill worker in turn, then decode pools."""
    windows: Ints
    """(window) tokens delivered."""
    when: Ints
    """(resource) time of its next event [ps]: inbound, decode, H2D, D2H, prefill, arrivals."""
    tree: Ints
    """Winner tree over `when`; its root is ``tree[1]``."""
    dirty_prefill: Ints
    """Workers to look at in this instant."""
    dirty_decode: Ints
