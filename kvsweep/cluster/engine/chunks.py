"""Rows of the tables of chunks and nodes that are not in use."""

from __future__ import annotations

from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.state import State


def take_chunk(s: State) -> int:
    """Return a row of the chunk table."""
    k = s.run[eng.FREE_CHUNK]
    if k >= 0:
        s.run[eng.FREE_CHUNK] = s.chunk[k, col.CHUNK_NEXT]
        return int(k)
    s.run[col.N_CHUNKS] += 1
    return int(s.run[col.N_CHUNKS] - 1)


def give_chunk(s: State, k: int) -> None:
    """Give a row of the chunk table back."""
    s.chunk[k, col.CHUNK_NEXT] = s.run[eng.FREE_CHUNK]
    s.run[eng.FREE_CHUNK] = k


def is_short(s: State, nodes: int, chunks: int) -> bool:
    """Return whether fewer than so many rows of nodes and of chunks were never used."""
    return bool(s.run[eng.N_NODES] + nodes > s.node.shape[0] or s.run[col.N_CHUNKS] + chunks > s.chunk.shape[0])
