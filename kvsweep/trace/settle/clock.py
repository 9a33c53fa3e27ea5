"""What unit the times of a file are in: told, stated, documented, or found by the rate of requests they give."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kvsweep.trace.formats import Clock
from kvsweep.trace.model import Floats
from kvsweep.trace.options import TIME_UNITS, TimeUnit

PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
"""How many of a unit are a second."""
_BELIEVABLE = (1e-4, 1e3)
"""Least and greatest believable rate of requests [1/s]: one in three hours, a thousand a second."""
_SLOW = {"whole": 1e-2, "broken": 1e-4}
"""Rates below which a unit by habit is not taken [1/s]: of whole times, as of a counter, and of others."""
_SLOW_OPEN = {"whole": 1e-1, "broken": 1e-2}
"""The same where no habit speaks for the unit."""
_EPOCH = (1e9, 4.1e9)
"""Seconds since 1970 of dates from 2001 to 2099."""


class Settled(NamedTuple):
    """The unit taken, why, and what speaks against it."""

    unit: TimeUnit
    why: str
    doubt: str = ""


def settled_unit(times: Floats, clock: Clock, said: TimeUnit | None) -> Settled:
    """Return the unit of `times` as they stand in a file, in any order; NaN is no time.

    What is `said` is taken, then what is sure by format or name; else dates since 1970 are told by their size, and
    other times are in the first unit of s, ms, us, ns in which requests are not too slow to be believed.
    """
    if said is not None:
        return Settled(said, "--time-unit")
    times = times[~np.isnan(times)]
    span = float(np.ptp(times)) if len(times) else 0.0
    rate = len(times) / span if span else 0.0  # [1/unit]
    unit, why = (clock.unit, "as documented") if clock.sure else _found(times, rate, clock)
    return Settled(unit, why, _doubt(rate * PER_SECOND[unit], unit) if rate else "")


def named_unit(name: str) -> TimeUnit | None:
    """Return the unit the name of a field ends in, as in ``arrival_time_ns``."""
    unit = name.rpartition("_")[2]
    return next((known for known in TIME_UNITS if known != "s" and known == unit), None)


def _found(times: Floats, rate: float, clock: Clock) -> tuple[TimeUnit, str]:
    """Return the unit of times of which the format leaves it open, and why."""
    if len(times):
        first = float(times.min())
        for unit in TIME_UNITS:
            if _EPOCH[0] <= first / PER_SECOND[unit] <= _EPOCH[1]:
                return unit, "dates since 1970"
    if not rate:
        return clock.unit, "as documented; one point in time tells no unit"
    kind = "whole" if bool((times == np.floor(times)).all()) else "broken"
    least = (_SLOW_OPEN if clock.open else _SLOW)[kind]
    fast = (unit for unit in TIME_UNITS[TIME_UNITS.index(clock.unit) :] if rate * PER_SECOND[unit] >= least)
    unit = next(fast, clock.unit)
    other: TimeUnit = "ms" if unit == "s" else "s"
    return unit, f"found: {_rate(rate, unit)}; in {other} it would be {_rate(rate, other)}"


def _rate(rate: float, unit: TimeUnit) -> str:
    return f"{rate * PER_SECOND[unit]:.4g} requests/s"


def _doubt(rate: float, unit: TimeUnit) -> str:
    low, high = _BELIEVABLE
    if low <= rate <= high:
        return ""
    other = "s" if rate > high and unit != "s" else "ms"
    beyond = f"more than {high:g} a second" if rate > high else "less than one in three hours"
    return f"{rate:.4g} requests/s, {beyond}; if the times are not in {unit}: --time-unit {other}"
