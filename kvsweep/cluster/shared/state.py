"""The state of a run: a few integer arrays that the core changes in place, allocating nothing.

So a run can pause at any instant and go on, and the same source runs compiled and as plain Python.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsweep.cluster.shared.columns import NEVER

Ints = NDArray[np.int64]
Reals = NDArray[np.float64]


class State(NamedTuple):
    """All of a run; column names are in `kvsweep.cluster.shared.columns`.

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
    """(slot, column) hash table of the entries there are, -1 for none; see `paper.segment_table`."""
    entry: Ints
    """(entry, column)."""
    chunk: Ints
    """(chunk, column)."""
    windows: Ints
    """(window) tokens delivered."""
    node: Ints
    """(node, column) nodes of the engine's trees, as all from here to `pair`."""
    bucket: Ints
    """(bucket) first of the nodes that share it."""
    tree: Ints
    """(tree, column) those of prefill workers, their routed sets, L3."""
    pair: Ints
    """(prefill worker x decode worker, column)."""
    due: Ints
    """Winner tree of resources (its root is ``due[1]``), then the time of the next event of each resource [ps].

    Resources in order: inbound, decode, H2D, D2H, prefill, arrivals; those of the engine are in its ``resources``.
    """

    @staticmethod
    def fixed() -> tuple[str, ...]:
        """Return the tables whose number of columns is a core's own, a constant of its code (`jit.reference`)."""
        return "request", "chain", "entry_of", "entry", "chunk", "node", "tree", "pair"


def winner_tree(n_resources: int, first: int) -> Ints:
    """Return the tree when all that is due is the arrival at `first` [ps], the event of the last resource."""
    leaves = 1 << (n_resources - 1).bit_length()
    tree = np.full(3 * leaves, NEVER, dtype=np.int64)
    tree[leaves : 2 * leaves] = np.arange(leaves)
    for place in range(leaves - 1, 0, -1):
        tree[place] = tree[2 * place]
    tree[2 * leaves + n_resources - 1] = first
    place = leaves + n_resources - 1
    while place > 1:
        place //= 2
        tree[place] = n_resources - 1
    return tree
