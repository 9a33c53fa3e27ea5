"""Agent sessions told by lengths: rounds that go on from a prefix of what came before (TraceLab, LLMServingSim).

Only lengths are known, so that the blocks are made: a round shares the stated prefix with the prompt and answer of the
round before, and nothing else. Sources: TraceLab (uw-syfi), rows of a round or sessions of rounds; LLMServingSim's
agentic workloads (``sub_requests`` with the time a tool takes after each), whose prompts name no prefix.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

from kvsweep.trace.files.record import Record
from kvsweep.trace.files.source import Source
from kvsweep.trace.formats import Clock, Columns, Shape
from kvsweep.trace.model import Trace
from kvsweep.trace.readers.rows import clock_reading, lengths_of, pause_of, pick
from kvsweep.trace.settle.clock import named_unit
from kvsweep.trace.settle.draft import NO_IDS, Draft, Labels, Pause
from kvsweep.trace.settle.hashing import PrefixIds, token_blocks
from kvsweep.trace.settle.sessions import Stream

ROUND = Columns(
    time=("arrival_time", "arrival_time_ns", "arrival_time_ms", "timestamp"),
    input=("input_len", "newly_append_tokens", "input_toks"),
    output=("output_len", "output_tokens", "output_toks"),
    session=("session_id",),
    delay=("tool_wait_after_ms", "tool_duration_ns", "tool_wait_after"),
)
PREFIX = ("prefix_len", "prefix_tokens")
TOKENS = "input_tok_ids"
_INPUT_EVENTS, _OUTPUT_EVENTS = ("user_message", "tool_result"), ("text", "reasoning", "tool_call")
"""Events of a TraceLab row before and after its request is sent."""


class _Rounds:
    """Takes the rounds of sessions in, in their order."""

    def __init__(self, source: Source, shape: Shape) -> None:
        self.draft = Draft(source, shape)
        self.reused = 0
        self._ids, self._size = PrefixIds(), self.draft.made_size()
        self._streams: dict[Hashable, Stream] = {}
        self._pauses: dict[Hashable, Pause] = {}
        self._arrived: dict[Hashable, float] = {}

    def time(self, record: Record, session: str | int | None) -> float | None:
        """Return when a round was sent; None for a later round that states when its session arrived."""
        if "timing_events" in record:
            return _sent(self.draft, record)
        time = clock_reading(self.draft, record, pick(record, ROUND.time))
        if self.draft.knows(session) and time == self._arrived.get(session):
            return None
        self._arrived.setdefault(session, time)
        return time

    def add(self, record: Record, time: float | None, session: Hashable) -> None:
        """Add a round, at `time` in the file's unit or, None, as long after the one before as that one says."""
        pause = self._pauses.get(session, Pause())
        self._pauses[session] = pause_of(record, record.first(ROUND.delay))
        lengths = lengths_of(self.draft, record, ROUND)
        if lengths is None:
            self.draft.leave_out(session, time)
            return
        runs, n_input = self._blocks(record, lengths, session)
        self.draft.row(record, time, (n_input, lengths[1]), runs=runs, labels=Labels(session), pause=pause)

    def _blocks(
        self, record: Record, lengths: tuple[int, int], session: Hashable
    ) -> tuple[tuple[list[int], list[int]], int]:
        """Return the blocks of prompt and answer as runs, and the length of the prompt."""
        prefix = record.first(PREFIX)
        if TOKENS in record:
            return (self._ids.chain(token_blocks(record.ids(TOKENS)[: lengths[0]], self._size)), []), lengths[0]
        if prefix is None:
            return ([], []), lengths[0]
        n_prefix, number = record.count(prefix), len(self.draft)
        stream = self._streams.setdefault(session, Stream(self._ids, self._size))
        stream.keep(n_prefix)
        self.reused += stream.n_tokens
        if stream.n_tokens < n_prefix:
            self.draft.notes.assumed("prefixes longer than what came before: the rest is shared with none")
        stream.extend(("new", number), n_prefix - stream.n_tokens + lengths[0])
        n_input = stream.n_tokens
        stream.extend(("answer", number), lengths[1])
        return stream.blocks(), n_input

    def trace(self, clock: Clock | None) -> Trace:
        """Return the trace."""
        size = self._size if self.draft.has_ids else 0
        if self.reused:
            made = f"blocks of {size} tokens made of the stated prefixes, {self.reused} tokens of what came before"
            self.draft.notes.assumed(made, len(self.draft))
        if not size:
            self.draft.notes.assumed(NO_IDS, len(self.draft))
        return self.draft.trace(clock, size)


def read(source: Source, shape: Shape) -> Trace:
    """Return the trace; raises InputError naming line and field."""
    rounds = _Rounds(source, shape)
    name = source.first.first(ROUND.time)
    for number, record in enumerate(source):
        listed = record.first(("sub_requests", "rounds"))
        if listed is not None:
            time = clock_reading(rounds.draft, record, pick(record, ROUND.time))
            session = record.label("session_id")
            for i, part in enumerate(record.parts(listed)):
                rounds.add(part, None if i else time, (number, session))
            continue
        session = record.label("session_id")
        rounds.add(record, rounds.time(record, session), session)
    unit = named_unit(name) if name is not None else None
    return rounds.trace(Clock(unit) if unit else None)


def _sent(draft: Draft, record: Record) -> float:
    """Return when the last input of a round was there, as [s] since 1970."""
    times: dict[bool, list[float]] = {True: [], False: []}
    for event in record.parts("timing_events"):
        kind = event.label("event_type")
        if kind in _INPUT_EVENTS or kind in _OUTPUT_EVENTS:
            moment = event.moment("timestamp")
            times[kind in _INPUT_EVENTS].append(math.nan if moment is None else moment)
    if not times[True] and not times[False]:
        raise record.error("timing_events", "no event has a time", "one of a user_message, tool_result or answer")
    draft.has_dates = True
    return max(times[True]) if times[True] else min(times[False])
