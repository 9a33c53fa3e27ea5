"""Requests beyond the model's context, before the core sees them: engines refuse these at the door.

vLLM (``max_model_len``) and SGLang (``--context-length``) answer 400 to a request whose prompt and answer together are
longer than the context, whatever room the workers have. SGLang's ``--allow-auto-truncate`` keeps the first tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kvsweep.catalog.load import load
from kvsweep.cluster.inputs.config import ClusterConfig
from kvsweep.cluster.inputs.profiles import AnyProfile
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.segments import remembered
from kvsweep.cluster.shared.state import State
from kvsweep.errors import InputError
from kvsweep.trace.model import Floats, Note, NoteKind, Trace

DONE: Mapping[str, tuple[NoteKind, str]] = {
    "refuse": ("dropped", "refused, as the engine does (context: beyond: cut or serve)"),
    "cut": ("assumed", "cut to it (context: beyond: cut)"),
    "serve": ("doubtful", "served, though an engine refuses them (context: beyond: serve)"),
}
"""What becomes of requests beyond the context, by `beyond`: kind and text of the note."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The requests of a trace that workers get, and what became of the others."""

    trace: Trace
    """What is played."""
    asked: Trace
    """What arrives: `trace` and what is refused of it."""
    kept: NDArray[np.bool_]
    """Which requests of `asked` are in `trace`; (request)."""
    n_beyond: int
    """Requests beyond the context."""
    notes: tuple[Note, ...] = ()

    def whole(self, state: State, closed: bool) -> State:
        """Return the end of a run of `trace` as one of `asked`: with rows for the refused requests."""
        if self.kept.all():
            return state
        request = np.full((len(self.kept), state.request.shape[1]), -1, dtype=np.int64)
        request[self.kept] = state.request
        refused = ~self.kept
        if not closed:  # in closed loop, nobody knows when
            request[refused, col.ARRIVAL] = np.round(self.asked.arrival[refused] * 1e12).astype(np.int64)
        request[refused, col.PROMPT] = self.asked.input_tokens[refused]
        request[refused, col.OUTPUT] = self.asked.output_tokens[refused]
        request[refused, col.SESSION] = self.asked.session[refused]
        request[refused, col.REJECTED] = 1
        return state._replace(request=request)


def with_context(config: ClusterConfig, profile: AnyProfile) -> ClusterConfig:
    """Return `config` with the context its file leaves to the catalog, by the model of the profile."""
    if config.context.tokens is not None:
        return config
    models = load().models
    # Names of hubs are those of the catalog after the maker's.
    model = models.get(profile.model) or models.get(profile.model.rpartition("/")[2].casefold())
    shape = model.shape if model is not None else None
    tokens = int(shape.max_context) if shape is not None and shape.max_context is not None else None
    return replace(config, context=replace(config.context, tokens=tokens))


def admitted(trace: Trace, config: ClusterConfig) -> Admitted:
    """Return what workers get of `trace`; raises InputError where that is nothing."""
    limit, done = config.context.tokens, config.context.beyond
    beyond = trace.input_tokens + trace.output_tokens > (limit if limit is not None else np.inf)
    n_beyond = int(beyond.sum())
    if limit is None or not n_beyond:
        return Admitted(trace, trace, ~beyond, 0)
    if done == "refuse" and n_beyond == len(trace):
        raise InputError(f"context: all {n_beyond} requests are longer than {limit} tokens, prompt and answer; "
                         "allowed: shorter ones, or context: {beyond: cut} or {beyond: serve}")  # fmt: skip
    kind, what = DONE[done]
    notes = (Note(kind, f"prompt and answer beyond the context of {limit} tokens: {what}", n_beyond),)
    if done == "refuse":
        played = _without(trace, ~beyond, limit)
        if config.workload.mode == "closed":
            played = replace(played, think=_thinking(trace, ~beyond))
        return Admitted(played, trace, ~beyond, n_beyond, notes)
    served = _cut(trace, limit) if done == "cut" else trace
    return Admitted(served, served, np.ones(len(trace), dtype=bool), n_beyond, notes)


def _cut(trace: Trace, limit: int) -> Trace:
    """Return the trace with prompts of at most `limit` - 1 tokens, and answers of what is left."""
    inputs = np.minimum(trace.input_tokens, max(1, limit - 1))
    return replace(
        trace, input_tokens=inputs, output_tokens=np.maximum(1, np.minimum(trace.output_tokens, limit - inputs))
    )


def _without(trace: Trace, kept: NDArray[np.bool_], limit: int) -> Trace:
    """Return the requests `kept` at their own times."""
    # Blocks and lengths are the same however arrivals are scaled.
    key = (id(trace.blocks), id(trace.input_tokens), id(trace.output_tokens), limit)
    return replace(remembered(key, trace, lambda: trace.select(kept)), arrival=trace.arrival[kept])


def _thinking(trace: Trace, kept: NDArray[np.bool_]) -> Floats:
    """Return the think times of the requests `kept` [s], each with those of the turns left out before it."""
    think = trace.think.copy()
    order = np.argsort(trace.session, kind="stable").tolist()
    for before, i in pairwise(order):
        if not kept[before] and trace.session[before] == trace.session[i] >= 0:
            think[i] += 0.0 if np.isnan(think[before]) else think[before]
    return think[kept]
