"""AIBrix workloads: a line a time [ms], with the requests that arrive then."""

from __future__ import annotations

from kvsweep.trace.files.source import Source
from kvsweep.trace.formats import Columns, Shape
from kvsweep.trace.model import Trace
from kvsweep.trace.readers.rows import clock_reading, lengths_of
from kvsweep.trace.settle.draft import Draft, Labels

COLUMNS = Columns(
    (), ("Prompt Length", "prompt_length"), ("Output Length", "output_length"), session=("Session ID", "session_id"),
    text=("Prompt", "prompt"),
)  # fmt: skip


def read(source: Source, shape: Shape) -> Trace:
    """Return the trace; raises InputError naming line and field."""
    draft = Draft(source, shape)
    for record in source:
        time = clock_reading(draft, record, "timestamp")
        for request in record.parts("requests"):
            name = request.first(COLUMNS.session)
            session = request.label(name) if name is not None else None
            lengths = lengths_of(draft, request, COLUMNS)
            if lengths is None:
                draft.leave_out(session, time)
            else:
                draft.row(request, time, lengths, labels=Labels(session))
    return draft.trace()
