"""Fits of the service models of a cluster profile: prefill, decode and copies, from rows measured on parts.

Coefficients are not negative, so that models are monotone and positive; relative errors count alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvsweep.calibrate.curves import FEW, held_out, positive
from kvsweep.calibrate.sources.columns import digest
from kvsweep.calibrate.sources.operations import PATHS, Measured, Operation
from kvsweep.cluster.inputs.service_profile import (
    DecodeModel,
    PathModel,
    PrefillModel,
    Profile,
    Span,
    parse_profile,
    profile_mapping,
)
from kvsweep.errors import InputError

Floats = NDArray[np.float64]
TIME, REQUESTS = Operation._fields.index("seconds"), Operation._fields.index("requests")
LEAST_PLACES = 3
"""With so few places none is held out: what is left is too little for a fit."""


def fitted(base: Profile, sources: Sequence[Measured]) -> Profile:
    """Return `base` with the models that `sources` measured; the others stay as they are."""
    changed: dict[str, Any] = {}
    for kind in ("prefill", "decode", *PATHS):
        parts = [part for part in sources if part.kind == kind]
        if parts:
            changed[kind] = fit_model(kind, parts)
    profile = replace(base, **changed)
    return parse_profile(profile_mapping(profile), f"fitted to {', '.join(sorted({s.source.name for s in sources}))}")


def up_to(sources: Sequence[Measured], tokens: int) -> list[Measured]:
    """Return `sources` without prefill steps of more than `tokens`."""
    found = []
    for part in sources:
        kept = tuple(row for row in part.rows if part.kind != "prefill" or row.size <= tokens)
        if not kept:
            raise InputError(f"--most-tokens: {part.source} has no prefill step of at most {tokens}; allowed: more")
        left = len(part.rows) - len(kept)
        note = "; ".join(text for text in (part.note, f"steps of at most {tokens} tokens" if left else "") if text)
        found.append(replace(part, rows=kept, note=note))
    return found


def fit_model(kind: str, parts: Sequence[Measured]) -> PrefillModel | DecodeModel | PathModel:
    """Return the model of one `kind` through all rows, with the error of the same fit without the rows held out.

    Rows of equal sizes are held out together: a repetition says nothing of a model.
    """
    rows = np.array([row for part in parts for row in part.rows])
    if (rows[:, TIME] <= 0.0).any():
        raise InputError(f"{parts[0].source}: a time of 0 s; allowed: more")
    if kind == "prefill" and len(np.unique(rows[:, 0])) == 1:
        raise InputError(f"{parts[0].source}: prefill steps of {rows[0, 0]:g} tokens alone; allowed: two sizes or more")
    errors = [
        np.abs(predicted(_model(kind, rows[~out], parts), rows[out]) / rows[out, TIME] - 1.0) for out in _turns(rows)
    ]
    apart = np.concatenate(errors) if errors else np.empty(0)
    error = float(f"{apart.mean():.5g}") if len(apart) else None
    return replace(_model(kind, rows, parts), rows=len(rows), held_out_rows=len(apart), held_out_error=error)


def _turns(rows: Floats) -> list[NDArray[np.bool_]]:
    """Return which rows are held out, by turns: one place of few, or a tenth of the places of many.

    The only place of the least or of the largest size stays: without it the fit would be judged beyond its domain.
    """
    places = [tuple(row) for row in rows[:, [0, 1, REQUESTS]].tolist()]
    distinct = sorted(set(places))
    sizes = [place[0] for place in distinct]
    ends = {end for end in (sizes[0], sizes[-1]) if sizes.count(end) == 1}
    inner = [place for place in distinct if place[0] not in ends]
    if len(distinct) <= LEAST_PLACES:
        return []
    turns = [{place} for place in inner] if len(distinct) < FEW else [{place for place in inner if held_out(place)}]
    return [np.array([place in out for place in places]) for out in turns if out]


def predicted(model: PrefillModel | DecodeModel | PathModel, rows: Floats) -> Floats:
    """Return the times [s] a model gives for rows of `Operation`."""
    size, context = rows[:, 0], rows[:, 1]
    if isinstance(model, PrefillModel):
        line = model.fixed_seconds + model.token_seconds * size + model.token_pair_seconds * _pairs(rows)
        return np.maximum(model.least_seconds, line)
    if isinstance(model, DecodeModel):
        base = np.interp(size, model.batch, model.base_seconds)
        return np.asarray(base + np.interp(size, model.batch, model.context_token_seconds) * context)
    return np.asarray(model.setup_seconds + size / model.bytes_per_s)


def _pairs(rows: Floats) -> Floats:
    """Return the query-key pairs of prefill rows: each of their prompts attends to itself and what is before it."""
    return np.asarray(rows[:, 0] * (rows[:, 1] + rows[:, 0] / rows[:, REQUESTS] / 2.0))


def _model(kind: str, rows: Floats, parts: Sequence[Measured]) -> PrefillModel | DecodeModel | PathModel:
    names = sorted({part.source.name for part in parts})
    hashes = digest(*sorted({part.source for part in parts}))[:16]
    notes = "; ".join(sorted({part.note for part in parts if part.note}))
    source = f"{', '.join(names)} (sha256 {hashes}){f'; {notes}' if notes else ''}"
    common: dict[str, Any] = {"boundary": parts[0].boundary, "source": source}
    spans = [Span(low=float(each.min()), high=float(each.max())) for each in (rows[:, 0], rows[:, 1])]
    if kind == "prefill":
        return _prefill(rows, spans[0], common)
    if kind == "decode":
        return _decode(rows, spans, common)
    setup, per_byte = positive(np.stack([np.ones(len(rows)), rows[:, 0]], axis=1), rows[:, TIME])
    if per_byte <= 0.0:
        raise InputError(f"{parts[0].source}: times that do not grow with bytes; allowed: copies of several sizes")
    return PathModel(**common, kind="measured", setup_seconds=setup, bytes_per_s=1.0 / per_byte, payload_bytes=spans[0])


def _prefill(rows: Floats, tokens: Span, common: dict[str, Any]) -> PrefillModel:
    """Return the model of least squared relative error over all choices of which smallest steps take the least time."""
    reach = rows[:, 1] + rows[:, 0] / rows[:, REQUESTS]
    common = common | {"tokens": tokens, "context_tokens": Span(low=float(reach.min()), high=float(reach.max()))}
    best: tuple[float, PrefillModel] | None = None
    for floor in (0.0, *sorted(set(rows[:, 0].tolist()))[:-1]):
        flat = rows[:, 0] <= floor
        if len(set(rows[~flat, 0].tolist())) < min(2, len(set(rows[:, 0].tolist()))):
            continue
        grown = rows[~flat]
        columns = np.stack([np.ones(len(grown)), grown[:, 0], _pairs(grown)], axis=1)
        fixed, token, pair = positive(columns, grown[:, TIME])
        # The constant of least squared relative error: the mean of 1/t over the mean of 1/t².
        least = float((1.0 / rows[flat, TIME]).sum() / (1.0 / rows[flat, TIME] ** 2).sum()) if flat.any() else 0.0
        model = PrefillModel(
            **common, kind="measured", fixed_seconds=fixed, token_seconds=max(token, 1e-12), token_pair_seconds=pair,
            least_seconds=least,
        )  # fmt: skip
        error = float(((predicted(model, rows) / rows[:, TIME] - 1.0) ** 2).sum())
        if best is None or error < best[0] * (1.0 - 1e-9):
            best = error, model
    assert best is not None
    return best[1]


def _decode(rows: Floats, spans: list[Span], common: dict[str, Any]) -> DecodeModel:
    """Return the model of measured batch sizes: a base each, and one slope per token of context where it shows.

    Bases are made not to fall with the batch; between sizes the model interpolates, as graph buckets do in steps.
    """
    batches = sorted(set(rows[:, 0].tolist()))
    columns = [(rows[:, 0] == batch).astype(float) for batch in batches]
    found = positive(np.stack([*columns, rows[:, 1]], axis=1), rows[:, TIME])
    bases = np.maximum.accumulate(np.array(found[:-1]))
    return DecodeModel(
        **common, kind="measured", batch=tuple(int(batch) for batch in batches), base_seconds=tuple(bases.tolist()),
        context_token_seconds=(found[-1],) * len(batches), batch_range=spans[0], context_tokens=spans[1],
    )  # fmt: skip
