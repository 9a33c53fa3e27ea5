"""Axes of a study: any field of the cluster file, the link, the rate, the seed; names, order and values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kvsweep.cluster.inputs.config import ClusterConfig
from kvsweep.costs.inputs import Field
from kvsweep.errors import InputError, shown, unknown_name
from kvsweep.grid.axes import FORMS, number_axis

ROLES = ("prefill", "decode", "colocated", "vllm")
"""Roles of workers, whose fields are named as in ``prefill.max_running``."""

FIELDS: Mapping[str, str] = {
    "fidelity": "fidelity",
    "gateway": "gateway.policy",
    "eviction": "eviction.policy",
    "retention": "retention.policy",
    "retrieval": "retrieval.policy",
    "write": "write.policy",
    "handoff_sharing": "handoff_sharing",
    "n_prefill": "prefill.count",
    "n_decode": "decode.count",
    "n_colocated": "colocated.count",
    "n_vllm": "vllm.count",
    "page_size": "page_size",
    "chunk_tokens": "*.chunk_tokens",
    "device_tokens": "*.device_tokens",
    "host_tokens": "*.host_tokens",
    "l3_tokens": "l3.pool_tokens",
}
"""Axes with names of their own and the field of the cluster file each sets; ``*`` is every role that has it."""
_LISTED = {
    "chunk_tokens": ("prefill", "colocated"), "device_tokens": ("prefill", "decode", "colocated"),
    "host_tokens": ("prefill", "colocated"),
}  # fmt: skip

INPUTS = ("profile", "trace")
"""Axes that are files or descriptions, with labels as their points."""
OTHERS = ("ttl", "link", "request_rate", "rate_scale", "seed")
"""Axes that set more than a field: retention, the profile's handoff, arrivals, and everything random."""

ORDER = (
    "profile", "trace", "fidelity", "gateway", "eviction", "retention", "retrieval", "write", "handoff_sharing",
    "n_prefill", "n_decode", "n_colocated", "n_vllm", "page_size", "chunk_tokens", "device_tokens", "host_tokens",
    "l3_tokens", "", "ttl", "link", "request_rate", "rate_scale", "seed",
)  # fmt: skip
"""Order of the dims; other fields stand where the empty name does, as the study lists them."""

TTL = Field("ttl", "s", 1e-6, math.inf, "idle time after which KV is dropped, inf for never", open_below=True)
RATE = Field("request_rate", "1/s", 1e-9, 1e9, "mean rate of arrivals")
SCALE = Field("rate_scale", "1", 1e-6, 1e6, "factor on the rate of arrivals")
SEED = Field("seed", "1", 0, 2**31 - 1, "seed of everything random", whole=True)
_ANY = Field("number", "1", -math.inf, math.inf, "a number")
NUMBERS = {field.name: field for field in (TTL, RATE, SCALE, SEED)}

Value = str | float | int


@dataclass(frozen=True, slots=True)
class Axis:
    """A dim of a study: its name, its points, and the path of the field it sets ('' for what is no field)."""

    name: str
    path: str
    values: tuple[Value, ...]


def read_axis(given: str, values: Any, where: str) -> Axis:
    """Return the axis a study calls `given`; `where` is what messages call the study's list of axes."""
    name = canonical(given, where)
    path = FIELDS.get(name, given if name not in OTHERS else "")
    what = f"{where}: {given}"
    if name in NUMBERS:
        if name == "ttl":
            values = _never_as_inf(values)
        points = [_plain(point) for point in number_axis(values, NUMBERS[name], what)]
        return Axis(name, path, tuple(points))
    return Axis(name, path, tuple(_points(values, what)))


def canonical(given: str, where: str) -> str:
    """Return the dim of an axis given by name or by path; raises InputError for one that cannot be."""
    of_path = {path: name for name, path in FIELDS.items()}
    if given in of_path:
        return of_path[given]
    top = [field.name for field in dataclasses.fields(ClusterConfig) if field.name not in ("name", *ROLES)]
    single = [name for name in top if not dataclasses.is_dataclass(_default(name))]
    if given in FIELDS or given in OTHERS or given in single:
        return given
    head, _, tail = given.partition(".")
    if tail and "." not in tail and head in (*top, *ROLES):
        return given.replace(".", "_")
    names = [*FIELDS, *OTHERS, *(name for name in single if name not in FIELDS)]
    raise unknown_name(
        f"{where}: axis", given, [*names, *(f"{head}.…" for head in (*ROLES, *top) if head not in names)]
    )


