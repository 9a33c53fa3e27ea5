"""Requests as they stand in a file, and their way to a trace: units, sizes and meanings are settled, and told."""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from kvsweep.errors import InputError, shown
from kvsweep.trace.build import Builder
from kvsweep.trace.files.record import MAX_SECONDS, MAX_TOKENS, Record
from kvsweep.trace.files.source import Source
from kvsweep.trace.formats import MADE, STATED, Clock, Shape
from kvsweep.trace.model import Floats, Ints, Trace, offsets_of
from kvsweep.trace.options import MADE_BLOCK_SIZE
from kvsweep.trace.settle.blocks import fits, settled_size
from kvsweep.trace.settle.clock import PER_SECOND, settled_unit
from kvsweep.trace.settle.hashing import PrefixIds
from kvsweep.trace.settle.sessions import Stream, settled_meaning

MAX_TIME = MAX_SECONDS * PER_SECOND["ns"]
"""Largest number that may be a time, in whatever unit."""
HOLDS = {"full": "whole prompts", "delta": "new tokens"}
"""What prompts of sessions hold, by the meaning of sessions."""
NO_IDS = "no block ids: lengths and times only, so nothing is shared"


Runs = tuple[Sequence[int], Sequence[int]]
"""First ids and lengths of runs of block ids; lengths may be left empty for runs of one."""


class Labels(NamedTuple):
    """What a request belongs to, None for nothing."""

    session: Hashable = None
    group: Hashable = None


class Pause(NamedTuple):
    """The pause before a turn: in the unit of the file's times, or [s] where its own unit is known; NaN for none."""

    raw: float = math.nan
    seconds: float = math.nan


_ALONE, _NONE = Labels(), Pause()


