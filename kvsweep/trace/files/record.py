"""One record of a trace file and the reading of its fields; a complaint names file, line and field."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from kvsweep.errors import InputError, shown

MAX_TOKENS = 10**8
"""Longest prompt or answer [token]: more than ten times the longest context any model has."""
MAX_SECONDS = 1e11
"""Latest time [s]: three thousand years, room for any epoch."""
MAX_ID = 2**64 - 1
"""Largest id: hashes of blocks are 64 bits without sign."""
_SEPARATORS = re.compile(r"[|,;\s]+")
"""Between ids in one cell of a table."""
DATE = "a date and time as in 2023-11-16 18:15:46.6805900"


class Record:
    """The fields of one request or session, as they stand in the file."""

    __slots__ = ("textual", "values", "where")

    def __init__(self, where: str, values: Mapping[str, Any], *, textual: bool = False) -> None:
        self.where = where
        self.values = values
        self.textual = textual
        """Whether numbers are written as text, as in CSV."""

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def first(self, names: Iterable[str]) -> str | None:
        """Return the first of `names` that is a field here, not null and no empty cell."""
        values = self.values
        for name in names:
            value = values.get(name)
            if value is not None and not (self.textual and value == ""):
                return name
        return None

    def error(self, name: str, problem: str, allowed: str) -> InputError:
        """Return the error for the field `name`."""
        return InputError(f"{self.where}: {name}: {problem}; allowed: {allowed}")

    def get(self, name: str) -> Any:
        """Return the value of a field that must be there."""
        value = self.values.get(name)
        if value is None:
            problem = "is null" if name in self.values else "is missing"
            raise self.error(name, problem, f"a value; fields here: {shown(', '.join(self.values), 200)}")
        return value

    def number(self, name: str, per: float = 1.0, low: float = 0.0, high: float = MAX_SECONDS) -> float:
        """Return a finite number over `per` (1000 for milliseconds in [s]), which must then be `low` to `high`."""
        value = self.get(name)
        if self.textual and isinstance(value, str):
            value = _as_number(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(name, f"{shown(value)} is not a number", f"{low * per:g} to {high * per:g}")
        number = _over(value, per)
        if not low <= number <= high:
            raise self.error(name, f"{shown(value)} is out of range", f"{low * per:g} to {high * per:g}")
        return number

    def moment(self, name: str) -> float | None:
        """Return a date and time as seconds since 1970, None for what is no text of a date; a zone may follow."""
        value = self.values.get(name)
        if not isinstance(value, str) or "-" not in value[1:]:
            return None
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            raise self.error(name, f"{shown(value)} is no time", DATE) from None
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        if seconds < 0:
            raise self.error(name, f"{shown(value)} is before 1970", "later times")
        return seconds

    def count(self, name: str, low: int = 0, high: int = MAX_TOKENS) -> int:
        """Return a whole number from `low` to `high`; 7.0 is one."""
        value = self.get(name)
        if type(value) is not int:  # the usual case first: this runs once for every field of every request
            number = self.number(name, low=-MAX_SECONDS)
            if not number.is_integer():
                raise self.error(name, f"{shown(value)} is not a whole number", f"{low} to {high}")
            value = int(number)
        if not low <= value <= high:
            raise self.error(name, f"{shown(value)} is out of range", f"{low} to {high}")
        return value

    def ids(self, name: str) -> list[int]:
        """Return a list of whole numbers of 0 to 2^64 - 1; in tables, numbers in one cell."""
        value = self.get(name)
        if self.textual and isinstance(value, str):
            value = [_as_id(part) for part in _SEPARATORS.split(value.strip(" []()\"'")) if part]
        if not isinstance(value, list):
            raise self.error(name, f"{shown(value)} is not a list", "a list of whole numbers")
        if value and set(map(type, value)) != {int} or not _are_ids(value):
            bad = next(item for item in value if type(item) is not int or not 0 <= item <= MAX_ID)
            raise self.error(name, f"{shown(bad)} is no id", f"a list of whole numbers, 0 to {MAX_ID}")
        return value

    def label(self, name: str) -> str | int | None:
        """Return a text or whole number that names something; None where it is missing or empty."""
        value = self.values.get(name)
        if value is None or value == "":
            return None
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise self.error(name, f"{shown(value)} is no name", "text or a whole number")
        return value

    def part(self, name: str) -> Record:
        """Return the object in a field as a record of its own."""
        value = self.get(name)
        if not isinstance(value, dict):
            raise self.error(name, f"{shown(value)} is not an object", "a JSON object")
        return Record(f"{self.where}: {name}", value, textual=self.textual)

    def parts(self, name: str) -> list[Record]:
        """Return the objects listed in a field as records of their own."""
        value = self.get(name)
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.error(name, f"{shown(value)} is not a list of objects", "a list of JSON objects")
        return [Record(f"{self.where}: {name}[{i}]", item, textual=self.textual) for i, item in enumerate(value)]


def _are_ids(value: list[int]) -> bool:
    try:
        array("Q", value)
    except OverflowError:
        return False
    return True


def _as_id(text: str) -> object:
    try:
        return int(text, 16 if text[:2].lower() == "0x" else 10)
    except ValueError:
        return text


def _as_number(text: str) -> object:
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def _over(value: float, per: float) -> float:
    try:
        return float(value) / per
    except OverflowError:  # a whole number no float can hold
        return math.inf
