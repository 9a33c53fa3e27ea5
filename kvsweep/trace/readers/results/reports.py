"""Reports of load generators with a record for every request: GuideLLM, inference-perf, GenAI-Perf.

Several benchmarks of a report, each with its own rate, follow each other on their one clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from kvsweep.trace.files.record import Record
from kvsweep.trace.files.source import Source
from kvsweep.trace.formats import Shape
from kvsweep.trace.model import Trace
from kvsweep.trace.readers.rows import FAILED, characters, output_by_option, pick, tokens_by_option
from kvsweep.trace.settle.draft import MAX_TIME, Draft, Labels

CANCELLED = "requests that were cut off at the end of the benchmark"


def read(source: Source, shape: Shape) -> Trace:
    """Return the trace, which has no block ids; raises InputError naming place and field."""
    draft = Draft(source, shape)
    add = _READERS[shape.tool]
    for record in source:
        add(draft, record)
    return draft.trace()


def _guidellm(draft: Draft, report: Record) -> None:
    for benchmark in report.parts("benchmarks"):
        requests = benchmark.part("requests")
        for state in ("successful", "errored", "incomplete"):
            listed = requests.parts(state) if state in requests else []
            if state == "successful":
                for request in listed:
                    _add_guidellm(draft, request)
            elif listed:
                draft.notes.dropped(FAILED if state == "errored" else CANCELLED, len(listed))


def _add_guidellm(draft: Draft, request: Record) -> None:
    """Add a request, as version 0.3 and later write it (``info``) or earlier ones did."""
    info = request.part("info") if "info" in request else None
    timings = info.part("timings") if info is not None and "timings" in info else request
    start = timings.number(pick(timings, ("request_start", "resolve_start", "start_time", "request_start_time")),
                           high=MAX_TIME)  # fmt: skip
    lengths = [
        _total(request, metrics, flat)
        for metrics, flat in (("input_metrics", "prompt_tokens"), ("output_metrics", "output_tokens"))
    ]
    session = info.label("conversation_id") if info is not None else None
    draft.row(request, start, (lengths[0], lengths[1]), labels=Labels(session))


def _total(request: Record, metrics: str, flat: str) -> int:
    if metrics not in request:
        return request.count(flat)
    part = request.part(metrics)
    return part.count(pick(part, ("total_tokens", "text_tokens")))


def _inference_perf(draft: Draft, request: Record) -> None:
    start = request.number("start_time", high=MAX_TIME)
    if request.values.get("error"):
        draft.notes.dropped(FAILED)
        return
    info = request.part("info")
    if "input_tokens" in info:
        n_input, n_output = info.count("input_tokens"), info.first(("output_tokens",))
        answer = info.count(n_output) if n_output is not None else output_by_option(draft)
    else:  # version 0.3 and later
        n_input = info.part("request_metrics").part("text").count("input_tokens")
        response = info.part("response_metrics") if "response_metrics" in info else None
        answer = response.count("output_tokens") if response is not None else output_by_option(draft)
    if answer is not None:
        draft.row(request, start, (n_input, answer))


def _genai_perf(draft: Draft, report: Record) -> None:
    for experiment in report.parts("experiments"):
        for request in experiment.parts("requests"):
            start = request.number("timestamp", high=MAX_TIME)
            usage = _usage(request)
            if usage is not None:
                draft.row(request, start, (usage.count("prompt_tokens"), usage.count("completion_tokens")))
                continue
            n_input = tokens_by_option(draft, characters(_payload(request)))
            n_output = None if n_input is None else _answered(draft, request)
            if n_input is not None and n_output is not None:
                draft.row(request, start, (n_input, n_output))


def _usage(request: Record) -> Record | None:
    """Return the counts of tokens that a server sent with the last of its answers; None where it sent none."""
    for output in reversed(request.values.get("response_outputs") or []):
        answer = _loaded(output.get("response") if isinstance(output, Mapping) else output)
        if isinstance(answer, Mapping) and isinstance(answer.get("usage"), Mapping):
            return Record(f"{request.where}: usage", answer["usage"])
    return None


def _payload(request: Record) -> Any:
    given = request.part("request_inputs") if "request_inputs" in request else request
    return _loaded(given.values.get("payload", ""))


def _answered(draft: Draft, request: Record) -> int | None:
    """Return the tokens of an answer: as many as were streamed, one a response, or as an option says."""
    responses = request.values.get("response_timestamps")
    if isinstance(responses, list) and len(responses) > 1:
        draft.notes.assumed("answers of which only the responses are known: a token each")
        return len(responses)
    return output_by_option(draft)


def _loaded(text: Any) -> Any:
    """Return the JSON of a text, without the mark of a server-sent event; what is none as it is."""
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text.strip().removeprefix("data:").strip())
    except (ValueError, RecursionError):
        return text


_READERS: dict[str, Callable[[Draft, Record], None]] = {
    "GuideLLM": _guidellm, "inference-perf": _inference_perf, "GenAI-Perf": _genai_perf,
}  # fmt: skip
"""How each tool's reports are read."""
