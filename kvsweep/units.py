"""SI constants and the reading and printing of quantities; everything inside is in base units."""

from __future__ import annotations

import math
import re
from decimal import Decimal

from kvsweep.errors import InputError, shown

KB, MB, GB, TB = 1e3, 1e6, 1e9, 1e12
KIB, MIB, GIB, TIB = 2.0**10, 2.0**20, 2.0**30, 2.0**40

_BYTES = {"B": 1.0, "kB": KB, "KB": KB, "MB": MB, "GB": GB, "TB": TB, "PB": 1e15,
          "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB}  # fmt: skip
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "min": 60.0, "h": 3600.0}
_FLOPS = {"FLOP/s": 1.0, "GFLOP/s": 1e9, "TFLOP/s": 1e12, "PFLOP/s": 1e15}

SUFFIXES: dict[str, dict[str, float]] = {
    "byte": _BYTES,
    "byte/s": {f"{name}/s": factor for name, factor in _BYTES.items()},
    "s": _SECONDS,
    "1/s": {"/s": 1.0, "/min": 1 / 60},
    "FLOP/s": _FLOPS,
    "1": {"%": 0.01},
}
"""Accepted suffixes of each unit, with the factor to base units."""

# What was matched is not given back (++): text of any length is read or refused in one pass.
_QUANTITY = re.compile(r"([+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:e[+-]?\d++)?|[+-]?(?:nan|inf(?:inity)?))\s*+(\S*)", re.I)
LONGEST = 400
"""Longest text that may be a quantity [character]: that of the largest float without an exponent, and its unit."""


def parse_quantity(text: str, unit: str, what: str) -> float:
    """Return `text` as a float in base units of `unit` (a key of `SUFFIXES`, or any other unit without suffixes).

    ``parse_quantity("64 GB/s", "byte/s", "--link-bandwidth")`` is 6.4e10. Raises InputError naming `what`.
    """
    text = text.strip()
    match = _QUANTITY.fullmatch(text) if len(text) <= LONGEST else None
    suffixes = SUFFIXES.get(unit, {})
    if match is None or (match[2] and match[2] not in suffixes):
        allowed = f", optionally with one of {' '.join(suffixes)}" if suffixes else ""
        raise InputError(f"{what}: {shown(text)} is not a number{allowed}")
    number = float(match[1])
    return _scaled(match[1], suffixes[match[2]]) if match[2] and math.isfinite(number) and number else number


def _scaled(text: str, factor: float) -> float:
    """Return the float nearest to `text` times `factor`: 35 % is 0.35, where 35 * 0.01 is 0.35000000000000003."""
    # Factors below 1 are one over a whole number, which is exact where they are not.
    number = Decimal(text)
    return float(number * Decimal(factor) if factor >= 1.0 else number / Decimal(round(1.0 / factor)))


def format_quantity(value: float, unit: str) -> str:
    """Return `value` (base units) with a readable prefix: ``6.4e10, "byte/s"`` is ``64 GB/s``."""
    if math.isnan(value):
        return "–"
    if unit in ("byte", "byte/s") and math.isfinite(value):
        for name, factor in (("TB", TB), ("GB", GB), ("MB", MB), ("kB", KB)):
            if abs(value) >= factor:
                return f"{value / factor:.4g} {name}{unit[4:]}"
        return f"{value:.4g} B{unit[4:]}"
    if unit == "FLOP/s" and abs(value) >= 1e9:
        return f"{value / 1e12:.4g} TFLOP/s"
    return f"{value:.6g}" if unit in ("1", "") else f"{value:.6g} {unit}"
