"""Requests, one by one in any order, become a `Trace`: sorted, numbered densely, prefix-chained."""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable, Sequence
from itertools import repeat

import numpy as np

from kvsweep.errors import InputError
from kvsweep.trace.model import Ints, Notes, Trace, dense, expand_runs, offsets_of

MAX_BLOCKS = 2**28
"""Most block ids a trace may have: 1 GiB of them."""
_NO_OUTPUT = "output length 0 taken as 1: prefill itself yields a token"


class Builder:
    """Collects the requests of one file or generator; `finish` makes the trace."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.total_blocks = 0
        self._arrival, self._think = array("d"), array("d")
        self._input, self._output = array("q"), array("q")
        self._session, self._group = array("q"), array("q")
        self._starts, self._counts, self._runs = array("Q"), array("q"), array("q")
        self._numbers: dict[tuple[str, Hashable], int] = {}

    def __len__(self) -> int:
        return len(self._arrival)

    def add(
        self,
        arrival: float,
        lengths: tuple[int, int],
        *,
        runs: tuple[Sequence[int], Sequence[int]] | None = None,
        session: Hashable = None,
        group: Hashable = None,
        think: float = math.nan,
    ) -> bool:
        """Add a request of `lengths` (input, output) [token] at `arrival` [s]; return whether it was kept.

        `runs` are the first ids, of 64 bits without sign, and the lengths of runs of consecutive block ids; lengths
        may be left empty for runs of one. `session` and `group` are labels, None for none; `think` in [s].
        """
        n_input, n_output = lengths
        if n_input == 0:
            self.notes.dropped("requests with an empty prompt")
            return False
        if n_output == 0:
            self.notes.assumed(_NO_OUTPUT)
        self._arrival.append(arrival)
        self._input.append(n_input)
        self._output.append(max(n_output, 1))
        self._session.append(self._number("session", session))
        self._group.append(self._number("group", group))
        self._think.append(think)
        starts, counts = runs if runs is not None else ((), ())
        self._starts.extend(starts)
        self._counts.extend(counts or repeat(1, len(starts)))
        self._runs.append(len(starts))
        self.count_blocks(self.total_blocks + (sum(counts) if counts else len(starts)))
        return True

    def count_blocks(self, total: int) -> None:
        """Note that there are `total` block ids; raises InputError where that is too many."""
        self.total_blocks = total
        if total > MAX_BLOCKS:
            raise InputError(f"more than {MAX_BLOCKS} block ids; allowed: fewer requests, or larger blocks")

    def finish(self, block_size: int, source: str, *, as_in_file: bool = True) -> Trace:
        """Return the trace with blocks of `block_size` [token], 0 for none.

        `as_in_file` is off where the times are not those of a file, so that changes to them need no note.
        """
        arrival = np.array(self._arrival, dtype=np.float64)
        order = np.argsort(arrival, kind="stable")
        first = float(arrival.min()) if len(arrival) else 0.0
        if as_in_file:
            self.notes.assumed("requests out of order, sorted by time", int((np.diff(arrival) < 0).sum()))
            if first:
                self.notes.assumed(f"times shifted by {-first:.6g} s to start at 0", len(arrival))
        session = dense(_taken(self._session, order))
        offsets, blocks = self._blocks(order)
        think = np.array(self._think, dtype=np.float64)[order]
        turn = _turns(session)
        think[turn == 0] = np.nan
        return Trace(
            arrival=arrival[order] - first,
            input_tokens=_taken(self._input, order),
            output_tokens=_taken(self._output, order),
            session=session,
            turn=turn,
            group=dense(_taken(self._group, order)),
            think=think,
            block_size=block_size,
            offsets=offsets,
            blocks=blocks.astype(np.int32),
            source=source,
            notes=self.notes.listed(),
        )

    def _number(self, kind: str, label: Hashable) -> int:
        return -1 if label is None else self._numbers.setdefault((kind, label), len(self._numbers))

    def _blocks(self, order: Ints) -> tuple[Ints, Ints]:
        """Return CSR offsets and chained dense ids of the requests in `order`."""
        runs = np.array(self._runs, dtype=np.int64)
        first_run = offsets_of(runs)
        picked = expand_runs(first_run[:-1][order], runs[order])
        counts = np.array(self._counts, dtype=np.int64)[picked]
        offsets = offsets_of(counts)[offsets_of(runs[order])]
        starts = np.array(self._starts, dtype=np.uint64).view(np.int64)[picked]
        ids = expand_runs(starts, counts)
        if len(ids) and int(ids.min()) < 0:  # ids of 2^63 and more
            ids = np.unique(ids, return_inverse=True)[1]
        return offsets, chained(offsets, ids, self.notes)


def chained(offsets: Ints, ids: Ints, notes: Notes) -> Ints:
    """Return dense block ids that are equal exactly where the `ids` up to and with them are equal."""
    if not len(ids):
        return ids
    ids = dense(ids)
    before = np.empty_like(ids)
    before[1:] = ids[:-1]
    before[offsets[:-1][np.diff(offsets) > 0]] = -1
    expected = np.empty(int(ids.max()) + 1, dtype=np.int64)
    expected[ids[::-1]] = before[::-1]  # the predecessor at the first appearance of each id
    unchained = int((before != expected[ids]).sum())
    if not unchained:
        return ids
    notes.assumed("block ids that name content, not prefixes: numbered anew by their prefix", unchained)
    return dense(_numbered_by_prefix(offsets, ids))


def _numbered_by_prefix(offsets: Ints, ids: Ints) -> Ints:
    """Return ids of (prefix, id): depth by depth, since the prefix of a block is the block before it."""
    counts = np.diff(offsets)
    rows = np.argsort(-counts, kind="stable")
    alive = np.searchsorted(-counts[rows], -np.arange(1, int(counts.max()) + 1), side="right")
    result = np.empty_like(ids)
    parent = np.zeros(len(counts), dtype=np.int64)
    used = 1
    n_ids = int(ids.max()) + 1
    for depth, n_alive in enumerate(alive.tolist()):
        here = offsets[rows[:n_alive]] + depth
        unique, inverse = np.unique(parent[:n_alive] * n_ids + ids[here], return_inverse=True)
        parent[:n_alive] = inverse + used
        used += len(unique)
        result[here] = parent[:n_alive]
    return result


def _taken(values: array[int], order: Ints) -> Ints:
    return np.array(values, dtype=np.int64)[order]


def _turns(session: Ints) -> Ints:
    """Return the place of each request in its session, in order of arrival; 0 without a session."""
    order = np.argsort(session, kind="stable")
    ordered = session[order]
    begins = np.flatnonzero(np.append(True, np.diff(ordered) != 0)) if len(ordered) else np.zeros(0, dtype=np.int64)
    turns = np.empty(len(session), dtype=np.int64)
    turns[order] = np.arange(len(session)) - np.repeat(begins, np.diff(np.append(begins, len(session))))
    turns[session < 0] = 0
    return turns
