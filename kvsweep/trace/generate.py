"""Made-up traces with a seed: document questions, coding sessions, and requests that share nothing.

Lengths are log-normal. Equal parameters and seed give equal traces.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kvsweep.trace.build import Builder
from kvsweep.trace.model import Notes, Trace

MAX_CONTEXT = 131_072
"""Longest prompt of a coding session, which then ends [token]."""
_SECONDS_PER_TOKEN = 0.028
"""Pace of the recorded answers, mean of api / out of the weka sessions [s]."""
_SPREAD = 0.5
"""Sigma of the logarithm of document, question and answer lengths [1]."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Parameters of a generator."""

    request_rate: float
    """Mean arrival rate of requests [1/s]."""
    input_tokens: float
    """Mean length of a document (qa), of the first prompt of a session (coding), of a prompt (uniform) [token]."""
    output_tokens: float
    """Mean length of an answer [token]."""
    turns: float
    """Mean number of questions to a document (qa) or of turns in a session (coding) [1]."""
    think_seconds: float
    """Mean pause between an answer and the next turn (coding) [s]."""
    block_size: int = 64
    """Tokens in a block [token]."""
    max_context: int = 0
    """Longest prompt and answer together of a session, which ends before (coding); 0 for prompts of `MAX_CONTEXT`
    [token]."""
    arrivals: Literal["poisson", "fixed"] = "poisson"
    """Requests (qa, uniform) or session starts (coding) at random times or evenly spaced."""


