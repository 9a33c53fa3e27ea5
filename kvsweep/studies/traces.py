"""The traces of a study: files, or what the generators make; read once, scaled as the axes ask."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from kvsweep.catalog.fields import Range, read_record
from kvsweep.errors import InputError, shown, unknown_name
from kvsweep.trace.convert import grid_seconds, scale_time, scale_to_rate, spread
from kvsweep.trace.generate import PRESETS, Workload, generate
from kvsweep.trace.model import Note, Trace
from kvsweep.trace.options import MAX_BLOCK_SIZE, ReadOptions, SessionMeaning, TimeUnit
from kvsweep.trace.read import read_trace
from kvsweep.trace.sample import hashed_sample, interquartile_sample

YesNo = Annotated[int, Range("1", 0, 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTrace:
    """A trace file, what is told of it (`ReadOptions`), and what is done to it after reading, in this order.

    `longest_tokens` leaves out sessions with a request of more tokens (0: none), `interquartile` those of unusual
    length, `sample` is the share of groups or sessions kept, `requests` the number kept from the front (0: all).
    """

    file: str
    label: str = ""
    format: str | None = None
    time_unit: TimeUnit | None = None
    block_size: Annotated[int, Range("tokens", 1, MAX_BLOCK_SIZE)] | None = None
    sessions: SessionMeaning | None = None
    output_tokens: Annotated[int, Range("tokens", 1, 1e8)] | None = None
    characters_per_token: Annotated[float, Range("1", 1e-3, 1e6)] | None = None
    session_rate: Annotated[float, Range("1/s", 1e-9, 1e6)] = 1 / 60
    sample: Annotated[float, Range("1", 1e-6, 1.0)] = 1.0
    longest_tokens: Annotated[int, Range("tokens", 1, 1e9, or_zero=True)] = 0
    interquartile: YesNo = 0
    spread: YesNo = 0
    requests: Annotated[int, Range("requests", 0, 1e9)] = 0

    def make(self, folder: Path, seed: int) -> Trace:
        """Return the trace; `seed` chooses what the file leaves open: session starts, the sample, times in a bin."""
        path = folder / self.file
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise InputError(f"{path}: is a pipe or a device, which is read but once; allowed in studies: a file")
        told = {item.name: getattr(self, item.name) for item in dataclasses.fields(ReadOptions) if item.name != "seed"}
        try:
            trace = read_trace(path, ReadOptions(seed=seed, **told))
        except InputError as error:
            raise InputError(_as_fields(str(error))) from error
        if self.longest_tokens:
            trace = _fitting(trace, self.longest_tokens)
        if self.interquartile:
            trace = interquartile_sample(trace)
        if self.sample < 1.0:
            trace = hashed_sample(trace, self.sample, seed)
        if self.requests:
            trace = trace.select(np.arange(min(self.requests, len(trace))))
        step = grid_seconds(trace) if self.spread else None
        return spread(trace, step, seed) if step else trace


@dataclass(frozen=True, slots=True)
class MadeTrace:
    """A trace of a generator: preset, sessions, changed parameters; `seed` moves all seeds of the study.

    `longest_tokens` leaves out sessions with a request of more tokens, `keep_sessions` keeps the first of the others
    (0: all).
    """

    preset: str
    sessions: int
    label: str
    seed: int
    changes: Mapping[str, Any] = field(default_factory=dict)
    longest_tokens: int = 0
    keep_sessions: int = 0

    def make(self, folder: Path, seed: int) -> Trace:
        """Return the trace made with the seed of the study's axis added to its own."""
        trace = generate(self.preset, self.sessions, self.seed + seed, **self.changes)
        if self.longest_tokens:
            trace = _fitting(trace, self.longest_tokens)
        return trace.select(trace.session < self.keep_sessions) if self.keep_sessions else trace


def _as_fields(message: str) -> str:
    """Return a message with the names that options have in study files."""
    return re.sub(r"(?<![\w-])--([a-z-]+)", lambda match: match[1].replace("-", "_"), message)


_WHOLE = {
    "sessions": (1, 10_000_000), "seed": (0, 2**31 - 1), "longest_tokens": (0, 10**9), "keep_sessions": (0, 10**7),
}  # fmt: skip
"""Whole numbers of a made trace and their range; what may be 0 may be left out."""

_WHOLE_PARAMETERS = {"block_size": (1, MAX_BLOCK_SIZE), "max_context": (0, 10**7)}
"""Whole numbers among the parameters of generators, and their range [token]."""

