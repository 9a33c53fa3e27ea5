"""Service models: how long an eligible operation takes, from its own sizes alone.

A profile file holds one model per operation, each with its timing boundary, coefficients, measured domain and origin.
The core computes with integers made of them (`Coefficients`), so that a run is the same to the last bit everywhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsweep.catalog.fields import Range, read_batch_sizes, read_fields, read_record, require_fields
from kvsweep.catalog.specs import USER_SOURCE, Kind
from kvsweep.errors import InputError, shown
from kvsweep.yamlfile import read_yaml_file

Seconds = Annotated[float, Range("s", 0.0, 100.0)]
PerToken = Annotated[float, Range("s", 0.0, 1.0)]
Rate = Annotated[float, Range("byte/s", 1e6, 1e15)]
Amount = Annotated[float, Range("1", 0.0, 1e15)]
Rows = Annotated[int, Range("rows", 0, 1e9)]

FEMTO = 1e15
ATTO = 1e18


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A measured range, ends included."""

    low: Amount = 0.0
    high: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What every model states: the interval it times, and where its figures are from.

    A model without a measured domain counts every operation as extrapolated. `held_out_error` is the mean of
    |fit/measured - 1| over `held_out_rows` that the fit did not see.
    """

    boundary: str
    source: str = USER_SOURCE
    kind: Kind = "assumed"
    rows: Rows | None = None
    held_out_rows: Rows | None = None
    held_out_error: Annotated[float, Range("1", 0.0, 1e6)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillModel(Service):
    """Time of a prefill step: ``max(least, fixed + token·x + token_pair·Σ(end² − begin²)/2)``.

    `tokens` is the measured range of tokens x executed in a step, `context_tokens` that of the last position reached.
    """

    fixed_seconds: Seconds = 0.0
    token_seconds: PerToken
    token_pair_seconds: PerToken = 0.0
    least_seconds: Seconds = 0.0
    tokens: Span | None = None
    context_tokens: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeModel(Service):
    """Time of a decode step: ``base + context_token·Σ context``, both given for some `batch` sizes [requests].

    Between the sizes given they are interpolated, beyond them continued linearly. `batch_range` and
    `context_tokens` (summed over the batch) are the measured ranges.
    """

    batch: tuple[int, ...] = ()
    base_seconds: tuple[float, ...] = ()
    context_token_seconds: tuple[float, ...] = ()
    batch_range: Span | None = None
    context_tokens: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PathModel(Service):
    """Time of a copy: ``setup + bytes / rate``; `payload_bytes` is the measured range."""

    setup_seconds: Seconds = 0.0
    bytes_per_s: Rate
    payload_bytes: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The service models of one model on one kind of worker.

    `l3_query_seconds` is the time L3 takes to look up a batch of pages; `n_layers` [1] is how finely loading from the
    host and computing overlap in the engine.
    """

    name: str
    model: str = ""
    gpu: str = ""
    tp: Annotated[int, Range("GPUs", 1, 1024)]
    kv_bytes_per_token: Annotated[float, Range("byte", 1.0, 1e9)]
    note: str = ""
    prefill: PrefillModel
    decode: DecodeModel
    handoff: PathModel
    h2d: PathModel
    d2h: PathModel
    l3_read: PathModel | None = None
    l3_write: PathModel | None = None
    l3_query_seconds: Seconds = 0.0
    n_layers: Annotated[int, Range("layers", 1, 1e4)] | None = None

    @property
    def kind(self) -> Kind:
        """Return the weakest kind of its models: one assumption makes the whole an assumption."""
        parts = (self.prefill, self.decode, self.handoff, self.h2d, self.d2h, self.l3_read, self.l3_write)
        kinds = {part.kind for part in parts if part is not None}
        return "assumed" if "assumed" in kinds else ("vendor" if "vendor" in kinds else "measured")


class Coefficients(NamedTuple):
    """A profile as the core takes it, integers throughout."""

    prefill: NDArray[np.int64]
    """Fixed, per token, per pair, least [fs]."""
    paths: NDArray[np.int64]
    """(handoff, H2D, D2H) x (setup [fs], per byte [1e-18 s])."""
    page_bytes: int
    """Bytes of a page [byte]."""
    domain: NDArray[np.int64]
    """(prefill tokens, context; decode batch, context; handoff, H2D, D2H bytes) x (low, high), high < low for none."""


def read_profile(path: Path) -> Profile:
    """Return the profile file at `path`; raises InputError naming file, field and what is allowed."""
    return parse_profile(read_yaml_file(path), str(path))


def parse_profile(values: Mapping[str, Any], where: str) -> Profile:
    """Return the profile stated by `values`, as in a profile file; `where` is what messages call it."""
    values = dict(values)
    if "format" in values:
        raise InputError(
            f"{where}: format: {shown(values['format'])}; allowed: a profile of service models, which `kvsweep cluster "
            "init` writes and `kvsweep calibrate` makes of a step profile"
        )
    decode = values.pop("decode", None)
    fields = read_fields(Profile, values, where)
    fields["decode"] = _decode_model(decode, f"{where}: decode")
    require_fields(Profile, fields, where, {})
    profile = Profile(**fields)
    spans = _spans(profile)
    for name in ("l3_read", "l3_write"):
        path = getattr(profile, name)
        spans[f"{name}: payload_bytes"] = path.payload_bytes if path is not None else None
    for name, span in spans.items():
        if span is not None and span.low > span.high:
            raise InputError(
                f"{where}: {name}: low {span.low:g} is above high {span.high:g}; allowed: low at most high"
            )
    return profile


