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

    Few arrays, as each of them is several arguments of every compiled function. int64 throughout, as mixed widths
    multiply Numba's specialisations; but for the largest table, and for real numbers.
    """

    run: Ints
    """Scalars."""
    real: Reals
    """Real scalars, and occupancy: device and host pool of each prefill worker in turn, then decode pools."""
    request: Ints
    """(request, column)."""
    prefill: Ints
    """(prefill worker, column)."""
    decode: Ints
    """(decode worker, column)."""
    lists: Ints
    """Lists of several kinds one after the other; scalars of the run say where each begins.

    SESSIONS: worker of each session, of each side. TOUCHED: workers to dispatch, of each side. PENDING: heap of
    arrivals (`arrivals`). ORACLE, for ``belady``: place in this array of the next use of each segment; then the
    requests that use each of them, and NEVER.
    """
    chain: Ints
    """(place, column) segments of the prompts of all requests."""
    entry_of: NDArray[np.int32]
    """(slot, column) hash table of the entries there are, -1 for none; see `entries`."""
    entry: Ints
    """(entry, column)."""
    chunk: Ints
    """(chunk, column)."""
    windows: Ints
    """(window) tokens delivered."""
    due: Ints
    """Winner tree of resources (its root is ``due[1]``), then the time of the next event of each resource [ps].

    Resources in order: inbound, decode, H2D, D2H, prefill, arrivals.
    """
