"""Smaller traces that keep the reuse of the whole: complete sessions and document groups or none of them."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b

import numpy as np

from kvsweep.errors import InputError
from kvsweep.trace.model import Ints, Note, Trace

_COMMON = 0.05
"""A block that more than this share of the requests has is a system prompt, not a document [1]."""


def units(trace: Trace) -> tuple[Ints, str]:
    """Return what each request is kept or left out with, and how that was found.

    Its group; else its session; else the requests that share its first block which is not common to all.
    """
    if (trace.group >= 0).any():
        return _labels(trace.group), "groups"
    if (trace.session >= 0).any():
        return _labels(trace.session), "sessions"
    if len(trace.blocks):
        return _labels(_distinct_block(trace)), "requests that share their first block"
    return np.arange(len(trace), dtype=np.int64), "requests"


def hashed_sample(trace: Trace, ratio: float, seed: int = 0) -> Trace:
    """Return the requests of about `ratio` of the units, chosen by a hash of unit and `seed`.

    A larger ratio keeps all that a smaller one keeps. Source: seeds/compositional-cluster-model §V-A.
    """
    unit, how = units(trace)
    numbers, inverse = np.unique(unit, return_inverse=True)
    kept = np.array([_fraction(int(number), seed) < ratio for number in numbers], dtype=bool)
    return _kept(trace, kept[inverse], f"sample of {ratio:.4g} of the {how}, seed {seed}")


def interquartile_sample(trace: Trace) -> Trace:
    """Return the sessions whose number of turns lies within the quartiles of all sessions, bounds included."""
    if not (trace.session >= 0).any():
        raise InputError("the trace has no sessions; allowed for the interquartile range: one that has")
    turns = np.bincount(trace.session[trace.session >= 0])
    low, high = np.percentile(turns, [25, 75])
    keep = (trace.session >= 0) & ((turns >= low) & (turns <= high))[trace.session]
    return _kept(trace, keep, f"sessions outside the interquartile range of length ({low:g} to {high:g} turns)")


def _kept(trace: Trace, keep: np.ndarray[tuple[int], np.dtype[np.bool_]], reason: str) -> Trace:
    if not keep.any():
        raise InputError(f"{reason}: keeps none of {len(trace)} requests; allowed: a share that keeps some")
    note = Note("dropped", reason, int((~keep).sum()))
    return replace(trace.select(keep), notes=(*trace.notes, note))


def _labels(own: Ints) -> Ints:
    """Return `own` with each request that has none as a unit of its own."""
    alone = own < 0
    return np.where(alone, len(own) + np.arange(len(own)), own)


def _distinct_block(trace: Trace) -> Ints:
    """Return the first block of each request that is not common, -1 where there is none."""
    requests_with = np.bincount(trace.blocks)  # a chained id stands in a prompt once
    rare = np.flatnonzero(requests_with[trace.blocks] <= max(1.0, _COMMON * len(trace)))
    rows, first = np.unique(trace.rows()[rare], return_index=True)
    block = np.full(len(trace), -1, dtype=np.int64)
    block[rows] = trace.blocks[rare[first]]
    return block


def _fraction(number: int, seed: int) -> float:
    digest = blake2b(f"{seed}:{number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64
