"""Step profiles: the measured times of a vLLM worker's steps, as files hold them and as the core reads them.

Times are those of a whole step of the model, all layers together. Every part states what interval it times, where its
numbers are from, how many rows were fitted and held out, and the error on the latter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from kvsweep.catalog.specs import Kind
from kvsweep.cluster.vllm.steptime import StepTimes
from kvsweep.errors import InputError, shown, unknown_name
from kvsweep.yamlfile import read_yaml_file

FORMAT = "kvsweep step profile 1"
"""First field of a step profile: tells it from a profile of service models."""
MOST_POINTS = 200_000

Numbers = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A measured part; `axes` are the points of each dim in order, `seconds` the values, the last dim fastest.

    `held_out_error` [1] is the mean of |fit/measured − 1| over the rows held out, of whole steps.
    """

    boundary: str
    source: str
    sha256: str = ""
    rows: int = 0
    held_out_rows: int = 0
    held_out_error: float = 0.0
    axes: tuple[Numbers, ...]
    seconds: Numbers
    measured_to: Numbers = ()
    """The largest measured value of each dim, where the points go beyond it by physics; else empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProfile:
    """The step times of one model on one kind of worker.

    `skew` holds shares [1] in place of seconds. `split_below` [requests]: decode batches below it split their KV,
    0 where not known. `captured_saving_seconds`: what a captured step saves against the sum of its kernels.
    """

    name: str
    model: str
    gpu: str
    tp: int = 1
    kv_bytes_per_token: float
    """What a path carries for a token [byte], once however many ranks hold it."""
    weights_bytes: float
    """Of all ranks together [byte]."""
    memory_bytes: float = 0.0
    """Of one GPU as its driver shows it [byte], 0 where not known."""
    note: str = ""
    tokens: Table
    sequences: Table
    attention: Table
    skew: Table | None = None
    split_below: float = 0.0
    captured_saving_seconds: float = 0.0
    overhead_seconds: float = 0.0

    @property
    def kind(self) -> Kind:
        """Return ``measured`` where every part was fitted to measurements, else ``assumed``."""
        parts = [part for part in (self.tokens, self.sequences, self.attention, self.skew) if part is not None]
        return "measured" if all(part.rows > 0 for part in parts) else "assumed"


DIMS = {"tokens": 1, "sequences": 1, "attention": 4, "skew": 2}
"""Parts of a profile, with their numbers of dims."""


def step_times(profile: StepProfile, graphs: Sequence[int] = (), one_prompt: bool = False) -> StepTimes:
    """Return `profile` as the core reads it, for a worker with captured `graphs` (batch sizes, ascending).

    `one_prompt` reads the prompts of a step as one, against rule 12.
    """
    skew = profile.skew
    arrays = [np.array(values, float) for part in _parts(profile) for values in (*part.axes, part.seconds)]
    shares = [np.array(values, float) for values in (*skew.axes, skew.seconds)] if skew else [np.empty(0)] * 3
    attention = profile.attention
    prior = attention.measured_to[1] if attention.measured_to else attention.axes[1][-1]
    scalars = (
        profile.captured_saving_seconds, profile.overhead_seconds, profile.split_below, float(one_prompt), prior
    )  # fmt: skip
    return StepTimes._make((*arrays, *shares, np.array(graphs, float), np.array(scalars)))


def _parts(profile: StepProfile) -> tuple[Table, Table, Table]:
    return profile.tokens, profile.sequences, profile.attention


def read_step_profile(path: Path) -> StepProfile:
    """Return the step profile in the file `path`; raises InputError naming file, field and what is allowed."""
    return parse_step_profile(read_yaml_file(path), str(path))


def parse_step_profile(values: Mapping[str, Any], where: str) -> StepProfile:
    """Return the profile that `values` state, as in a file; `where` is what messages call it."""
    values = dict(values)
    stated = values.pop("format", None)
    if stated != FORMAT:
        raise InputError(f"{where}: format: {shown(stated)}; allowed: {FORMAT!r} (kvsweep calibrate writes it)")
    read: dict[str, Any] = {}
    for name, value in values.items():
        kinds = {field.name: field.type for field in fields(StepProfile)}
        if name not in kinds:
            raise unknown_name(f"{where}: field", name, kinds)
        read[name] = _part(value, f"{where}: {name}", DIMS[name]) if name in DIMS else value
    profile = _built(StepProfile, read, where)
    assert isinstance(profile, StepProfile)
    return profile


def _part(value: object, where: str, dims: int) -> Table:
    if not isinstance(value, Mapping):
        raise InputError(
            f"{where}: {shown(value)} is not a mapping of fields; allowed: boundary, source, axes, seconds"
        )
    read = dict(value)
    axes = read.get("axes")
    if not isinstance(axes, list) or len(axes) != dims:
        raise InputError(f"{where}: axes: {shown(axes)}; allowed: {dims} lists of ascending numbers")
    read["axes"] = tuple(_numbers(axis, f"{where}: axes") for axis in axes)
    read["seconds"] = _numbers(read.get("seconds"), f"{where}: seconds")
    if "measured_to" in read:
        read["measured_to"] = _numbers(read["measured_to"], f"{where}: measured_to") if read["measured_to"] else ()
        if len(read["measured_to"]) not in (0, dims):
            raise InputError(f"{where}: measured_to: {len(read['measured_to'])} numbers; allowed: {dims}, or none")
    for axis in read["axes"]:
        if len(axis) < 2 or any(b <= a for a, b in zip(axis, axis[1:], strict=False)):
            raise InputError(f"{where}: axes: {shown(axis)}; allowed: two numbers or more, ascending")
    size = prod(len(axis) for axis in read["axes"])
    if len(read["seconds"]) != size or size > MOST_POINTS:
        raise InputError(f"{where}: seconds: {len(read['seconds'])} numbers; allowed: {size}, one for each point")
    part = _built(Table, read, where)
    assert isinstance(part, Table)
    return part


def _numbers(value: object, where: str) -> Numbers:
    """Return the list of numbers, not negative."""
    if not isinstance(value, list) or not value:
        raise InputError(f"{where}: {shown(value)}; allowed: a list of numbers")
    for item in value:
        if isinstance(item, bool) or not isinstance(item, int | float) or not 0.0 <= item < 1e12:
            raise InputError(f"{where}: {shown(item)} is not a number from 0 to 1e12")
    return tuple(float(item) for item in value)


def _built(cls: Any, read: Mapping[str, Any], where: str) -> Any:
    """Return `cls` of the values read, each of the kind its default or its annotation says."""
    for field in fields(cls):
        value = read.get(field.name)
        text = field.type in ("str",)
        if field.name not in read:
            if field.default is field.default_factory:  # both MISSING
                raise InputError(f"{where}: {field.name}: missing; allowed: {'text' if text else 'a number'}")
        elif text and not isinstance(value, str):
            raise InputError(f"{where}: {field.name}: {shown(value)} is not text; put it in quotes")
        elif field.type in ("int", "float") and (
            isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e18
        ):
            raise InputError(f"{where}: {field.name}: {shown(value)} is not a number from 0 on")
    unknown = set(read) - {field.name for field in fields(cls)}
    if unknown:
        raise unknown_name(f"{where}: field", sorted(unknown)[0], [field.name for field in fields(cls)])
    return cls(**read)


def step_profile_text(profile: StepProfile) -> str:
    """Return `profile` as a file states it."""
    values = step_profile_mapping(profile)
    return yaml.safe_dump(values, sort_keys=False, width=118, default_flow_style=None, allow_unicode=True)


def step_profile_mapping(profile: StepProfile) -> dict[str, Any]:
    """Return `profile` as a file states it, numbers with five digits."""
    return {"format": FORMAT} | {name: _plain(value) for name, value in asdict(profile).items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 1e15 else float(f"{value:.5g}")
    return value
