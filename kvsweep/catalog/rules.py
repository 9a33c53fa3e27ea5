"""The rules that give an entry written in groups its flat fields, and the checks between fields.

This is the only place where a data sheet becomes a figure of the linear model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from kvsweep.catalog.fields import read_fields, require_fields
from kvsweep.catalog.models import kv_bytes_per_token
from kvsweep.catalog.specs import Disk, Dram, EffectiveRate, Entry, Gpu, Link, Model, Part, Price, Shape, Stack
from kvsweep.errors import InputError

Fields = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """A flat field taken from groups: `text` names them in messages, `value` returns it, or None without them."""

    text: str
    value: Callable[[Fields], Any]


def _first(*paths: str) -> Rule:
    """Return the rule that takes the first figure stated among ``group.field`` `paths`."""
    getters = [(path.partition(".")[0], attrgetter(path.partition(".")[2])) for path in paths]

    def value(fields: Fields) -> Any:
        stated = (getter(fields[group]) for group, getter in getters if group in fields)
        return next((figure for figure in stated if figure is not None), None)

    return Rule(" or ".join(paths), value)


def _bytes_per_block(fields: Fields) -> float | None:
    tokens: float = fields.get("tokens_per_block", field_default(Model, "tokens_per_block"))
    return tokens * kv_bytes_per_token(fields["shape"]) if "shape" in fields else None


def field_default(cls: type, name: str) -> Any:
    """Return the default of field `name` of dataclass `cls`."""
    return next(field.default for field in dataclasses.fields(cls) if field.name == name)


def _sourced_as(group: str) -> dict[str, Rule]:
    """Return the rules that take an entry's own `source` and `kind` from the group that matters most."""
    return {name: _first(f"{group}.{name}") for name in ("source", "kind")}


_MEMORY_RULES = {
    "bandwidth": _first("rates.read_bytes_per_s"),
    "capacity": _first("size.capacity_bytes"),
    **_sourced_as("rates"),
}
RULES: dict[type[Entry], dict[str, Rule]] = {
    Gpu: {
        "peak_flops": _first("compute.bf16_flops", "compute.fp16_flops"),
        "hbm_bandwidth": _first("memory.bytes_per_s"),
        "hbm_capacity": _first("memory.capacity_bytes"),
        **_sourced_as("compute"),
    },
    Dram: _MEMORY_RULES,
    Disk: _MEMORY_RULES,
    Link: {"bandwidth": _first("effective.bytes_per_s"), **_sourced_as("effective")},
    Model: {
        "params": _first("weights.total"),
        "bytes_per_block": Rule("tokens_per_block and shape", _bytes_per_block),
        **_sourced_as("shape"),
    },
    Stack: {},
    Price: {},
}


def build_entry(cls: type[Entry], key: str, values: object, where: str) -> Entry:
    """Return the entry `key` stated by `values`, flat fields derived where they are not stated.

    Raises InputError naming `where` and the field for a field that is unknown, missing, not accepted, or at odds
    with another.
    """
    fields = read_fields(cls, values, where)
    rules = RULES[cls]
    for name, rule in rules.items():
        derived = None if name in fields else rule.value(fields)
        if derived is not None:
            fields[name] = derived
    fields.setdefault("name", key)
    require_fields(cls, fields, where, {name: f", or give {rule.text}" for name, rule in rules.items()})
    if issubclass(cls, Part):
        groups = any(dataclasses.is_dataclass(value) for value in fields.values())
        fields["family"] = "datasheet" if groups else "reference"
    _check_between(fields, where)
    return cls(**fields, key=key)


def _check_between(fields: Fields, where: str) -> None:
    effective, shape = fields.get("effective"), fields.get("shape")
    if isinstance(effective, EffectiveRate):
        _require(
            effective.low_bytes_per_s <= effective.bytes_per_s <= effective.high_bytes_per_s,
            f"{where}: effective",
            "low_bytes_per_s <= bytes_per_s <= high_bytes_per_s",
        )
    if isinstance(shape, Shape):
        for holds, allowed in _shape_checks(shape):
            _require(holds, f"{where}: shape", allowed)


def _shape_checks(shape: Shape) -> list[tuple[bool, str]]:
    """Return what must hold between the dimensions of a model, each with its wording."""
    return [
        (shape.layers_full_attention >= 0, "layers_window + layers_linear + layers_plain <= layers"),
        ((shape.layers_window > 0) == (shape.window > 0), "layers_window and window both 0 or both positive"),
        (shape.layers_linear > 0 or shape.state_bytes_per_sequence == 0, "a state only with layers_linear"),
        (shape.kv_lora_rank > 0 or shape.attention != "mla", "kv_lora_rank positive for attention mla"),
        (shape.kv_lora_rank == 0 or shape.attention in ("mla", "hybrid"), "kv_lora_rank only with mla or hybrid"),
        (shape.kv_heads <= shape.heads, "kv_heads <= heads"),
        (shape.experts_per_token <= shape.experts, "experts_per_token <= experts"),
        ((shape.architecture == "moe") == (shape.experts > 0), "experts positive exactly for architecture moe"),
    ]


def _require(holds: bool, where: str, allowed: str) -> None:
    if not holds:
        raise InputError(f"{where}: figures contradict each other; allowed: {allowed}")
