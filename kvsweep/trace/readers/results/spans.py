"""OpenTelemetry spans of generative AI calls: start, input and output tokens, conversation.

OTLP JSON (``resourceSpans``), sessions of spans (``spans``) and spans by themselves, attributes as lists of typed
values or as plain objects. Spans without token counts, as of tools and HTTP, are no requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvsweep.trace.files.record import Record
from kvsweep.trace.files.source import Source
from kvsweep.trace.formats import Shape
from kvsweep.trace.model import Trace
from kvsweep.trace.readers.rows import FAILED, output_by_option, pick
from kvsweep.trace.settle.draft import MAX_TIME, Draft, Labels

STARTS = ("startTimeUnixNano", "start_time_unix_nano", "start_time")
INPUTS = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
OUTPUTS = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
SESSIONS = ("gen_ai.conversation.id", "session.id")
_ERROR = (2, "STATUS_CODE_ERROR", "ERROR")
_NANO = 1e9


def read(source: Source, shape: Shape) -> Trace:
    """Return the trace, which has no block ids; raises InputError naming line and field."""
    draft = Draft(source, shape)
    for record in source:
        for span in _spans(record):
            _add(draft, span)
    return draft.trace()


def _spans(record: Record) -> Iterator[Record]:
    """Yield the spans in a record."""
    if "resourceSpans" in record:
        for resource in record.parts("resourceSpans"):
            for scope in resource.parts(pick(resource, ("scopeSpans", "instrumentationLibrarySpans"))):
                yield from scope.parts("spans")
    elif "spans" in record:
        yield from record.parts("spans")
    else:
        yield record


def _add(draft: Draft, span: Record) -> None:
    attributes = _attributes(span)
    n_input, n_output = attributes.first(INPUTS), attributes.first(OUTPUTS)
    if n_input is None:
        draft.notes.dropped("spans without a count of input tokens, as of tools")
        return
    status = span.values.get("status")
    if isinstance(status, dict) and (status.get("code") or status.get("status_code")) in _ERROR:
        draft.notes.dropped(FAILED)
        return
    session = attributes.label(pick(attributes, SESSIONS))
    answer = attributes.count(n_output) if n_output is not None else output_by_option(draft)
    if answer is not None:
        draft.row(span, _start(span), (attributes.count(n_input), answer), labels=Labels(session))


def _start(span: Record) -> float:
    """Return when a span began [ns]; OTLP writes 64-bit numbers as text, some exporters dates."""
    name = pick(span, STARTS)
    moment = span.moment(name)
    if moment is not None:
        return moment * _NANO
    return Record(span.where, span.values, textual=True).number(name, high=MAX_TIME)


def _attributes(span: Record) -> Record:
    """Return the attributes of a span as a record of plain values."""
    given = span.values.get("attributes")
    where = f"{span.where}: attributes"
    if isinstance(given, list):
        pairs = (item for item in given if isinstance(item, Mapping) and isinstance(item.get("key"), str))
        return Record(where, {item["key"]: _plain(item.get("value")) for item in pairs}, textual=True)
    return Record(where, given if isinstance(given, Mapping) else {}, textual=True)


def _plain(value: Any) -> Any:
    """Return the value of ``{"intValue": "12"}`` and the like."""
    return next(iter(value.values()), None) if isinstance(value, Mapping) and len(value) == 1 else value
