"""Dynamo request traces (``dynamo.request.trace.v1``): events of requests that ended, with the hashes of their prompts.

A line is an event, or an envelope with the event in ``event``; events of tools are no requests. Times: ms since 1970.
"""

from __future__ import annotations

from kvsweep.trace.files.record import Record
from kvsweep.trace.files.source import Source
from kvsweep.trace.formats import Shape
from kvsweep.trace.model import Trace
from kvsweep.trace.readers.rows import output_by_option, pick
from kvsweep.trace.settle.draft import MAX_TIME, Draft, Labels

ENDED = "request_end"
SESSIONS = ("trajectory_id", "session_id", "program_id", "workflow_id")
"""Names of what a request belongs to in the context of its agent, the narrowest first."""


def read(source: Source, shape: Shape) -> Trace:
    """Return the trace; raises InputError naming line and field."""
    draft, size = Draft(source, shape), 0
    for record in source:
        event = record.part("event") if "event" in record else record
        if event.label("event_type") != ENDED:
            draft.notes.dropped(f"events that are no {ENDED}")
            continue
        request = event.part("request")
        replay = request.part("replay") if "replay" in request else None
        stated = replay.count("trace_block_size", 1) if replay is not None else size
        if replay is not None and size not in (0, stated):
            raise replay.error("trace_block_size", f"is {stated}", f"{size}, as in the events before")
        size = stated
        _add(draft, event, request, replay)
    return draft.trace(size=draft.checked_size(size))


def _add(draft: Draft, event: Record, request: Record, replay: Record | None) -> None:
    time = request.number("request_received_ms", high=MAX_TIME)
    context = event.part("agent_context") if "agent_context" in event else None
    session = context.label(pick(context, SESSIONS)) if context is not None else None
    n_output = request.count("output_tokens") if "output_tokens" in request else output_by_option(draft)
    if n_output is None:
        draft.leave_out(session, time)
        return
    whole = replay if replay is not None and "input_length" in replay else request
    n_input = whole.count("input_length" if whole is replay else "input_tokens")
    hashes = replay.ids("input_sequence_hashes") if replay is not None else []
    if replay is None:
        draft.notes.assumed("requests without hashes of their prompts: shared with none")
    draft.row(request, time, (n_input, n_output), runs=(hashes, ()), labels=Labels(session))
