"""Agent sessions, one a record (weka layout): turns with times inside the session [s], think times, local block ids.

Source: callanjfox/kv-cache-tester. Two spellings: short (``bs, t, in, out, api, think, d, h`` with h as pairs of
first id and count) and long (``block_size, t, in, out, api_time, think_time, hash_ids``). Sub-agents are turns with
``d: 1`` in the short one and entries with ``requests`` of their own in the long one.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from kvsweep.errors import InputError
from kvsweep.trace.build import Builder
from kvsweep.trace.files.record import Record
from kvsweep.trace.files.source import Source
from kvsweep.trace.formats import Shape
from kvsweep.trace.model import Trace
from kvsweep.trace.options import MAX_BLOCK_SIZE
from kvsweep.trace.settle.clock import PER_SECOND

MAX_FIRST = 2**62
"""Largest id that leaves room to tell sessions apart."""


def read(source: Source, shape: Shape) -> Trace:
    """Return the trace; session starts, which the file lacks, are a Poisson process. Raises InputError."""
    rng = np.random.default_rng(source.options.seed)
    start, n_sessions, block_size = 0.0, 0, 0
    sessions = _Sessions(source)
    for record in source:
        size_name = "bs" if "bs" in record else "block_size"
        size = record.count(size_name, 1, MAX_BLOCK_SIZE)
        if block_size not in (0, size):
            raise record.error(size_name, f"is {size}", f"{block_size}, as in the sessions before")
        if source.options.block_size not in (None, size):
            raise InputError(f"--block-size: {source.options.block_size}; {record.where} states {size}; allowed: "
                             "without it")  # fmt: skip
        block_size = size
        sessions.add(record, start, block_size)
        start += rng.exponential(1 / source.options.session_rate)
        n_sessions += 1
    unit = source.options.time_unit
    source.notes.taken(f"times in {unit or 's'} ({'--time-unit' if unit else 'as documented'}); blocks of {block_size} "
                       "tokens (stated)", len(sessions.builder))  # fmt: skip
    rate = source.options.session_rate
    source.notes.assumed(
        f"session starts: Poisson, {rate:.4g} sessions/s (one in {1 / rate:.4g} s), seed {source.options.seed}",
        n_sessions,
    )
    return sessions.builder.finish(block_size, "", as_in_file=False)


class _Sessions:
    """Takes the sessions of a file in, with block ids moved apart."""

    def __init__(self, source: Source) -> None:
        self.builder = Builder(source.notes)
        self._per = PER_SECOND[source.options.time_unit or "s"]
        self._base = self._top = 0
        self._start, self._size = 0.0, 0
        self._label: Hashable = None

    def add(self, record: Record, start: float, size: int) -> None:
        """Add the session of `record`, whose blocks have `size` tokens, at `start` [s]."""
        # Names may repeat from file to file that were joined.
        self._label = (len(self.builder), record.label("id"))
        self._start, self._size, self._base = start, size, self._top
        self._turns(record.parts("requests"), self._label, 0.0)

    def _turns(self, turns: list[Record], session: Hashable, shift: float) -> None:
        """Add the turns of one agent, `shift` [s] after the start of the session."""
        spawned = finished = 0.0
        latest = [0.0, 0.0]
        for number, turn in enumerate(turns):
            time = turn.number("t", self._per)
            if isinstance(turn.values.get("requests"), list):
                self._sub_agent(turn, time, (session, number))
                continue
            inner = int(turn.count("d", 0, 1) if "d" in turn else 0)
            if inner and (time < latest[1] or not latest[1]):
                spawned = finished
            latest[inner] = time
            if inner:
                self.builder.notes.assumed("sub-agent turns: their clock starts when the turn before them ends")
            began = time + (spawned if inner else 0.0)
            think, ended = self._pauses(turn, began, finished)
            if not inner:
                finished, latest[1] = ended, 0.0
            lengths = turn.count("in"), turn.count("out")
            self.builder.add(self._start + shift + began, lengths, runs=self._runs(turn, lengths[0]), session=session,
                             group=self._label, think=think)  # fmt: skip

    def _sub_agent(self, turn: Record, time: float, session: Hashable) -> None:
        """Add the requests of a sub-agent that is called at `time` [s] as a session of their own."""
        inner = turn.parts("requests")
        if not inner:
            return
        note = "requests of sub-agents: sessions of their own beside the one that calls them"
        # Some recorders count from the start of the session, some from the call.
        relative = inner[0].number("t", self._per) < time
        self.builder.notes.assumed(f"{note}, times from the {'call' if relative else 'start of that'}", len(inner))
        self._turns(inner, session, time if relative else 0.0)

    def _pauses(self, turn: Record, began: float, finished: float) -> tuple[float, float]:
        """Return the think time before a turn and the end of it [s]; what is null is taken from the turn before."""
        notes = self.builder.notes
        api = turn.first(("api", "api_time"))
        if api is None:
            notes.assumed("turns without a duration: taken as ending at once")
        think = turn.first(("think", "think_time"))
        if think is None:
            notes.assumed("turns without a think time: taken as the gap after the turn before")
        seconds = turn.number(think, self._per) if think else max(0.0, began - finished)
        return seconds, began + (turn.number(api, self._per) if api else 0.0)

    def _runs(self, turn: Record, n_input: int) -> tuple[list[int], list[int]]:
        """Return first ids and counts of the runs of a turn, ids moved past those of the sessions before."""
        name = "h" if "h" in turn else "hash_ids"
        values = turn.ids(name) if name in turn else []
        if name == "h" and len(values) % 2:
            raise turn.error("h", f"{len(values)} numbers", "pairs of first block id and count")
        firsts, counts = (values[::2], values[1::2]) if name == "h" else (values, [1] * len(values))
        most = -(-n_input // self._size)
        if sum(counts) > most:
            raise turn.error(
                name, f"{sum(counts)} blocks for {n_input} tokens", f"at most {most} blocks of {self._size} tokens"
            )
        if any(first > MAX_FIRST for first in firsts) or self._base > MAX_FIRST:
            raise turn.error(name, "ids too large to tell sessions apart", f"0 to {MAX_FIRST}")
        firsts = [first + self._base for first in firsts]
        self._top = max([self._top, *(first + count for first, count in zip(firsts, counts, strict=True))])
        return firsts, counts
