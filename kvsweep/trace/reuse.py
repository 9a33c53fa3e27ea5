"""Reuse in a trace: what an infinite cache hits, and LRU caches of every size at once, by stack distances.

A request first looks up the longest prefix of its blocks that is cached, then touches all its blocks from the first
to the last; LRU evicts the block touched longest ago. All blocks are touched whatever the size, so a block is in a
cache of C blocks exactly if fewer than C other blocks were touched since (Mattson et al., 1970).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvsweep.trace.model import Floats, Ints, Trace


@dataclass(frozen=True, slots=True)
class Reuse:
    """Accesses to segments: blocks of a prompt that the same requests share, which are always touched together."""

    request: Ints
    """Request of each access; (access)."""
    n_blocks: Ints
    """Blocks of the segment; (access)."""
    distance: Ints
    """Distinct blocks touched since the first block of the segment was, -1 for never; (access)."""
    seconds: Floats
    """Time since the segment was touched [s], NaN for never; (access)."""


def reuse(trace: Trace) -> Reuse:
    """Return every access of the trace with its distance to the one before.

    O(A log A) in the number of accesses A, about four a request in practice, whatever the block size.
    """
    starts = _segment_starts(trace)
    segment = trace.blocks[starts].astype(np.int64)
    n_blocks = np.diff(np.append(starts, len(trace.blocks)))
    request = trace.rows()[starts]
    before = _previous(segment)
    since = np.where(before >= 0, trace.arrival[request] - trace.arrival[request[before]], np.nan)
    first = np.searchsorted(request, request)  # first access of the request: lookups precede its touches
    distance = _weight_since(before, n_blocks, first) + n_blocks - 1
    return Reuse(request, n_blocks, np.where(before >= 0, distance, -1), since)


def hit_tokens(trace: Trace, found: Reuse, capacity: int | None) -> Ints:
    """Return the prompt tokens of each request an LRU cache of `capacity` blocks has, None for infinite; (request).

    The prefix ends at the first segment that is not cached as a whole: its first block was touched first and is the
    first to go.
    """
    resident = (found.distance >= 0) & (True if capacity is None else found.distance < capacity)
    misses = np.cumsum(~resident)
    first = np.searchsorted(found.request, found.request)
    unbroken: NDArray[np.bool_] = misses == misses[first] - ~resident[first]
    blocks = np.bincount(found.request, weights=found.n_blocks * unbroken, minlength=len(trace)).astype(np.int64)
    return np.minimum(blocks * trace.block_size, trace.input_tokens)


def hit_ratios(trace: Trace, found: Reuse, capacities: Sequence[int | None]) -> list[float]:
    """Return the token-weighted hit ratio of LRU caches of `capacities` [block], None for infinite [1]."""
    total = int(trace.input_tokens.sum())
    return [int(hit_tokens(trace, found, capacity).sum()) / total for capacity in capacities]


def block_distances(found: Reuse) -> tuple[Ints, Floats]:
    """Return distance [block] and time [s] of every reuse of a block, one after the other."""
    again = found.distance >= 0
    counts, distance = found.n_blocks[again], found.distance[again]
    begins = np.repeat(np.cumsum(counts) - counts, counts)
    place = np.arange(int(counts.sum())) - begins
    return np.repeat(distance, counts) - place, np.repeat(found.seconds[again], counts)


def _segment_starts(trace: Trace) -> Ints:
    """Return where segments begin in `trace.blocks`.

    The requests that have a block also have the one before it, so both have the same if they have equally many.
    """
    requests_with = np.bincount(trace.blocks) if len(trace.blocks) else np.zeros(0, dtype=np.int64)
    counts = requests_with[trace.blocks]
    begins = np.ones(len(counts), dtype=bool)
    begins[1:] = counts[1:] != counts[:-1]
    begins[trace.offsets[:-1][trace.n_blocks > 0]] = True
    return np.flatnonzero(begins)


def _previous(segment: Ints) -> Ints:
    """Return the access to the same segment before each access, -1 for none."""
    order = np.argsort(segment, kind="stable")
    before = np.full(len(segment), -1, dtype=np.int64)
    again = segment[order[1:]] == segment[order[:-1]]
    before[order[1:][again]] = order[:-1][again]
    return before


def _weight_since(before: Ints, weight: Ints, until: Ints) -> Ints:
    """Return the blocks of the distinct segments touched after access ``before[i]`` and ahead of access ``until[i]``.

    These are the accesses in between whose own predecessor lies at or ahead of ``before[i]``. All accesses up to
    there have such a predecessor, so they are counted among all ahead of ``until[i]`` and taken off again.
    """
    up_to = np.concatenate(([0], np.cumsum(weight)))
    return _weight_below(before + 1, weight, until, before + 2) - up_to[before + 1]


def _weight_below(values: Ints, weight: Ints, end: Ints, bound: Ints) -> Ints:
    """Return the sum of ``weight[j]`` over ``j < end[i]`` with ``values[j] < bound[i]``, by a wavelet matrix.

    Bit by bit from the highest, values are parted into those with a 0 and those with a 1; a query follows its own
    bits and adds up the zeros where it has a one. Ranges stay contiguous as the parting is stable.
    """
    total = np.zeros(len(end), dtype=np.int64)
    left, right = np.zeros(len(end), dtype=np.int64), end.copy()
    for bit in range(int(max(values.max(initial=0), bound.max(initial=0))).bit_length() - 1, -1, -1):
        zero = (values >> bit & 1) == 0
        rank = np.concatenate(([0], np.cumsum(zero)))
        weights = np.concatenate(([0], np.cumsum(weight * zero)))
        one = (bound >> bit & 1) == 1
        total += np.where(one, weights[right] - weights[left], 0)
        left = np.where(one, rank[-1] + left - rank[left], rank[left])
        right = np.where(one, rank[-1] + right - rank[right], rank[right])
        values = np.concatenate((values[zero], values[~zero]))
        weight = np.concatenate((weight[zero], weight[~zero]))
    return total
