"""What changed between two sweeps in sentences, computed from their comparison."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kvsweep.report.headline import EVERYWHERE, box, share
from kvsweep.report.labels import in_sentence, label, listed, number, shorten, unit
from kvsweep.report.provenance import setting
from kvsweep.results.analysis.compare import Comparison, PolicyComparison, TimeChange

CHANGES = ("fail_both", "pass_both", "pass_to_fail", "fail_to_pass")
"""States of a point in a comparison, in the order of their codes."""


def sentences(found: Comparison, ds: xr.Dataset, changes: NDArray[np.uint8], dims: list[str]) -> list[str]:
    """Return the headline of a comparison, the answer first.

    Parameters
    ----------
    found : the comparison
    ds : sweep A on the common grid, with the common policies
    changes : codes of the changes (policy, \\*dims)
    dims : names of the dims of the common grid
    """
    names = [shorten(str(text)) for text in ds["policy_label"].values]
    most = max(range(len(names)), key=lambda index: (abs(_net(found.policies[index])), _changed(found.policies[index])))
    told = [_answer(found, names, most)]
    for state, side in (("fail_to_pass", "B"), ("pass_to_fail", "A")):
        chosen = changes[most] == CHANGES.index(state)
        if chosen.any():
            told.append(_where(ds, chosen, dims, f"only in {side} with {names[most]}"))
    return [*told, _leaders(found, names), _times(found, names), _settings(found)]


def place_text(change: TimeChange, dims: Collection[str]) -> str:
    """Return where a change of time is, naming the axes in `dims`; empty where there is none to name."""
    parts = []
    for dim, value in change.where.items():
        if dim in dims:
            shown = shorten(value, 30) if isinstance(value, str) else f"{number(value)} {unit(dim)}".strip()
            parts.append(f"{_lower(dim)}\N{NO-BREAK SPACE}{shown}")
    return ", ".join(parts)


def seconds_text(change: TimeChange) -> str:
    """Return both total times of a change."""
    if change.seconds_a == change.seconds_b:
        return _seconds(change.seconds_a)
    return f"{_seconds(change.seconds_a)} → {_seconds(change.seconds_b)}"


def _seconds(seconds: float) -> str:
    return f"{number(seconds)}\N{NO-BREAK SPACE}s"


def _net(row: PolicyComparison) -> int:
    return row.fail_to_pass - row.pass_to_fail


def _changed(row: PolicyComparison) -> int:
    return row.fail_to_pass + row.pass_to_fail


def _answer(found: Comparison, names: list[str], most: int) -> str:
    row, points = found.policies[most], f"{found.points:,} common points"
    gained = sum(each.fail_to_pass for each in found.policies)
    lost = sum(each.pass_to_fail for each in found.policies)
    if not gained + lost:
        return f"A and B pass and fail alike at all {points}{' with every policy' if len(names) > 1 else ''}."
    net = _net(row)
    if gained and lost:
        tail = _against(found, names, most)
    else:
        tail = f"; no point gets {'better' if lost else 'worse'}{_with_any(names)}"
    if net == 0:
        return f"B passes as many of {points} as A, but not the same ones: {names[most]} trades {row.fail_to_pass:,}."
    return f"B passes {abs(net):,} {'more' if net > 0 else 'fewer'} of {points} than A with {names[most]}{tail}."


def _against(found: Comparison, names: list[str], most: int) -> str:
    """Return what goes against the net change of a policy: its own points, or those of the policy with most."""
    row = found.policies[most]
    if row.fail_to_pass and row.pass_to_fail:
        return f" ({row.fail_to_pass:,} gained, {row.pass_to_fail:,} lost)"
    state, verb = ("pass_to_fail", "loses") if row.fail_to_pass else ("fail_to_pass", "gains")
    counts = [int(getattr(each, state)) for each in found.policies]
    return f", while {names[counts.index(max(counts))]} {verb} {max(counts):,}"


def _with_any(names: list[str]) -> str:
    return " with any policy" if len(names) > 1 else ""


def _where(ds: xr.Dataset, chosen: NDArray[np.bool_], dims: list[str], what: str) -> str:
    """Return the smallest box of axis ranges that holds every chosen point."""
    place = listed(box(ds, chosen, dims))
    count = int(chosen.sum())
    if count == 1:
        return f"One point passes {what}{f': at {place}' if place else ''}."
    spread = f"all lie at {place}" if place else f"are spread over {EVERYWHERE}"
    return f"The {count:,} points that pass {what} {spread}."


def _leaders(found: Comparison, names: list[str]) -> str:
    passes = [
        [row.pass_both + row.pass_to_fail for row in found.policies],
        [row.pass_both + row.fail_to_pass for row in found.policies],
    ]
    if not max(map(max, passes)):
        return "No policy passes anywhere, in A or in B."
    best = [[name for name, count in zip(names, side, strict=True) if count == max(side) > 0] for side in passes]
    shares = [share(max(side), found.points) for side in passes]
    if best[0] == best[1]:
        verb = "pass" if len(best[0]) > 1 else "passes"
        return f"{listed(best[0])} {verb} most in both: {shares[0]} of the points in A, {shares[1]} in B."
    told = [f"in {side} {listed(who) or 'none'} ({part})" for side, who, part in zip("AB", best, shares, strict=True)]
    return f"What passes at most points: {told[0]}, {told[1]}."


def _times(found: Comparison, names: list[str]) -> str:
    slowest = max(range(len(names)), key=lambda index: found.policies[index].worst.ratio)
    quickest = min(range(len(names)), key=lambda index: found.policies[index].best.ratio)
    worst, best = found.policies[slowest].worst, found.policies[quickest].best
    parts = []
    if worst.ratio > 1.0:
        parts.append(f"at most {number(round(worst.ratio, 3))} times as long ({names[slowest]}, {seconds_text(worst)})")
    if best.ratio < 1.0:
        parts.append(f"at least {number(round(best.ratio, 3))} times as long ({names[quickest]}, {seconds_text(best)})")
    return f"Compared with A, requests in B take {listed(parts)}." if parts else "All total times are equal."


def _settings(found: Comparison) -> str:
    if not found.differences:
        return "Both have the same configuration."
    shown = [
        f"{_lower(each.name)} ({setting(each.name, each.a, 30)} → {setting(each.name, each.b, 30)})"
        for each in found.differences[:3]
    ]
    more = len(found.differences) - len(shown)
    return f"What differs: {', '.join(shown)}{f' and {more} more' if more else ''}."


def _lower(name: str) -> str:
    return in_sentence(label(name))