def qa(n_documents: int, workload: Workload, seed: int) -> Trace:
    """Return questions to `n_documents` documents in random order: prompts share a document (a group) as prefix."""
    rng = np.random.default_rng(seed)
    n_questions = 1 + rng.poisson(max(0.0, workload.turns - 1.0), n_documents)
    document = rng.permutation(np.repeat(np.arange(n_documents), n_questions))
    lengths = _lognormal(rng, workload.input_tokens, _SPREAD, n_documents)
    questions = _lognormal(rng, 32.0, _SPREAD, len(document))
    answers = _lognormal(rng, workload.output_tokens, _SPREAD, len(document))
    arrival = _arrivals(rng, len(document), workload.request_rate, workload.arrivals)
    size, builder = workload.block_size, Builder(Notes())
    bases = np.concatenate(([0], np.cumsum(lengths // size))).tolist()
    own = bases[-1]  # ids from here on belong to one request each
    for i, group in enumerate(document.tolist()):
        shared = int(lengths[group]) // size
        n_input = int(lengths[group] + questions[i])
        runs = ((bases[group], own), (shared, n_input // size - shared))
        own += runs[1][1]
        builder.add(float(arrival[i]), (n_input, int(answers[i])), runs=runs, group=group)
    return builder.finish(size, _source("qa", n_documents, workload, seed))


def uniform(n_requests: int, workload: Workload, seed: int) -> Trace:
    """Return `n_requests` requests that share nothing, lengths uniform from half to one and a half of their means."""
    rng = np.random.default_rng(seed)
    inputs, outputs = (
        np.maximum(1, np.round(rng.uniform(0.5, 1.5, n_requests) * mean)).astype(np.int64).tolist()
        for mean in (workload.input_tokens, workload.output_tokens)
    )
    arrival = _arrivals(rng, n_requests, workload.request_rate, workload.arrivals).tolist()
    builder, base = Builder(Notes()), 0
    for i, n_input in enumerate(inputs):
        count = n_input // workload.block_size
        builder.add(arrival[i], (n_input, outputs[i]), runs=((base,), (count,)))
        base += count
    return builder.finish(workload.block_size, _source("uniform", n_requests, workload, seed))


def coding(n_sessions: int, workload: Workload, seed: int) -> Trace:
    """Return `n_sessions` coding sessions: each turn's prompt is the one before, its answer and some new text.

    All share a system prompt of a sixth of the first prompt. Tails are as heavy as in the weka sessions (answers
    and new text: mean about twice the median, pauses: fourteen times).
    """
    rng = np.random.default_rng(seed)
    starts = _arrivals(rng, n_sessions, workload.request_rate / workload.turns, workload.arrivals)
    turns = rng.geometric(1.0 / max(1.0, workload.turns), n_sessions)
    first = _lognormal(rng, workload.input_tokens, 0.7, n_sessions)
    size, builder = workload.block_size, Builder(Notes())
    system = int(workload.input_tokens / 6) // size
    base = system
    for session in range(n_sessions):
        time, n_input = float(starts[session]), min(int(first[session]), MAX_CONTEXT)
        n_turns = int(turns[session])
        answers = _lognormal(rng, workload.output_tokens, 1.2, n_turns).tolist()
        if workload.max_context:
            answers[0] = min(answers[0], workload.max_context - 1)
            n_input = min(n_input, workload.max_context - answers[0])
        added = _lognormal(rng, 2.0 * workload.output_tokens, 1.4, n_turns).tolist()
        pauses = _heavy(rng, workload.think_seconds, 2.3, n_turns).tolist()
        longest = 0
        for turn in range(n_turns):
            shared = min(system, n_input // size)
            runs = ((0, base), (shared, n_input // size - shared))
            builder.add(
                time, (n_input, answers[turn]), runs=runs, session=session, group=session, think=pauses[turn]
            )  # fmt: skip
            longest = runs[1][1]
            n_input += answers[turn] + added[turn]
            if n_input > MAX_CONTEXT or turn + 1 == n_turns:
                break
            if workload.max_context and n_input + answers[turn + 1] > workload.max_context:
                break
            time += answers[turn] * _SECONDS_PER_TOKEN + pauses[turn + 1]
        base += longest
    return builder.finish(size, _source("coding", n_sessions, workload, seed), as_in_file=False)


PRESETS: dict[str, tuple[Callable[[int, Workload, int], Trace], Workload, str]] = {
    "qa": (qa, Workload(1.0, 5000.0, 128.0, 5.0, 0.0), "documents with questions to each"),
    "coding": (coding, Workload(0.25, 24_000.0, 425.0, 40.0, 60.0), "coding sessions with growing contexts"),
    "uniform": (uniform, Workload(1.0, 2000.0, 256.0, 1.0, 0.0), "requests that share nothing"),
}
"""Generator, default parameters and description of each preset."""


def generate(preset: str, n_sessions: int, seed: int, **changes: object) -> Trace:
    """Return the trace of a preset with `n_sessions` documents, sessions or requests and changed parameters."""
    generator, workload, _ = PRESETS[preset]
    return generator(n_sessions, replace(workload, **changes), seed)  # type: ignore[arg-type]


def _source(preset: str, n_sessions: int, workload: Workload, seed: int) -> str:
    return f"generated: {preset}, {n_sessions} sessions, seed {seed}, {workload.request_rate:g} requests/s"


def _arrivals(rng: np.random.Generator, count: int, rate: float, kind: str) -> NDArray[np.float64]:
    """Return `count` times from 0 on [s], in whole microseconds."""
    gaps = rng.exponential(1.0 / rate, count) if kind == "poisson" else np.full(count, 1.0 / rate)
    times: NDArray[np.float64] = np.round(np.cumsum(gaps) - gaps[:1], 6)
    return times


def _lognormal(rng: np.random.Generator, mean: float, sigma: float, count: int) -> NDArray[np.int64]:
    """Return `count` whole numbers of at least 1 with about this mean."""
    return np.maximum(1, np.round(_heavy(rng, mean, sigma, count))).astype(np.int64)


def _heavy(rng: np.random.Generator, mean: float, sigma: float, count: int) -> NDArray[np.float64]:
    if mean == 0.0:
        return np.zeros(count)
    return np.round(rng.lognormal(math.log(mean) - sigma**2 / 2, sigma, count), 3)
