"""The page trie of a trace, compressed: runs of pages that the same requests contain are one segment.

Equal sets of requests mean equal pins and equal times of release, so that all a simulator must know of a segment's
pages is how many of them, from the front, are resident.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from kvsweep.cluster.shared.state import Ints
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


T = TypeVar("T")
_REMEMBERED: OrderedDict[tuple[int, ...], tuple[Trace, Any]] = OrderedDict()
_LOCK = threading.Lock()
_most = 0


@contextmanager
def remembering(most: int) -> Iterator[None]:
    """Let `remembered` keep its last `most` results: many runs share what they make of one trace."""
    global _most
    _most = most
    try:
        yield
    finally:
        with _LOCK:
            _most = 0
            _REMEMBERED.clear()


def chains(trace: Trace, page_size: int) -> Chains:
    """Return the chains of `trace` in pages of `page_size` [token]; they are not to be changed.

    Full pages without a name, at the end of a prompt, belong to the request alone.
    """
    key = (id(trace.blocks), id(trace.offsets), id(trace.input_tokens), trace.block_size, page_size)
    return remembered(key, trace, lambda: _chains(trace, page_size))


def remembered(key: tuple[int, ...], trace: Trace, make: Callable[[], T]) -> T:
    """Return what `make` makes of `trace`, or made before; `key` has the ids of the arrays it depends on.

    These are the very arrays, held as long as their ids are used: equal ones elsewhere are found out no cheaper.
    """
    if not _most:
        return make()
    with _LOCK:
        if key not in _REMEMBERED:
            _REMEMBERED[key] = trace, make()
            while len(_REMEMBERED) > _most:
                _REMEMBERED.popitem(last=False)
        _REMEMBERED.move_to_end(key)
        found: T = _REMEMBERED[key][1]
        return found


def _chains(trace: Trace, page_size: int) -> Chains:
    full = trace.input_tokens // page_size
    named = _named(trace, full, page_size)
    if named is None:
        named = _named(change_block_size(trace, page_size), full, page_size)
        assert named is not None  # pages are never cut
    ids, pages, rows = named
    first = offsets_of(rows)[:-1]
    counts = np.bincount(ids)[ids] if len(ids) else ids
    begins = np.ones(len(ids), dtype=bool)
    begins[1:] = counts[1:] != counts[:-1]
    begins[first[rows > 0]] = True
    starts = np.flatnonzero(begins)
    lengths = np.add.reduceat(pages, starts) if len(ids) else ids
    n_segments = np.diff(np.searchsorted(starts, np.append(first, len(ids))))
    own = full - _row_sums(pages, rows)
    # Unnamed pages go on from a last segment that is the request's alone already.
    last = np.cumsum(n_segments) - 1
    joined = own < 0
    joined[rows > 0] = (own[rows > 0] > 0) & (counts[(first + rows - 1)[rows > 0]] == 1)
    lengths[last[joined]] += own[joined]
    return _numbered(ids[starts], lengths, n_segments, np.where(joined, 0, own))


def _named(trace: Trace, full: Ints, page_size: int) -> tuple[Ints, Ints, Ints] | None:
    """Return block ids, the full pages of each of these blocks, and the number of them in each request.

    Blocks of several pages are taken as they are, as pages would be many more. None where that cannot be: for blocks
    smaller than a page, or of which one request has more pages than another.
    """
    parts = trace.block_size // page_size if trace.block_size else 1
    if trace.block_size and parts * page_size != trace.block_size:
        return None
    pages_of_row = np.minimum(full, trace.n_blocks * parts)
    rows = -(-pages_of_row // parts)
    ids = trace.blocks[_heads(trace.offsets, rows)].astype(np.int64)
    pages = np.full(len(ids), parts, dtype=np.int64)
    ends = offsets_of(rows)[1:][rows > 0] - 1
    pages[ends] = (pages_of_row - (rows - 1) * parts)[rows > 0]
    any_of = np.zeros(int(ids.max(initial=-1)) + 1, dtype=np.int64)
    any_of[ids] = pages
    return (ids, pages, rows) if (any_of[ids] == pages).all() else None


def _numbered(ids: Ints, lengths: Ints, counts: Ints, own: Ints) -> Chains:
    """Return the chains of `counts` segments a request, each known by an id, with `own` unnamed pages after them."""
    offsets = offsets_of(counts + (own > 0))
    at_end = offsets[1:][own > 0] - 1
    is_named = np.ones(offsets[-1], dtype=bool)
    is_named[at_end] = False
    chain, pages = np.empty(offsets[-1], dtype=np.int64), np.empty(offsets[-1], dtype=np.int64)
    chain[is_named], pages[is_named] = ids, lengths
    chain[at_end] = int(ids.max(initial=-1)) + 1 + np.arange(len(at_end))
    pages[at_end] = own[own > 0]
    chain = dense(chain)
    sizes = np.zeros(int(chain.max(initial=-1)) + 1, dtype=np.int64)
    sizes[chain] = pages
    return Chains(sizes, offsets, chain)


def _row_sums(values: Ints, counts: Ints) -> Ints:
    ends = np.append(0, np.cumsum(values))
    return np.asarray(ends[offsets_of(counts)[1:]] - ends[offsets_of(counts)[:-1]])


def _heads(offsets: Ints, counts: Ints) -> Ints:
    """Return the indices of the first `counts` items of each row."""
    begins = np.repeat(offsets[:-1] - offsets_of(counts)[:-1], counts)
    found: Ints = begins + np.arange(int(counts.sum()))
    return found
