"""Axes of a sweep: the text and list forms a user may give, as validated float64 arrays or lists of keys."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvsweep.costs.inputs import Field
from kvsweep.errors import InputError, shown
from kvsweep.units import parse_quantity

MAX_AXIS = 10_000_000
"""Longest axis [point] that is accepted; past it a slipped step is likelier than a wish."""

FORMS = "start:stop:step, start:stop:nN, log:start:stop:nN or a,b,c"


def number_axis(value: Any, field: Field, what: str, longest: int = MAX_AXIS) -> NDArray[np.float64]:
    """Return the points (n,) of an axis given as a number, a list, an array or one of the text `FORMS`.

    Raises InputError naming `what` for an empty axis, a point out of the field's range or one given twice, and a
    range of more than `longest` points, before it is laid out.
    """
    if isinstance(value, str):
        points = _parse(value, field, what, longest)
    elif isinstance(value, Mapping | Set | bytes):
        raise InputError(f"{what}: {shown(value)} is not an axis; allowed: a number, a list or {FORMS}")
    elif isinstance(value, Iterable):
        points = [field.check(item, what) for item in value]
    else:
        points = [field.check(value, what)]
    if not points:
        raise InputError(f"{what}: the axis has no points; allowed: {FORMS}")
    if isinstance(value, str):
        # The points of a range lie between its ends; only a list or a whole number can hide a wrong one inside.
        inside = points if field.whole or ":" not in value else (points[0], points[-1])
        for point in inside:
            field.check(point, what)
    array = np.array(points, dtype=np.float64)
    if np.unique(array).size != array.size:
        raise InputError(f"{what}: {shown(_first_repeated(points))} is on the axis twice; allowed: distinct points")
    return array


def key_axis(value: Any, what: str) -> list[str]:
    """Return the keys of an axis given as ``a,b,c`` or a list of names, none of them twice."""
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, Iterable):
        raise InputError(f"{what}: {shown(value)} is not a name; allowed: names separated by commas")
    keys = [item.strip() if isinstance(item, str) else item for item in items]
    for key in keys:
        if not isinstance(key, str) or not key:
            raise InputError(f"{what}: {shown(key)} is not a name; allowed: names separated by commas")
    if not keys:
        raise InputError(f"{what}: the axis has no points; allowed: names separated by commas")
    if len(set(keys)) != len(keys):
        raise InputError(f"{what}: {shown(_first_repeated(keys))} is on the axis twice; allowed: distinct names")
    return keys


def _parse(text: str, field: Field, what: str, longest: int) -> list[float]:
    if ":" not in text:
        return [parse_quantity(item, field.unit, what) for item in text.split(",")] if text.strip() else []
    if "," in text:
        raise InputError(f"{what}: {shown(text)} mixes a range and a list; allowed: {FORMS}")
    logarithmic = text.startswith("log:")
    parts = text.removeprefix("log:").split(":")
    if len(parts) != 3:
        raise InputError(f"{what}: {shown(text)} is not an axis; allowed: {FORMS}")
    count = parts[2].strip()
    if count.startswith("n") or logarithmic:
        start, stop = (parse_quantity(part, field.unit, what) for part in parts[:2])
        return _spaced(start, stop, _count(count, longest, text, what), logarithmic, what)
    return _stepped((text, parts), field, what, longest)


def _count(text: str, longest: int, axis: str, what: str) -> int:
    # Ten digits are more than any count: int() refuses text of thousands of digits in its own words.
    if not text.startswith("n") or not text[1:].isdecimal() or not 1 <= int(text[1:11]) <= longest or len(text) > 11:
        raise InputError(f"{what}: {shown(text)} in {shown(axis)} is not nN; allowed: n1 to n{longest}")
    return int(text[1:])


def _spaced(start: float, stop: float, count: int, logarithmic: bool, what: str) -> list[float]:
    if not (math.isfinite(start) and math.isfinite(stop)):
        raise InputError(f"{what}: a range needs finite ends; allowed: {FORMS}")
    if logarithmic and (start <= 0.0 or stop <= 0.0):
        raise InputError(f"{what}: a log axis needs ends > 0, not {start:g} and {stop:g}")
    spaced = np.geomspace(start, stop, count) if logarithmic else np.linspace(start, stop, count)
    return [float(point) for point in spaced]


def _stepped(given: tuple[str, Sequence[str]], field: Field, what: str, longest: int) -> list[float]:
    """Return start, start + step, … up to stop inclusive, in decimal: 0.42 is on 0.01:0.5:0.01 and not 0.42000001.

    `given` is the text of the axis and its parts.
    """
    text, parts = given
    scale = parse_quantity  # a suffix scales in binary; plain numbers stay decimal
    try:
        start, stop, step = (Decimal(part.strip()) for part in parts)
    except InvalidOperation:
        start, stop, step = (Decimal(repr(scale(part, field.unit, what))) for part in parts)
    # As floats, because a Decimal of a million digits is finite too.
    finite = all(math.isfinite(float(number)) for number in (start, stop, step))
    if not finite or float(step) == 0.0 or (stop - start) * step < 0:
        raise InputError(f"{what}: {shown(text)} has no points; allowed: finite start and stop, a step towards stop")
    steps = (stop - start) / step
    if steps >= longest:
        raise InputError(f"{what}: {shown(text)} has {steps:.3g} points; allowed: at most {longest}")
    return [float(start + index * step) for index in range(int(steps) + 1)]


def _first_repeated(items: Iterable[Any]) -> Any:
    seen = set()
    for item in items:
        if item in seen:
            return item
        seen.add(item)
    return None


def placement_axis(value: Any, what: str, longest: int = MAX_AXIS) -> list[str]:
    """Return placement labels ``disk``, ``auto``, ``manual:V,D,K``; ``simplex:n`` expands to all manual triples.

    `value` is one text or a list of texts; a text may itself be a list, as in ``disk,manual:1,2,3,auto``.
    A simplex of more than `longest` points is refused before it is laid out.
    """
    texts = [value] if isinstance(value, str) or not isinstance(value, Iterable) else value
    labels: list[str] = []
    for text in texts:
        if not isinstance(text, str):
            raise InputError(f"{what}: {shown(text)} is not a placement; allowed: {PLACEMENTS}")
        labels += [label for item in _placements(text) for label in _placement(item, what, longest)]
    if not labels:
        raise InputError(f"{what}: the axis has no points; allowed: {PLACEMENTS}")
    if len(set(labels)) != len(labels):
        raise InputError(f"{what}: {shown(_first_repeated(labels))} is on the axis twice; allowed: distinct placements")
    return labels


PLACEMENTS = "disk, auto, manual:V,D,K (weights >= 0) or simplex:n (n 1 to 1000)"


def _placements(text: str) -> list[str]:
    """Return the placements of a list; the two parts after ``manual:V`` belong to it."""
    parts = [part.strip() for part in text.split(",")]
    items = []
    while parts:
        length = 3 if parts[0].startswith("manual:") else 1
        items.append(",".join(parts[:length]))
        del parts[:length]
    return items


def _placement(text: str, what: str, longest: int) -> list[str]:
    if text in ("disk", "auto"):
        return [text]
    kind, _, rest = text.partition(":")
    if kind == "simplex" and rest.isdecimal() and len(rest) <= 4 and 1 <= int(rest) <= 1000:
        n = int(rest)
        if (n + 1) * (n + 2) // 2 > longest:
            raise InputError(f"{what}: {text} has {(n + 1) * (n + 2) // 2} points; allowed: at most {longest}")
        triples = ((v, d, n - v - d) for v in range(n, -1, -1) for d in range(n - v, -1, -1))
        return ["manual:" + ",".join(f"{weight / n:.12g}" for weight in triple) for triple in triples]
    if kind == "manual":
        weights = rest.split(",")
        try:
            numbers = [float(weight) for weight in weights]
        except ValueError:
            numbers = []
        if len(numbers) == 3 and all(0.0 <= number <= 1e15 for number in numbers):
            return ["manual:" + ",".join(weight.strip() for weight in weights)]
    raise InputError(f"{what}: {shown(text)} is not a placement; allowed: {PLACEMENTS}")


def placement_weights(label: str) -> tuple[float, float, float]:
    """Return the (vram, dram, disk) weights [1] a placement label names; NaN three times for ``auto``."""
    if label == "auto":
        return math.nan, math.nan, math.nan
    if label == "disk":
        return 0.0, 0.0, 1.0
    vram, dram, disk = (float(weight) for weight in label.removeprefix("manual:").split(","))
    return vram, dram, disk
