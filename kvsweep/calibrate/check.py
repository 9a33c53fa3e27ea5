"""What a profile says of itself: for each model its domain, rows and error, and its curve beside measurements."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from kvsweep.calibrate.curves import Floats
from kvsweep.calibrate.kernels.layers import Parallel, head_seconds, token_seconds
from kvsweep.calibrate.kernels.profile import read_kernels
from kvsweep.calibrate.sources.operations import PATHS
from kvsweep.catalog.specs import Model
from kvsweep.cluster.inputs.service_profile import Profile, Service, Span
from kvsweep.cluster.inputs.step_profile import DIMS, StepProfile, Table

AXES = {
    "tokens": ("tokens",),
    "sequences": ("requests",),
    "attention": ("chunk", "before", "decodes", "context"),
    "skew": ("decodes", "chunk"),
}


@dataclass(frozen=True, slots=True)
class Line:
    """One model of a profile as `kvsweep calibrate check` prints it."""

    model: str
    rows: int
    held_out_rows: int
    held_out_error: float | None
    domain: str
    boundary: str
    source: str


def service_summary(profile: Profile) -> list[Line]:
    """Return a line a service model that was measured; those assumed have no rows and no domain."""
    lines = []
    for kind in ("prefill", "decode", *PATHS):
        model = getattr(profile, kind)
        lines.append(
            Line(
                kind,
                model.rows or 0,
                model.held_out_rows or 0,
                model.held_out_error,
                service_domain(model),
                model.boundary,
                model.source,
            )
        )
    return lines


def service_domain(model: Service) -> str:
    """Return the measured domain of a service model, as in ``tokens 1..2048``; "assumed" for one without."""
    spans = [(field.name, getattr(model, field.name)) for field in fields(model)]
    known = [f"{name.removesuffix('_range')} {s.low:g}..{s.high:g}" for name, s in spans if isinstance(s, Span)]
    return ", ".join(known) or model.kind


def summary(profile: StepProfile) -> list[Line]:
    """Return a line a model."""
    lines = []
    for name in DIMS:
        part = getattr(profile, name)
        if part is not None:
            lines.append(
                Line(
                    name,
                    part.rows,
                    part.held_out_rows,
                    part.held_out_error,
                    domain(name, part),
                    part.boundary,
                    part.source,
                )
            )
    return lines


def domain(name: str, part: Table) -> str:
    """Return the measured domain of a part, as in ``tokens 1..2048``."""
    ends = part.measured_to or tuple(points[-1] for points in part.axes)
    spans = (f"{axis} {points[0]:g}..{end:g}" for axis, points, end in zip(AXES[name], part.axes, ends, strict=True))
    return ", ".join(spans)


@dataclass(frozen=True, slots=True)
class Compared:
    """A fit beside what was measured: the points, measured and fitted [s]."""

    title: str
    x: Floats
    measured: Floats
    fitted: Floats


def compared(profile: StepProfile, folder: Path, model: Model) -> list[Compared]:
    """Return the one-dimensional curves of `profile` beside the kernel profile in `folder` that it was made of."""
    kernels = read_kernels(folder, profile.tp)
    tokens = np.array(sorted(set.intersection(*(set(curve) for curve in kernels.dense.values()))))
    sequences = np.array(sorted(set.union(*(set(curve) for curve in kernels.per_sequence.values()))))
    found = []
    if profile.tp == 1:
        measured = token_seconds(kernels, model, tokens, Parallel())
        fit = np.interp(tokens, profile.tokens.axes[0], profile.tokens.seconds)
        found.append(Compared("all but attention and head, by tokens", tokens, measured, fit))
    fit = np.interp(sequences, profile.sequences.axes[0], profile.sequences.seconds)
    found.append(Compared("head and sampler, by requests", sequences, head_seconds(kernels, sequences), fit))
    return found
