"""Limits of requests, as options state them."""

from __future__ import annotations

from kvsweep.errors import InputError, shown
from kvsweep.units import parse_quantity


def limits_of(text: str | None) -> dict[str, float]:
    """Return the limits [s] in text such as ``ttft=2s,tpot=50ms``."""
    limits: dict[str, float] = {}
    for part in text.split(",") if text else ():
        name, _, value = part.partition("=")
        if name.strip() not in ("ttft", "tpot", "e2e"):
            raise InputError(f"--slo: {shown(part)}; allowed: ttft=, tpot=, e2e= and a time, separated by commas")
        limits[name.strip()] = parse_quantity(value, "s", f"--slo: {name.strip()}")
        if not 0.0 < limits[name.strip()] < 1e9:
            raise InputError(f"--slo: {shown(part)} is out of range; allowed: more than 0, below 1e9 s")
    return limits