def _spans(profile: Profile) -> dict[str, Span | None]:
    """Return the measured ranges by where they stand in the file, in the order of `Coefficients.domain`."""
    prefill, decode = profile.prefill, profile.decode
    return {
        "prefill: tokens": prefill.tokens,
        "prefill: context_tokens": prefill.context_tokens,
        "decode: batch_range": decode.batch_range,
        "decode: context_tokens": decode.context_tokens,
        "handoff: payload_bytes": profile.handoff.payload_bytes,
        "h2d: payload_bytes": profile.h2d.payload_bytes,
        "d2h: payload_bytes": profile.d2h.payload_bytes,
    }


def profile_mapping(profile: Profile) -> dict[str, Any]:
    """Return `profile` as a profile file would state it."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(item) for name, item in value.items() if item is not None and item != ""}
        return list(value) if isinstance(value, tuple) else value

    found: dict[str, Any] = plain(dataclasses.asdict(profile))
    return found


def coefficients(profile: Profile, page_size: int) -> Coefficients:
    """Return the integers of `profile` for pages of `page_size` [token]."""
    model = profile.prefill
    prefill = [model.fixed_seconds, model.token_seconds, model.token_pair_seconds, model.least_seconds]
    paths = (profile.handoff, profile.h2d, profile.d2h)
    spans = _spans(profile).values()
    return Coefficients(
        prefill=np.array([round(FEMTO * value) for value in prefill], dtype=np.int64),
        paths=np.array([path_coefficients(path) for path in paths], dtype=np.int64),
        page_bytes=round(page_size * profile.kv_bytes_per_token),
        domain=np.array([(ceil(s.low), floor(s.high)) if s else (1, 0) for s in spans], dtype=np.int64),
    )


def path_coefficients(path: PathModel) -> tuple[int, int]:
    """Return setup [fs] and time per byte [1e-18 s] of `path`."""
    return round(FEMTO * path.setup_seconds), round(ATTO / path.bytes_per_s)


def decode_coefficients(profile: Profile, buckets: Sequence[int], max_running: int) -> NDArray[np.int64]:
    """Return (base, per context token) [fs] of batches 0..`max_running`, each at the least bucket that holds it."""
    sizes = np.arange(max_running + 1)
    place = np.searchsorted(np.asarray(buckets), sizes)
    padded = np.where(place < len(buckets), np.append(buckets, 0)[place], sizes)
    model = profile.decode
    found = [_continued(padded, model.batch, values) for values in (model.base_seconds, model.context_token_seconds)]
    longest = max(float(values.max()) for values in found)
    if longest > 1000.0:
        raise InputError(
            f"profile {profile.name!r}: decode: goes on to {longest:.3g} s for batches of {padded.max()}; "
            "allowed: at most 1000 s, or a larger last batch size"
        )
    return np.ascontiguousarray(np.round(FEMTO * np.stack(found, axis=1)).astype(np.int64))


def _continued(at: NDArray[np.int64], batch: Sequence[int], values: Sequence[float]) -> NDArray[np.float64]:
    """Return `values` (given at `batch`) at other batch sizes, never below 0."""
    if len(batch) == 1:
        return np.full(len(at), values[0])
    inside = np.interp(at, batch, values)
    slope = (values[-1] - values[-2]) / (batch[-1] - batch[-2])
    beyond = np.maximum(0, at - batch[-1]) * slope
    return np.asarray(np.maximum(0.0, inside + beyond))


def _decode_model(values: object, where: str) -> DecodeModel:
    if not isinstance(values, Mapping):
        raise InputError(f"{where}: missing; allowed: boundary, batch, base_seconds, context_token_seconds")
    fields = dict(values)
    batch = read_batch_sizes(fields.pop("batch", None), f"{where}: batch")
    base = _column(fields.pop("base_seconds", None), len(batch), 100.0, f"{where}: base_seconds")
    slope = _column(fields.pop("context_token_seconds", None), len(batch), 1.0, f"{where}: context_token_seconds")
    model: DecodeModel = read_record(DecodeModel, fields, where)
    return dataclasses.replace(model, batch=batch, base_seconds=base, context_token_seconds=slope)


def _column(values: object, length: int, most: float, where: str) -> tuple[float, ...]:
    """Return `length` numbers of 0 to `most` [s]."""
    if not isinstance(values, list) or len(values) != length or not all(_is_within(value, most) for value in values):
        raise InputError(f"{where}: {shown(values)}; allowed: one number of 0 to {most:g} s for each batch size")
    return tuple(float(value) for value in values)


def _is_within(value: object, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value <= most
