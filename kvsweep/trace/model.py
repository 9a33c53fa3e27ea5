"""A trace of requests in arrays: what arrives when, how long it is, and which KV blocks its prompt is made of."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Blocks = NDArray[np.int32]
NoteKind = Literal["taken", "doubtful", "dropped", "assumed"]


@dataclass(frozen=True, slots=True)
class Note:
    """What was done to a trace that its file did not say: how many requests or lines it concerned.

    ``taken`` tells how the whole file was read, ``doubtful`` what speaks against that.
    """

    kind: NoteKind
    reason: str
    count: int

    def __str__(self) -> str:
        return f"{self.kind} ({self.count}): {self.reason}"


_FIRST = {"taken": 0, "doubtful": 1}
"""Kinds of notes that come before others."""


class Notes:
    """Collects what was taken, dropped and assumed, counted by reason."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[NoteKind, str]] = Counter()

    def taken(self, reason: str, count: int = 1) -> None:
        """Count requests that were read in a way the file does not state."""
        self._counts["taken", reason] += count

    def doubtful(self, reason: str, count: int = 1) -> None:
        """Count requests for which something speaks against the way they were read."""
        self._counts["doubtful", reason] += count

    def dropped(self, reason: str, count: int = 1) -> None:
        """Count something that was left out."""
        self._counts["dropped", reason] += count

    def assumed(self, reason: str, count: int = 1) -> None:
        """Count something the file does not say."""
        self._counts["assumed", reason] += count

    def listed(self) -> tuple[Note, ...]:
        """Return how the file was read, what speaks against it, and the rest in the order in which it came up."""
        found = [Note(kind, reason, count) for (kind, reason), count in self._counts.items() if count]
        return tuple(sorted(found, key=lambda note: _FIRST.get(note.kind, len(_FIRST))))


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in the order of their arrival; arrays are on the dim `request` (n) unless said otherwise.

    Block ids are dense from 0 in order of first appearance and chained: equal ids have equal prefixes, so the
    prompts form a forest and the longest common prefix of two of them is that of their id lists.
    """

    arrival: Floats
    """Time after the first arrival, never decreasing [s]."""
    input_tokens: Ints
    """Length of the prompt, at least 1 [token]."""
    output_tokens: Ints
    """Length of the answer, at least 1 [token]."""
    session: Ints
    """Number of the session from 0, whose turns follow each other; -1 for none."""
    turn: Ints
    """Place in the session from 0."""
    group: Ints
    """Number of the group that shares a document, from 0; -1 for none."""
    think: Floats
    """Closed loop: pause after the previous turn of the session is complete [s]; NaN where there is none."""
    block_size: int
    """Tokens in a block [token]; 0 for a trace without block ids."""
    offsets: Ints
    """Request i has the blocks ``blocks[offsets[i]:offsets[i + 1]]``; (n + 1)."""
    blocks: Blocks
    """Block ids of all prompts, one after the other; the last block of a prompt may be partly filled.

    Where it is known how an answer goes on in later prompts, the blocks of a request go on over its answer.
    """
    source: str = ""
    """Format and file the trace was read from, or the generator and its parameters."""
    notes: tuple[Note, ...] = field(default=(), compare=False)
    """What was dropped and assumed on the way to this trace."""

    def __len__(self) -> int:
        return len(self.arrival)

    @property
    def duration(self) -> float:
        """Return the time from the first arrival to the last [s]."""
        return float(self.arrival[-1] - self.arrival[0]) if len(self) else 0.0

    @property
    def has_sessions(self) -> bool:
        """Return whether any request belongs to a session."""
        return bool((self.session >= 0).any())

    @property
    def n_blocks(self) -> Ints:
        """Return the number of block ids of each request; (n)."""
        return np.diff(self.offsets)

    @property
    def n_prompt_blocks(self) -> Ints:
        """Return the number of block ids of each request that begin within its prompt; (n)."""
        size = self.block_size
        return np.minimum(self.n_blocks, -(-self.input_tokens // size)) if size else self.n_blocks

    def rows(self) -> Ints:
        """Return the request each entry of `blocks` belongs to; (len(blocks))."""
        return np.repeat(np.arange(len(self)), self.n_blocks)

    def shortest(self) -> Trace:
        """Return the trace of the request that is shortest, prompt and answer together."""
        return self.select(np.array([np.argmin(self.input_tokens + self.output_tokens)]))

    def select(self, keep: NDArray[Any]) -> Trace:
        """Return the trace of the requests `keep` (mask or ascending indices), everything numbered anew."""
        chosen = np.arange(len(self))[keep]
        mask = np.zeros(len(self), dtype=bool)
        mask[chosen] = True
        arrival = self.arrival[chosen]
        return replace(
            self,
            arrival=arrival - (arrival[0] if len(arrival) else 0.0),
            input_tokens=self.input_tokens[chosen],
            output_tokens=self.output_tokens[chosen],
            session=dense(self.session[chosen]),
            turn=self.turn[chosen],
            group=dense(self.group[chosen]),
            think=self.think[chosen],
            offsets=offsets_of(self.n_blocks[chosen]),
            blocks=dense(self.blocks[mask[self.rows()]].astype(np.int64)).astype(np.int32),
        )


def offsets_of(counts: NDArray[Any]) -> Ints:
    """Return the CSR offsets of rows with `counts` entries; (n + 1)."""
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def dense(ids: Ints) -> Ints:
    """Return `ids` numbered from 0 in order of first appearance; negative ids (none) stay -1."""
    known = ids[ids >= 0]
    if len(known) and int(known.max()) > 4 * len(known) + 1024:
        known = np.unique(known, return_inverse=True)[1]
    if not len(known):
        return np.full(len(ids), -1, dtype=np.int64)
    first = np.full(int(known.max()) + 1, len(known), dtype=np.int64)
    # Of several writes to one place the last one stays: written backwards, that is the first appearance.
    first[known[::-1]] = np.arange(len(known) - 1, -1, -1)
    number = np.empty(len(first), dtype=np.int64)
    number[np.argsort(first, kind="stable")] = np.arange(len(first))
    result = np.full(len(ids), -1, dtype=np.int64)
    result[ids >= 0] = number[known]
    return result


def expand_runs(starts: Ints, counts: Ints) -> Ints:
    """Return ``start, start + 1, …`` (`count` of them) of every run, one after the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    ids: Ints = np.arange(total, dtype=np.int64) + np.repeat(starts - (ends - counts), counts)
    return ids


def run_lengths(offsets: Ints, blocks: Blocks) -> tuple[Ints, Ints, Ints]:
    """Return `blocks` as runs of consecutive ids that stay within a request: starts, counts, CSR offsets of the runs.

    The inverse of `expand_runs`. Prompts that share prefixes are a few runs each, however long they are.
    """
    begins = np.ones(len(blocks), dtype=bool)
    begins[1:] = np.diff(blocks) != 1
    begins[offsets[:-1][np.diff(offsets) > 0]] = True
    where = np.flatnonzero(begins)
    counts = np.diff(np.append(where, len(blocks)))
    return blocks[where].astype(np.int64), counts, np.searchsorted(where, offsets).astype(np.int64)
