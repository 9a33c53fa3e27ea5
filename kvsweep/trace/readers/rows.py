"""Flat records of a request each, by the names of their fields (`kvsweep.trace.formats.Columns`)."""

from __future__ import annotations

import json
import math
from typing import Any

from kvsweep.errors import InputError, shown
from kvsweep.trace.files.record import DATE, MAX_TOKENS, Record
from kvsweep.trace.files.source import Source
from kvsweep.trace.formats import Clock, Columns, Shape
from kvsweep.trace.model import Trace
from kvsweep.trace.settle.clock import PER_SECOND, named_unit
from kvsweep.trace.settle.draft import MAX_TIME, Draft, Labels, Pause

FAILED = "requests that failed"
INSIDE = ("messages", "prompt", "input", "content", "text")
"""Where a request holds its prompt."""
SUCCEEDED = ("", "ok", "success", "successful", "succeeded", "completed", "complete", "200", "true")
"""What a `status` says of a request that did not fail."""


def read(source: Source, shape: Shape) -> Trace:
    """Return the trace; raises InputError naming line and field."""
    draft = drafted(source, shape)
    return draft.trace(draft_clock(draft))


def drafted(source: Source, shape: Shape) -> Draft:
    """Return the requests of a file of flat records."""
    draft, columns = Draft(source, shape), shape.columns
    assert columns is not None
    for record in source:
        if columns.inside in record:
            record = Record(record.where, {**record.values, **record.part(columns.inside).values})
        add_row(draft, record, columns)
    unread = [name for name in source.first.values if name not in (*columns.names, columns.inside)]
    if unread:
        draft.unread = ", ".join(unread)
    return draft


def draft_clock(draft: Draft) -> Clock | None:
    """Return the clock that the name of the time states, None where it states none."""
    name = draft.source.first.first(draft.shape.columns.time) if draft.shape.columns else None
    unit = named_unit(name) if name is not None else None
    return Clock(unit) if unit is not None else None


def add_row(draft: Draft, record: Record, columns: Columns) -> None:
    """Add the request of `record`, or count why it is left out."""
    session = record.label(name) if (name := record.first(columns.session)) else None
    time = time_of(draft, record, columns, session)
    lengths = None if _failed(draft, record, columns) else lengths_of(draft, record, columns)
    if lengths is None:
        draft.leave_out(session, time)
        return
    ids = record.ids(name) if (name := record.first(columns.ids)) else []
    group = record.label(name) if (name := record.first(columns.group)) else None
    pause = pause_of(record, record.first(columns.delay))
    draft.row(record, time, lengths, runs=(ids, ()), labels=Labels(session, group), pause=pause)


def time_of(draft: Draft, record: Record, columns: Columns, session: str | int | None) -> float | None:
    """Return the time of a request in the file's unit, dates in [s]; None for a turn that states its pause only."""
    name = record.first(columns.time)
    if name is None:
        if record.first(columns.delay) and draft.knows(session):
            return None
        record.get(columns.time[0])
        raise record.error(columns.time[0], "is empty", "a time")
    return clock_reading(draft, record, name)


def clock_reading(draft: Draft, record: Record, name: str) -> float:
    """Return the time in field `name`, in the file's unit, or of a date in [s]."""
    moment = record.moment(name)
    if moment is not None:
        draft.has_dates = True
        return moment
    try:
        return record.number(name, high=MAX_TIME)
    except InputError:
        if not isinstance(value := record.values[name], str):
            raise
        raise record.error(name, f"{shown(value)} is no time", f"a number, or {DATE}") from None


def pause_of(record: Record, name: str | None) -> Pause:
    """Return the pause before a turn in field `name`, None for none."""
    if name is None:
        return Pause()
    unit = named_unit(name)
    return Pause(seconds=record.number(name, PER_SECOND[unit])) if unit else Pause(record.number(name, high=MAX_TIME))


def _failed(draft: Draft, record: Record, columns: Columns) -> bool:
    """Return whether a request failed, and count it."""
    name = record.first(columns.status)
    failed = name is not None and str(record.values[name]).lower() not in SUCCEEDED
    if columns.empty_fails and record.count(columns.output[0]) == 0:
        draft.notes.dropped("failed requests (no response tokens)")
        return True
    if failed:
        draft.notes.dropped(FAILED)
    return failed


def lengths_of(draft: Draft, record: Record, columns: Columns) -> tuple[int, int] | None:
    """Return the lengths of prompt and answer [token]; None, counted, where neither file nor option says them."""
    n_input = _input(draft, record, columns)
    if n_input is None:
        return None
    name = record.first(columns.output)
    if name is not None:
        return n_input, record.count(name)
    return None if (n_output := output_by_option(draft)) is None else (n_input, n_output)


def output_by_option(draft: Draft) -> int | None:
    """Return the length of an answer the file does not state [token]; None, counted, where no option says it."""
    if draft.options.output_tokens is None:
        draft.notes.dropped("requests without an output length; --output-tokens says one")
        return None
    draft.notes.assumed("output lengths that the file lacks (--output-tokens)")
    return draft.options.output_tokens


def _input(draft: Draft, record: Record, columns: Columns) -> int | None:
    name = record.first(columns.input)
    if name is not None:
        return record.count(name)
    text = record.first(columns.text)
    if text is not None:
        return tokens_by_option(draft, characters(record.values[text]))
    ids = record.first(columns.ids)
    if ids is not None and (size := draft.options.block_size or draft.shape.blocks) and isinstance(size, int):
        draft.notes.assumed(f"prompts without a length: taken as their ids times {size} tokens")
        return min(size * len(record.ids(ids)), MAX_TOKENS)
    record.get(columns.input[0])
    raise record.error(columns.input[0], "is empty", "a whole number")


def tokens_by_option(draft: Draft, n_characters: int) -> int | None:
    """Return the tokens of a text; None, counted, where no option says how many characters one has."""
    per = draft.options.characters_per_token
    if per is None:
        draft.notes.dropped("requests with text instead of a length; --characters-per-token takes them in")
        return None
    draft.notes.assumed(f"prompts of which the file has the text: {per:g} characters a token")
    return max(1, math.ceil(n_characters / per))


def characters(value: Any) -> int:
    """Return the characters of a prompt: a text, chat messages, or a request that holds either."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list):
        return sum(characters(item) for item in value)
    if isinstance(value, dict):
        inside = next(
            (value[name] for name in ("messages", "prompt", "input", "content", "text") if name in value), None
        )
        return characters(inside) if inside is not None else len(json.dumps(value))
    return 0


def pick(record: Record, names: tuple[str, ...]) -> str:
    """Return the first of `names` that is a field of `record`, else the first of all, which its reader then misses."""
    return record.first(names) or names[0]