TraceSpec = FileTrace | MadeTrace


def read_spec(given: Any, where: str) -> TraceSpec:
    """Return the trace a study describes: a file name, ``{file: …}`` or ``{generate: preset, sessions: …}``."""
    if isinstance(given, str) and given.strip():
        return FileTrace(file=given, label=Path(given).name.partition(".")[0])
    if not isinstance(given, Mapping):
        raise InputError(f"{where}: {shown(given)} is no trace; allowed: a file, {{file: …}} or {{generate: …}}")
    values = dict(given)
    if "generate" not in values:
        values = {name: int(value) if isinstance(value, bool) else value for name, value in values.items()}
        spec: FileTrace = read_record(FileTrace, values, where)
        return spec if spec.label else dataclasses.replace(spec, label=Path(spec.file).name.partition(".")[0])
    return _made(values, where)


def _made(values: dict[str, Any], where: str) -> MadeTrace:
    preset = values.pop("generate")
    if preset not in PRESETS:
        raise unknown_name(f"{where}: generate", preset, PRESETS)
    whole = {name: _whole(values, name, *bounds, where) for name, bounds in _WHOLE.items()}
    label = values.pop("label", preset)
    if not isinstance(label, str) or not label.strip():
        raise InputError(f"{where}: label: {shown(label)} is not text; allowed: a short name")
    known = {item.name: item for item in dataclasses.fields(Workload)}
    for name, value in values.items():
        if name not in known:
            raise unknown_name(f"{where}: field", name, ["generate", "label", *_WHOLE, *known])
        if name == "arrivals":
            if value not in ("poisson", "fixed"):
                raise unknown_name(f"{where}: arrivals", value, ("poisson", "fixed"))
        elif name in _WHOLE_PARAMETERS:
            low, high = _WHOLE_PARAMETERS[name]
            if type(value) is not int or not low <= value <= high:
                raise InputError(f"{where}: {name}: {shown(value)}; allowed: a whole number of {low} to {high} tokens")
        elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
            raise InputError(f"{where}: {name}: {shown(value)}; allowed: a number of 0 to 1e9")
    return MadeTrace(preset, label=label, changes=values, **whole)


def _whole(values: dict[str, Any], name: str, least: int, most: int, where: str) -> int:
    value = values.pop(name, 0 if not least else None)
    if type(value) is not int or not least <= value <= most:
        raise InputError(f"{where}: {name}: {shown(value)}; allowed: a whole number of {least} to {most}")
    return value


def spec_mapping(spec: TraceSpec) -> dict[str, Any]:
    """Return `spec` as a study would state it."""
    if isinstance(spec, MadeTrace):
        made: dict[str, Any] = {"generate": spec.preset, "label": spec.label}
        return {**made, **{name: getattr(spec, name) for name in _WHOLE}, **spec.changes}
    defaults = {item.name: item.default for item in dataclasses.fields(FileTrace)}
    return {name: value for name, value in dataclasses.asdict(spec).items() if value != defaults[name]}


def arriving(trace: Trace, rate: float | None, scale: float) -> Trace:
    """Return `trace` at a mean `rate` of arrivals [1/s], None for its own, times `scale`."""
    if rate is not None:
        trace = scale_to_rate(trace, rate)
    return trace if scale == 1.0 else scale_time(trace, 1.0 / scale)


def _fitting(trace: Trace, most: int) -> Trace:
    """Return the sessions, or requests without one, of which no request has more than `most` tokens [token]."""
    long = trace.input_tokens + trace.output_tokens > most
    dropped = long | ((trace.session >= 0) & np.isin(trace.session, np.unique(trace.session[long])))
    if dropped.all():
        raise InputError(f"longest_tokens: {most}; allowed: a limit that some session stays within")
    note = Note("dropped", f"sessions with a request of more than {most} tokens", int(dropped.sum()))
    return dataclasses.replace(trace.select(~dropped), notes=(*trace.notes, note))


def digest_of(trace: Trace) -> str:
    """Return a digest of all of a trace that a simulation depends on."""
    digest = blake2b(str(trace.block_size).encode(), digest_size=16)
    for array in (trace.arrival, trace.input_tokens, trace.output_tokens, trace.session, trace.think, trace.offsets):
        digest.update(array.tobytes())
    digest.update(trace.blocks.tobytes())
    return digest.hexdigest()
