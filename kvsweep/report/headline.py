"""The answer in sentences, computed from the data: which policy passes most, where it fails, best against worst."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kvsweep.report.labels import IN_TOKENS, block_tokens, in_sentence, label, listed, number, shorten, unit
from kvsweep.results.analysis import sweeps
from kvsweep.results.analysis.ranking import simplest_first

PASS = sweeps.VERDICTS.index("pass")
EVERYWHERE = "every value of every axis"
"""Where points lie that no range of an axis holds."""


@dataclass(frozen=True)
class Headline:
    """`sentences`, the answer first; `counts` (policy, state) of grid points and `sufficient` (policy + none) ones."""

    sentences: list[str]
    counts: NDArray[np.int64]
    sufficient: NDArray[np.int64]


def headline(ds: xr.Dataset, verdict: NDArray[np.uint8], dims: list[str]) -> Headline:
    """Return the headline of a sweep from its verdict codes (policy, \\*dims)."""
    counts = np.stack([np.bincount(plane.ravel(), minlength=4) for plane in verdict])
    enough = _sufficient(ds, verdict)
    names = [shorten(str(text)) for text in ds["policy_label"].values]
    passes = counts[:, PASS]
    best = [index for index in range(len(names)) if passes[index] == passes.max()]
    worst = int(passes.argmin())
    sentences = [_answer(names, passes, best, int(counts[0].sum()))]
    if 0 < passes.max() < counts[0].sum():
        sentences.append(_where(ds, verdict[best[0]] != PASS, dims, names[best[0]] if len(best) > 1 else "It"))
    if verdict[0].size == 1:
        missed = [name for name, count in zip(names, passes, strict=True) if not count]
        if missed and passes.max() > 0:
            sentences += [
                f"{listed(missed)} {'misses' if len(missed) == 1 else 'miss'} it.",
                _speed_at(ds, names, best[0], worst),
            ]
    elif passes[worst] < passes.max():
        sentences += [
            _least(names, counts, worst, best[0]),
            _where(ds, verdict[worst] != PASS, dims, names[worst]),
            _speed(ds, names, best[0], worst),
        ]
    if passes.max() > 0:
        sentences.append(_simplest(names, enough))
    return Headline([text for text in sentences if text], counts, enough)


def share(part: float, whole: float) -> str:
    """Return a part as a percentage that says 0 % and 100 % only of none and all."""
    percent = 100.0 * part / whole if whole else 0.0
    if part == 0 or part == whole:
        return f"{percent:.0f}\N{NO-BREAK SPACE}%"
    bound = "under " if percent < 0.1 else "over " if percent > 99.9 else ""
    return f"{bound}{min(max(percent, 0.1), 99.9):.1f}\N{NO-BREAK SPACE}%"


def _answer(names: list[str], passes: NDArray[Any], best: list[int], total: int) -> str:
    most = int(passes.max())
    if most == 0:
        return f"No policy meets the SLO at any of the {total:,} points."
    who = listed([names[index] for index in best])
    if len(best) == 1:
        verb = "meets"
    else:
        who, verb = ("Every policy", "meets") if len(best) == len(names) else (who, "meet")
    if most == total:
        return f"{who} {verb} the SLO at {f'all {total:,} points' if total > 1 else 'the one point there is'}."
    lead = " most often" if len(best) < len(names) else ""
    return f"{who} {verb} the SLO{lead}: at {share(most, total)} of {total:,} points ({most:,})."


def _where(ds: xr.Dataset, fails: NDArray[np.bool_], dims: list[str], who: str) -> str:
    """Return the smallest box of axis ranges that holds every failing point."""
    parts = box(ds, fails, dims)
    share_of = share(int(fails.sum()), fails.size)
    if not parts:
        return f"{who} fails at {share_of} of the points, spread over {EVERYWHERE}."
    return f"{who} fails at {share_of} of the points, all of them at {listed(parts)}."


def box(ds: xr.Dataset, chosen: NDArray[np.bool_], dims: list[str]) -> list[str]:
    """Return the axis ranges that hold every chosen point (\\*dims), without those that are a whole axis."""
    parts = []
    for axis, dim in enumerate(dims):
        hit = np.asarray(chosen.any(axis=tuple(other for other in range(chosen.ndim) if other != axis)))
        text = _range(ds[dim], dim, hit, block_tokens(ds))
        if text:
            parts.append(text)
    return parts


def _range(axis: xr.DataArray, dim: str, hit: NDArray[np.bool_], tokens_per_block: float | None) -> str:
    """Return the part of an axis where failures occur, empty where that is the whole axis; blocks as tokens."""
    if hit.all() or not hit.any():
        return ""
    if dim in IN_TOKENS and tokens_per_block is not None:
        axis = axis * tokens_per_block
        name, suffix = in_sentence(IN_TOKENS[dim]), " tokens"
    else:
        name = in_sentence(label(dim))
        suffix = f" {unit(dim, axis)}" if unit(dim, axis) else ""
    values = axis.values[hit]
    if axis.dtype.kind not in "fiu":
        shown = [shorten(str(value), 30) for value in values[:4]]
        return f"{name} {listed(shown) if len(values) <= 4 else ', '.join(shown) + ', …'}"
    low, high = float(values.min()), float(values.max())
    if low == high:
        return f"{name} {number(low)}{suffix}"
    if low == float(axis.min()):
        return f"{name} ≤ {number(high)}{suffix}"
    if high == float(axis.max()):
        return f"{name} ≥ {number(low)}{suffix}"
    return f"{name} {number(low)} to {number(high)}{suffix}"


def _least(names: list[str], counts: NDArray[np.int64], worst: int, best: int) -> str:
    total = int(counts[worst].sum())
    gap = int(counts[best, PASS] - counts[worst, PASS])
    return (
        f"{names[worst]} meets it least often: at {share(int(counts[worst, PASS]), total)} of the points, "
        f"{gap:,} fewer than {names[best]}."
    )


def _speed(ds: xr.Dataset, names: list[str], best: int, worst: int) -> str:
    quick = ds["total_time"].isel(policy=best).values.astype("f8")
    slow = ds["total_time"].isel(policy=worst).values.astype("f8")
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = slow / quick
    usable = ratio[np.isfinite(ratio)]
    if not usable.size:
        return ""
    median, most = float(np.median(usable)), float(usable.max())
    if median < 1.0:
        other = f"median time {median:.2g} of {names[best]}"
        return f"{names[worst]} is all the same the faster of the two at most points ({other})."
    if round(most, 2) == 1.0:
        return f"{names[best]} and {names[worst]} take equally long."
    usual = "as" if round(median, 2) == 1.0 else f"{number(round(median, 2))} times as"
    most_often = f"{names[best]} is {usual} fast as {names[worst]} in the median"
    return f"{most_often}, at most {number(round(most, 2))} times as fast."


def _speed_at(ds: xr.Dataset, names: list[str], best: int, worst: int) -> str:
    """Return the times of two policies at the only point."""
    times = [float(ds["total_time"].isel(policy=index).item()) for index in (best, worst)]
    return f"{names[best]} takes {number(times[0])} s, {names[worst]} {number(times[1])} s."


def _sufficient(ds: xr.Dataset, verdict: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return at how many points each policy is the simplest that passes; the last entry counts points with none."""
    counts = np.zeros(len(verdict) + 1, dtype=np.int64)
    left = np.ones(verdict.shape[1:], dtype=bool)
    for index in simplest_first(ds["policy_modes"].values, ds["policy_order"].values):
        first = left & (verdict[index] == PASS)
        counts[index] = first.sum()
        left &= ~first
    counts[-1] = left.sum()
    return counts


def _simplest(names: list[str], enough: NDArray[np.int64]) -> str:
    total = int(enough.sum())
    most_first = [index for index in np.argsort(-enough[:-1], kind="stable") if enough[index]]
    parts = [f"{names[index]} at {share(int(enough[index]), total)}" for index in most_first]
    if enough[-1]:
        parts.append(f"none at {share(int(enough[-1]), total)}")
    return f"The simplest policy that suffices: {listed(parts)}."
