"""Reading of typed records from YAML values; the annotations of a dataclass are its table of fields.

A field annotated ``Annotated[float, Range("byte/s", 1e6, 1e15)]`` is a number with that unit and those bounds, or text
as options take it, ``64 GB/s``; ``str`` is one line of text, a ``Literal`` is a choice, and a dataclass is a nested
group. ``X | None`` may be left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from kvsweep.errors import InputError, shown, unknown_name
from kvsweep.units import parse_quantity

NOT_IN_FILES = ("key", "family")
"""Fields of an entry that follow from where and how it is written, so a file may not state them."""


@dataclasses.dataclass(frozen=True, slots=True)
class Range:
    """Unit and bounds of a number; wide enough for any real part, narrow enough to catch GB/s written for byte/s."""

    unit: str
    low: float
    high: float
    or_zero: bool = False

    def __contains__(self, value: float) -> bool:
        """Return whether `value` [unit] is allowed."""
        return self.low <= value <= self.high or (self.or_zero and value == 0)

    def __str__(self) -> str:
        """Return the allowed range as messages print it."""
        unit = "" if self.unit == "1" else f" {self.unit}"
        return f"allowed: {'0 or ' if self.or_zero else ''}{self.low:g} to {self.high:g}{unit}"


@dataclasses.dataclass(frozen=True, slots=True)
class FieldType:
    """What one field accepts, taken apart from its annotation."""

    base: type[Any]
    range: Range | None
    choices: tuple[str, ...]
    required: bool

    def __str__(self) -> str:
        """Return what the field accepts as messages print it."""
        if self.range is not None:
            return str(self.range)
        if self.base is bool:
            return "allowed: true, false"
        return f"allowed: {', '.join(self.choices) if self.choices else 'text'}"


@cache
def field_types(cls: type) -> dict[str, FieldType]:
    """Return the fields of dataclass `cls` that a file may state, in order, with what each accepts."""
    hints = get_type_hints(cls, include_extras=True)
    return {
        field.name: _field_type(hints[field.name], field.default is dataclasses.MISSING)
        for field in dataclasses.fields(cls)
        if field.name not in NOT_IN_FILES
    }


def _field_type(hint: Any, required: bool) -> FieldType:
    options = [option for option in get_args(hint) if option is not NoneType]
    if NoneType in get_args(hint):
        (hint,) = options
    if get_origin(hint) is Literal:
        return FieldType(str, None, get_args(hint), required)
    if get_origin(hint) is Annotated:
        base, bounds = get_args(hint)
        return FieldType(base, bounds, (), required)
    return FieldType(hint, None, (), required)


def read_fields(cls: type, values: object, where: str) -> dict[str, Any]:
    """Return the fields of `cls` stated in `values` as typed values; null counts as not stated.

    Raises InputError naming `where` and the field for an unknown field or a value it does not accept.
    """
    if not isinstance(values, Mapping):
        raise InputError(f"{where}: {shown(values)} is not a mapping of fields; allowed: {', '.join(field_types(cls))}")
    types = field_types(cls)
    found = {}
    for name, value in values.items():
        if name not in types:
            raise unknown_name(f"{where}: field", name, types)
        if value is not None:
            found[name] = _read_value(types[name], value, f"{where}: {name}")
    return found


def read_record(cls: type, values: object, where: str) -> Any:
    """Return the `cls` stated by `values`; raises InputError naming `where` and a field missing or not accepted."""
    found = read_fields(cls, values, where)
    require_fields(cls, found, where, {})
    return cls(**found)


def require_fields(cls: type, found: Mapping[str, Any], where: str, ways_out: Mapping[str, str]) -> None:
    """Raise InputError for a field `cls` needs and `found` lacks; `ways_out` ends the message for some fields."""
    for name, accepted in field_types(cls).items():
        if accepted.required and name not in found:
            raise InputError(f"{where}: {name}: missing; {accepted}{ways_out.get(name, '')}")


def read_batch_sizes(values: object, where: str, or_none: bool = False) -> tuple[int, ...]:
    """Return ascending sizes of batches [requests], `or_none`; raises InputError naming `where` for anything else."""
    if (
        not isinstance(values, list)
        or not (values or or_none)
        or not all(type(value) is int and 1 <= value <= 65_536 for value in values)
        or sorted(set(values)) != values
    ):
        raise InputError(f"{where}: {shown(values)}; allowed: ascending whole numbers of 1 to 65536 requests")
    return tuple(values)


def _read_value(accepted: FieldType, value: object, where: str) -> Any:
    if dataclasses.is_dataclass(accepted.base):
        return read_record(accepted.base, value, where)
    if accepted.range is not None:
        return _read_number(accepted, accepted.range, value, where)
    if accepted.base is bool:
        if not isinstance(value, bool):
            raise InputError(f"{where}: {shown(value)} is neither true nor false; allowed: true, false")
        return value
    if accepted.choices and value not in accepted.choices:
        raise unknown_name(where, value, accepted.choices)
    if not isinstance(value, str) or not value.strip() or len(value.splitlines()) > 1:
        hint = "" if isinstance(value, str) else "; put it in quotes"
        raise InputError(f"{where}: {shown(value)} is not one line of text{hint}")
    return value


def _read_number(accepted: FieldType, bounds: Range, value: object, where: str) -> float:
    if isinstance(value, str):  # with its unit, as options take it, or a form YAML takes for text (64e9)
        try:
            value = parse_quantity(value, bounds.unit, where)
        except InputError as error:
            raise InputError(f"{error}; {bounds}") from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where}: {shown(value)} is not a number; {bounds}")
    if value not in bounds:
        raise InputError(f"{where}: {shown(value)} is out of range; {bounds}")
    if accepted.base is int and value != int(value):
        raise InputError(f"{where}: {shown(value)} is not a whole number; {bounds}")
    return int(value) if accepted.base is int else float(value)
