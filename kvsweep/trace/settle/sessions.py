"""What a prompt of a session is: the whole of it, or what is new after the turn before and its answer.

Tools write both under the same names. Whole prompts of a session begin with the same blocks; what is new does not.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple

import numpy as np

from kvsweep.trace.model import Ints
from kvsweep.trace.options import SessionMeaning
from kvsweep.trace.settle.hashing import PrefixIds

_Part = tuple[Hashable, int, int]
"""A content, where in it a part of a block begins, and how long that is [token]."""


class Meaning(NamedTuple):
    """The meaning taken, why, and what speaks against it."""

    sessions: SessionMeaning
    why: str
    doubt: str = ""


def settled_meaning(session: Ints, first_id: Ints, said: SessionMeaning | None) -> Meaning | None:
    """Return what prompts of sessions hold, by the first block id of each request (-1 for none); None without turns.

    Requests are in the order of their turns.
    """
    order = np.argsort(session, kind="stable")
    of, ids = session[order], first_id[order]
    begins = np.append(True, of[1:] != of[:-1])
    head = ids[np.flatnonzero(begins)][np.cumsum(begins) - 1]
    later = ~begins & (of >= 0)
    if not later.any():
        return None
    if said is not None:
        return Meaning(said, "--sessions")
    known = later & (ids >= 0) & (head >= 0)
    same = int((ids == head)[known].sum())
    n_known = int(known.sum())
    if not n_known:
        return Meaning("full", "assumed: there are no block ids to tell")
    if same == n_known:
        return Meaning("full", "found: every later turn begins as its session does")
    if not same:
        return Meaning("delta", "found: no later turn begins as its session does")
    doubt = f"{n_known - same} of {n_known} later turns do not begin as their session does; if prompts hold only what "
    return Meaning("full", "assumed", doubt + "is new: --sessions delta")


class Stream:
    """What a session has said so far, cut into blocks of a size."""

    def __init__(self, ids: PrefixIds, size: int) -> None:
        self._ids, self._size = ids, size
        self._starts: list[int] = []
        self._counts: list[int] = []
        self._last = -1
        self._partial: list[_Part] = []
        self._filled = 0
        self.n_tokens = 0

    def extend(self, content: Hashable, length: int) -> None:
        """Append `length` tokens of a `content`."""
        at = 0
        while at < length:
            taken = min(length - at, self._size - self._filled)
            self._partial.append((content, at, taken))
            at, self._filled = at + taken, self._filled + taken
            if self._filled == self._size:
                self._close()
        self.n_tokens += length

    def blocks(self) -> tuple[list[int], list[int]]:
        """Return the full blocks so far as runs of consecutive ids: first ids and counts."""
        return list(self._starts), list(self._counts)

    def keep(self, n_tokens: int) -> None:
        """Go back to the first `n_tokens`; what comes after them is new."""
        if n_tokens >= self.n_tokens:
            return
        n_full, left = divmod(n_tokens, self._size)
        if n_full < sum(self._counts):
            # A part of a full block is known by the block.
            block = self._shorten(n_full)
            self._partial = [(("part", block), 0, left)] if left else []
        else:
            self._partial = list(_first(self._partial, left))
        self.n_tokens, self._filled = n_tokens, left

    def _shorten(self, n_full: int) -> int:
        """Leave out the blocks from `n_full` on; return the first of them."""
        extra, first = sum(self._counts) - n_full, -1
        while extra:
            taken = min(extra, self._counts[-1])
            self._counts[-1] -= taken
            extra -= taken
            first = self._starts[-1] + self._counts[-1]
            if not self._counts[-1]:
                del self._counts[-1], self._starts[-1]
        self._last = self._starts[-1] + self._counts[-1] - 1 if self._starts else -1
        return first

    def _close(self) -> None:
        """Number the block that is full now."""
        number = self._ids.number(self._last, tuple(self._partial))
        if self._starts and number == self._last + 1:
            self._counts[-1] += 1
        else:
            self._starts.append(number)
            self._counts.append(1)
        self._last, self._partial, self._filled = number, [], 0


def _first(parts: list[_Part], n_tokens: int) -> Iterator[_Part]:
    """Yield the first `n_tokens` of the parts of a block."""
    for content, start, length in parts:
        taken = min(length, n_tokens)
        if taken:
            yield content, start, taken
        n_tokens -= taken
