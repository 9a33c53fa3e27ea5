"""Fits of the service models of a cluster profile: prefill, decode and copies, from rows measured on parts.

Coefficients are not negative, so that models are monotone and positive; relative errors count alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvsweep.calibrate.columns import digest
from kvsweep.calibrate.curves import FEW, held_out
from kvsweep.calibrate.sources import PATHS, Measured
from kvsweep.cluster.profile import DecodeModel, PathModel, PrefillModel, Profile, Span
from kvsweep.errors import InputError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fit:
    """Error of a model on rows held out [1], the mean of |fit/measured − 1|, and the counts of rows."""

    kind: str
    rows: int
    held_out_rows: int
    error: float
    domain: str


def fitted(base: Profile, sources: Sequence[Measured]) -> tuple[Profile, list[Fit]]:
    """Return `base` with the models that `sources` measured, and how well each fits; the others stay as they are."""
    fits = []
    profile = base
    for kind in ("prefill", "decode", *PATHS):
        parts = [part for part in sources if part.kind == kind]
        if parts:
            model, fit = fit_model(kind, parts)
            changed: dict[str, Any] = {kind: model}
            profile = replace(profile, **changed)
            fits.append(fit)
    return profile, fits


def fit_model(kind: str, parts: Sequence[Measured]) -> tuple[PrefillModel | DecodeModel | PathModel, Fit]:
    """Return the model of one `kind` through all rows, and the error of the same fit without the rows held out."""
    rows = np.array([row for part in parts for row in part.rows])
    if (rows[:, 2] <= 0.0).any():
        raise InputError(f"{parts[0].source}: a time of 0 s; allowed: more")
    if len(rows) < FEW:
        turns = [np.arange(len(rows)) == i for i in range(len(rows))] if len(rows) > 3 else []
    else:
        turns = [np.array([held_out(row) for row in rows[:, :2].tolist()])]
    errors = [
        np.abs(predicted(_model(kind, rows[~out], parts), rows[out]) / rows[out, 2] - 1.0) for out in turns if out.any()
    ]
    apart = np.concatenate(errors) if errors else np.empty(0)
    error = float(apart.mean()) if len(apart) else 0.0
    domain = f"{rows[:, 0].min():g} to {rows[:, 0].max():g}, context {rows[:, 1].min():g} to {rows[:, 1].max():g}"
    return _model(kind, rows, parts), Fit(kind, len(rows), len(apart), error, domain)


def predicted(model: PrefillModel | DecodeModel | PathModel, rows: Floats) -> Floats:
    """Return the times [s] a model gives for rows (size, context)."""
    size, context = rows[:, 0], rows[:, 1]
    if isinstance(model, PrefillModel):
        pairs = size * (context + size / 2.0)
        line = model.fixed_seconds + model.token_seconds * size + model.token_pair_seconds * pairs
        return np.maximum(model.least_seconds, line)
    if isinstance(model, DecodeModel):
        base = np.interp(size, model.batch, model.base_seconds)
        return np.asarray(base + np.interp(size, model.batch, model.context_token_seconds) * context)
    return np.asarray(model.setup_seconds + size / model.bytes_per_s)


def _model(kind: str, rows: Floats, parts: Sequence[Measured]) -> PrefillModel | DecodeModel | PathModel:
    names = sorted({part.source.name for part in parts})
    hashes = digest(*sorted({part.source for part in parts}))[:16]
    common: dict[str, Any] = {"boundary": parts[0].boundary, "source": f"{', '.join(names)} (sha256 {hashes})"}
    size, context = rows[:, 0], rows[:, 1]
    spans = [Span(low=float(each.min()), high=float(each.max())) for each in (size, context)]
    if kind == "prefill":
        fixed, token, pair = _positive(
            np.stack([np.ones(len(rows)), size, size * (context + size / 2.0)], axis=1), rows
        )
        reach = Span(low=float((size + context).min()), high=float((size + context).max()))
        return PrefillModel(
            **common, kind="measured", fixed_seconds=fixed, token_seconds=max(token, 1e-12), token_pair_seconds=pair,
            tokens=spans[0], context_tokens=reach,
        )  # fmt: skip
    if kind == "decode":
        return _decode(rows, spans, common)
    setup, per_byte = _positive(np.stack([np.ones(len(rows)), size], axis=1), rows)
    if per_byte <= 0.0:
        raise InputError(f"{parts[0].source}: times that do not grow with bytes; allowed: copies of several sizes")
    return PathModel(**common, kind="measured", setup_seconds=setup, bytes_per_s=1.0 / per_byte, payload_bytes=spans[0])


def _decode(rows: Floats, spans: list[Span], common: dict[str, Any]) -> DecodeModel:
    """Return the model of measured batch sizes: a base each, and one slope per token of context where it shows.

    Bases are made not to fall with the batch; between sizes the model interpolates, as graph buckets do in steps.
    """
    batches = sorted(set(rows[:, 0].tolist()))
    columns = [(rows[:, 0] == batch).astype(float) for batch in batches]
    found = _positive(np.stack([*columns, rows[:, 1]], axis=1), rows)
    bases = np.maximum.accumulate(np.array(found[:-1]))
    return DecodeModel(
        **common, kind="measured", batch=tuple(int(batch) for batch in batches), base_seconds=tuple(bases.tolist()),
        context_token_seconds=(found[-1],) * len(batches), batch_range=spans[0], context_tokens=spans[1],
    )  # fmt: skip


def _positive(columns: Floats, rows: Floats) -> list[float]:
    """Return the coefficients, none negative, of least relative error."""
    try:
        from scipy.optimize import nnls
    except ImportError as error:
        raise InputError("scipy is missing, which fits the models; pip install 'kvsweep[fit]'") from error
    scale = np.abs(columns).max(axis=0)
    scale[scale == 0.0] = 1.0
    found, _ = nnls(columns / scale / rows[:, 2:3], np.ones(len(rows)))
    return [float(value) for value in found / scale]
