"""The page trie of a trace, compressed: runs of pages that the same requests contain are one segment.

Equal sets of requests mean equal pins and equal times of release, so that all a simulator must know of a segment's
pages is how many of them, from the front, are resident.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvsweep.cluster.state import Ints
from kvsweep.trace.convert import change_block_size
from kvsweep.trace.model import Trace, dense, offsets_of


@dataclass(frozen=True, slots=True)
class Chains:
    """The segments of each request's prompt."""

    length: Ints
    """Pages of each segment [page]; (segment)."""
    offsets: Ints
    """Request i has the segments ``chain[offsets[i]:offsets[i + 1]]``; (request + 1)."""
    chain: Ints
    """Segments of all requests, one after the other."""


def chains(trace: Trace, page_size: int) -> Chains:
    """Return the chains of `trace` in pages of `page_size` [token].

    Full pages without a name, at the end of a prompt, belong to the request alone.
    """
    if trace.block_size:
        trace = change_block_size(trace, page_size)
    full = trace.input_tokens // page_size
    named = np.minimum(trace.n_blocks, full)
    ids = trace.blocks[_heads(trace.offsets, named)].astype(np.int64)
    first = offsets_of(named)[:-1]
    counts = np.bincount(ids)[ids] if len(ids) else ids
    begins = np.ones(len(ids), dtype=bool)
    begins[1:] = counts[1:] != counts[:-1]
    begins[first[named > 0]] = True
    starts = np.flatnonzero(begins)
    lengths = np.diff(np.append(starts, len(ids)))
    per_request = np.add.reduceat(np.append(begins, False), first) * (named > 0) if len(ids) else named * 0
    own = full - named
    # Unnamed pages go on from a last segment that is the request's alone already.
    last = np.cumsum(per_request) - 1
    joined = (own > 0) & (named > 0) & (counts[np.maximum(first + named - 1, 0)] == 1) if len(ids) else own < 0
    lengths[last[joined]] += own[joined]
    added = (own > 0) & ~joined
    offsets = offsets_of(per_request + added)
    chain = np.empty(offsets[-1], dtype=np.int64)
    length = np.empty(offsets[-1], dtype=np.int64)
    at_end = offsets[1:][added] - 1
    is_named = np.ones(len(chain), dtype=bool)
    is_named[at_end] = False
    chain[is_named], length[is_named] = ids[starts], lengths
    chain[at_end] = (int(ids.max()) + 1 if len(ids) else 0) + np.arange(len(at_end))
    length[at_end] = own[added]
    chain = dense(chain)
    sizes = np.zeros(int(chain.max(initial=-1)) + 1, dtype=np.int64)
    sizes[chain] = length
    return Chains(sizes, offsets, chain)


def _heads(offsets: Ints, counts: Ints) -> Ints:
    """Return the indices of the first `counts` items of each row."""
    begins = np.repeat(offsets[:-1] - offsets_of(counts)[:-1], counts)
    found: Ints = begins + np.arange(int(counts.sum()))
    return found