class Draft(Builder):
    """Collects the requests of one file in its own units; `trace` settles them."""

    def __init__(self, source: Source, shape: Shape) -> None:
        super().__init__(source.notes)
        self.source, self.shape, self.options = source, shape, source.options
        self.taken: list[str] = []
        self.unread = ""
        """Fields of the file that are of no use."""
        self.has_ids = self.has_delays = self.has_dates = False
        self.unit_in_name = False
        self._delay = array("d")
        self._wheres: list[str] = []
        self._left: dict[Hashable, float] = {}

    def row(
        self, record: Record, time: float | None, lengths: tuple[int, int], *, runs: Runs | None = None,
        labels: Labels = _ALONE, pause: Pause = _NONE,
    ) -> None:  # fmt: skip
        """Add a request as `add` does, at `time` in the unit of the file; None is `pause` after the turn before."""
        if self.add(math.nan if time is None else time, lengths, runs=runs, session=labels.session, group=labels.group,
                    think=pause.seconds):  # fmt: skip
            self._delay.append(pause.raw)
            self._wheres.append(record.where)
            if runs is not None and runs[0]:
                self.has_ids = True
            if pause.raw == pause.raw:
                self.has_delays = True
        else:
            self.leave_out(labels.session, time)

    def leave_out(self, session: Hashable, time: float | None) -> None:
        """Remember when a request was that is left out: the next turn of its session may count from it."""
        if session is not None and time is not None:
            self._left[session] = time

    def knows(self, session: Hashable) -> bool:
        """Return whether a turn of `session` came before, kept or left out."""
        return session is not None and (("session", session) in self._numbers or session in self._left)

    def made_size(self) -> int:
        """Return the size of blocks that are made on reading [token]."""
        return self.options.block_size or MADE_BLOCK_SIZE

    def trace(self, clock: Clock | None = None, size: int | None = None) -> Trace:
        """Return the trace; `clock` is that of the shape where it is None, as is the `size` of blocks [token]."""
        if not len(self):
            return self.finish(0, "")
        self._settle_times(clock or self.shape.clock or Clock())
        n_ids = self._n_ids()
        tokens = self._settle_blocks(n_ids) if size is None else self.checked_size(size, n_ids)
        if self.shape.blocks == STATED and tokens:
            self.taken.append(f"blocks of {tokens} tokens (stated)")
        self._settle_sessions(tokens, n_ids)
        if self.unread:
            self.taken.append(f"not read: {shown(self.unread, 160)}")
        self.notes.taken("; ".join(self.taken), len(self))
        return self.finish(tokens, "")

    def _settle_times(self, clock: Clock) -> None:
        said = self.options.time_unit
        if said is not None and self.has_dates:
            raise InputError(f"--time-unit: {said}; {self.source.path} has dates; allowed: without it")
        times = np.array(self._arrival, dtype=np.float64)
        unit, why, doubt = settled_unit(times, clock, said)
        self.taken.append(f"times in {unit} ({'dates' if self.has_dates else why})")
        if doubt:
            self.notes.doubtful(doubt, len(self))
        arrival, delay = times / PER_SECOND[unit], np.array(self._delay, dtype=np.float64) / PER_SECOND[unit]
        think = np.where(np.isnan(delay), np.array(self._think, dtype=np.float64), delay)
        if np.isnan(arrival).any():
            self._follow(arrival, think, PER_SECOND[unit])
        if np.nanmax(arrival) > MAX_SECONDS:
            where = self._wheres[int(np.nanargmax(arrival))]
            raise InputError(f"{where}: a time of {np.nanmax(arrival):.4g} s; allowed: at most {MAX_SECONDS:g} s, or "
                             "another --time-unit")  # fmt: skip
        self._arrival, self._think = array("d", arrival.tobytes()), array("d", think.tobytes())

    def _follow(self, arrival: Floats, think: Floats, per: float) -> None:
        """Set arrivals that are missing: the pause after that of the turn before."""
        latest = {self._numbers.get(("session", label), -1): time / per for label, time in self._left.items()}
        missing = np.isnan(arrival)
        for i, session in enumerate(self._session):
            if missing[i]:
                arrival[i] = latest[session] + (0.0 if math.isnan(think[i]) else think[i])
            latest[session] = float(arrival[i])
        self.notes.assumed(
            "turns without a time: arrival taken as that of the previous turn plus the pause", int(missing.sum())
        )

    def _n_ids(self) -> Ints:
        """Return the number of block ids of each request."""
        ends = offsets_of(np.array(self._counts, dtype=np.int64))
        return np.diff(ends[offsets_of(np.array(self._runs, dtype=np.int64))])

    def _settle_blocks(self, n_ids: Ints) -> int:
        said = self.options.block_size
        if not n_ids.any():
            if said is not None:
                raise InputError(f"--block-size: {said}; {self.source.path} has no block ids; allowed: without it")
            self.notes.assumed(NO_IDS, len(self))
            return 0
        assert isinstance(self.shape.blocks, int)
        with_ids, n_input = n_ids > 0, np.array(self._input, dtype=np.int64)
        size, why = settled_size(n_ids[with_ids], n_input[with_ids], self.shape.blocks, said)
        self.taken.append(f"blocks of {size} tokens ({why})")
        return self.checked_size(size, n_ids)

    def checked_size(self, size: int, n_ids: Ints | None = None) -> int:
        """Return `size` [token]; raises InputError where a prompt has more ids than blocks, or another size is said."""
        said, n_ids = self.options.block_size, self._n_ids() if n_ids is None else n_ids
        if self.shape.blocks == STATED and said not in (None, size):
            raise InputError(f"--block-size: {said}; {self.source.path} states {size}; allowed: without it")
        if self.shape.blocks == MADE:
            return size
        n_input = np.array(self._input, dtype=np.int64)
        too_many = np.flatnonzero(n_ids > -(-n_input // size)) if size else np.flatnonzero(n_ids)
        if len(too_many):
            first = int(too_many[0])
            most = -(-int(n_input[first]) // size) if size else 0
            raise InputError(
                f"{self._wheres[first]}: {n_ids[first]} blocks for {n_input[first]} tokens; allowed: at most {most} of "
                f"{size} tokens, or another --block-size"
            )
        if isinstance(self.shape.blocks, int):
            fewer = (n_ids > 0) & ~fits(n_ids, n_input, size)
            self.notes.doubtful(
                f"prompts with fewer ids than blocks of {size} tokens: the rest is shared with none; if blocks are "
                "larger: --block-size", int(fewer.sum()),
            )  # fmt: skip
        return size

    def _settle_sessions(self, size: int, n_ids: Ints) -> None:
        said = self.options.sessions
        if self.shape.sessions is not None:
            return
        order = np.argsort(np.array(self._arrival), kind="stable")
        meaning = settled_meaning(np.array(self._session, dtype=np.int64)[order], self._first_ids(n_ids)[order], said)
        if meaning is None:
            if said == "delta":
                raise InputError("--sessions: delta; no request follows another of its session; allowed: full")
            return
        self.taken.append(f"sessions of {HOLDS[meaning.sessions]} ({meaning.why})")
        if meaning.doubt:
            self.notes.doubtful(meaning.doubt, len(self))
        if meaning.sessions == "delta":
            self._accumulate(order, size, n_ids)

    def _first_ids(self, n_ids: Ints) -> Ints:
        """Return a number for the first block id of each request, equal ones for equal ids, -1 without ids."""
        found = np.full(len(self), -1, dtype=np.int64)
        starts = np.array(self._starts, dtype=np.uint64)
        firsts = offsets_of(np.array(self._runs, dtype=np.int64))[:-1][n_ids > 0]
        found[n_ids > 0] = np.unique(starts[firsts], return_inverse=True)[1]
        return found

    def _accumulate(self, order: Ints, size: int, n_ids: Ints) -> None:
        """Make whole prompts of what is new: prompts and answers of the turns before come first."""
        ids, streams = PrefixIds(), dict[int, Stream]()
        offsets = offsets_of(n_ids)
        starts, counts, runs = [array("Q")] * len(self), [array("q")] * len(self), array("q", bytes(8 * len(self)))
        for row in order.tolist():
            session = self._session[row]
            stream = streams.setdefault(session if session >= 0 else -1 - row, Stream(ids, size or MADE_BLOCK_SIZE))
            end = stream.n_tokens + self._input[row]
            for name in self._starts[offsets[row] : offsets[row + 1]] if size else ():
                stream.extend(name, min(size, end - stream.n_tokens))
            stream.extend(("rest", row), end - stream.n_tokens)
            if end > MAX_TOKENS:
                raise InputError(f"{self._wheres[row]}: a prompt of {end} tokens with what came before; allowed: at "
                                 f"most {MAX_TOKENS}, or --sessions full")  # fmt: skip
            self._input[row] = end
            stream.extend(("answer", row), self._output[row])
            if size:
                first, count = stream.blocks()
                starts[row], counts[row], runs[row] = array("Q", first), array("q", count), len(first)
        self._starts, self._counts, self._runs = array("Q"), array("q"), runs
        for i in range(len(self)):
            self._starts.extend(starts[i])
            self._counts.extend(counts[i])
        self.count_blocks(sum(self._counts))