def _default(name: str) -> Any:
    return next(field.default for field in dataclasses.fields(ClusterConfig) if field.name == name)


def sorted_axes(axes: Iterable[Axis]) -> list[Axis]:
    """Return the axes in the order of the dims of the result."""
    place = {name: index for index, name in enumerate(ORDER)}
    return sorted(axes, key=lambda axis: place.get(axis.name, place[""]))


def set_field(cluster: dict[str, Any], axis: Axis, value: Value, where: str) -> None:
    """Set the field of `axis` in a cluster file given as mappings; raises InputError where there is no such worker.

    No tokens in L3 are no L3 at all. Fidelity paper goes without the options of engines that a cluster file writes out.
    """
    head, _, tail = axis.path.partition(".")
    if axis.name == "l3_tokens" and value == 0:
        cluster.pop(head, None)
    elif axis.name == "fidelity" and value == "paper":
        gateway = cluster.get("gateway") or {}
        cluster |= {"fidelity": value, "engine": None}
        cluster["gateway"] = {name: given for name, given in gateway.items() if name != "tree_tokens"}
    elif not tail:
        cluster[head] = value
    elif head == "*":
        if not _set_workers(cluster, _LISTED[tail], tail, value):
            raise InputError(f"{where}: no workers of the cluster file have {tail}; allowed: other axes")
    elif head in ROLES:
        found = _set_workers(cluster, (head,), tail, value)
        if not found or (tail == "count" and found > 1):
            raise InputError(f"{where}: {found} groups of {head} workers in the cluster file; allowed: one")
    else:
        section = cluster.get(head) or {}
        cluster[head] = {**section, tail: value} if isinstance(section, dict) else {tail: value}


def _set_workers(cluster: dict[str, Any], roles: Iterable[str], field: str, value: Value) -> int:
    groups = [dict(group) for group in cluster.get("workers") or () if isinstance(group, Mapping)]
    chosen = [group for group in groups if str(group.get("role")) in roles]
    for group in chosen:
        group[field] = value
    cluster["workers"] = groups
    return len(chosen)


def set_retention(cluster: dict[str, Any], ttl: float) -> None:
    """Set the idle time [s] after which KV is dropped; infinite is no retention policy at all."""
    kept = dict(cluster.get("retention") or {})
    cluster["retention"] = (
        {**kept, "policy": "none"} if math.isinf(ttl) else {**kept, "policy": "idle_ttl", "seconds": ttl}
    )


def _never_as_inf(values: Any) -> Any:
    listed = values if isinstance(values, list | tuple) else [values]
    if not any(isinstance(value, str) and value.strip() in ("none", "never", "inf") for value in listed):
        return values
    return [math.inf if isinstance(value, str) and value.strip() in ("none", "never", "inf") else value
            for value in listed]  # fmt: skip


def _points(values: Any, what: str) -> list[Value]:
    """Return the points of an axis over a field, whose reader knows what is allowed."""
    if isinstance(values, str) and ":" in values:
        return [_plain(point) for point in number_axis(values, _ANY, what)]
    if isinstance(values, str):
        values = [part.strip() for part in values.split(",")]
        values = [_number(part) for part in values]
    listed = list(values) if isinstance(values, list | tuple) else [values]
    if not listed:
        raise InputError(f"{what}: the axis has no points; allowed: a list, or {FORMS}")
    for value in listed:
        if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
            raise InputError(f"{what}: {shown(value)} is no point of an axis; allowed: names or numbers")
    if len(set(listed)) != len(listed):
        raise InputError(f"{what}: a point is on the axis twice; allowed: distinct points")
    if len({isinstance(value, str) for value in listed}) > 1:
        raise InputError(f"{what}: names and numbers on one axis; allowed: either")
    return [value if isinstance(value, str) else _plain(value) for value in listed]


def _number(text: str) -> Value:
    try:
        return _plain(float(text))
    except ValueError:
        return text


def _plain(value: float) -> float | int:
    """Return a whole number as int, so that it reads back as it was written."""
    try:
        number = float(value)
    except OverflowError:  # whoever reads the field says what it may be
        return value
    return int(number) if number.is_integer() else number
