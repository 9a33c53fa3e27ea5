"""A cluster study as the viewer reads it: a map for each choice of policies, over the other axes, seeds averaged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kvsweep.errors import InputError
from kvsweep.report.labels import in_sentence, label, listed, number, shorten
from kvsweep.report.payload import (
    DEFAULT_BUDGET,
    FORMAT,
    Payload,
    Planes,
    check_budget,
    describe_dim,
    independent,
    start_amid,
)
from kvsweep.results.analysis import studies
from kvsweep.results.analysis.slices import value_text

CHOICES = ("gateway", "eviction", "retention", "retrieval", "write", "handoff_sharing", "fidelity", "profile", "trace")
"""Axes whose points are choices: their combinations get a map each."""
MOST_MAPS = 9
MOST_NAMES = 16
"""Most points of an axis that is drawn as a row of names."""
NEAR = 0.05
"""How far off the best a cell still counts as near it [1]."""
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#4a515c", "#8c6d31", "#7a52c7")
"""Colours of the choices (Okabe and Ito's, and more)."""
NO_RESULT, FAR, NEARLY, BEST = range(4)
_LOOK = (
    {"name": "no_result", "text": "No result", "letter": "–", "note": "", "pattern": "cross", "light": "#c9ced6",
     "dark": "#4a515c"},
    {"name": "slower", "text": "Slower by over 5\N{NO-BREAK SPACE}%", "letter": "S", "note": "", "pattern": "dots",
     "light": "#aab1bb", "dark": "#596270"},
    {"name": "near", "text": "Within 5\N{NO-BREAK SPACE}% of the best", "letter": "N", "note": "",
     "pattern": "diagonal", "light": "#9cc4e8", "dark": "#44719f"},
    {"name": "best", "text": "Least mean TTFT", "letter": "B", "note": "best", "pattern": "plain", "light": "#1f5fa8",
     "dark": "#8fc4f8"},
)  # fmt: skip
_FIGURES: tuple[tuple[str, str, str | None, str], ...] = (
    ("ttft_mean", "ttft", "mean", "TTFT mean [s]"), ("ttft_p95", "ttft", "p95", "TTFT P95 [s]"),
    ("ttft_p99", "ttft", "p99", "TTFT P99 [s]"), ("tpot_mean", "tpot", "mean", "TPOT mean [s]"),
    ("e2e_mean", "e2e", "mean", "E2E mean [s]"), ("e2e_p95", "e2e", "p95", "E2E P95 [s]"),
    ("reused", "token_hit_ratio", None, "Hit ratio of prompt tokens"),
    ("uncached", "uncached_tokens", None, "Prompt tokens computed"),
    ("held_l1", "occupancy", "l1", "KV held on devices [token]"),
    ("held_l2", "occupancy", "l2", "KV held on hosts [token]"),
    ("prefill_busy", "prefill_utilization", None, "Utilisation of prefill workers"),
    ("decode_busy", "decode_utilization", None, "Utilisation of decode workers"),
    ("output_rate", "tokens_per_second", None, "Tokens delivered [1/s]"),
    ("hours", "worker_hours", None, "Worker hours [h]"),
    ("regret", "regret", None, "Prompt tokens computed beyond the oracle's, relative to it"),
)  # fmt: skip
"""Views: name of the plane, figure, point along its own dim, label."""


@dataclass(frozen=True)
class Choice:
    """One combination of policies: its label, and where it is in the study."""

    label: str
    at: dict[str, int]


def pack_study(ds: xr.Dataset, cells_budget: int = DEFAULT_BUDGET) -> Payload:
    """Return the payload of a study; raises InputError for what is none, and more than `cells_budget` points."""
    studies.require_study(ds)
    if not np.isfinite(ds["ttft"].values).any():
        raise InputError("report: no simulation of this study has a result; allowed: a study with results")
    choices, chosen = choices_of(ds)
    axes = [name for name in studies.axes_of(ds) if name not in (*chosen, "seed")]
    check_budget({name: ds.sizes[name] for name in axes}, cells_budget)
    dims = [_described_axis(ds, name) for name in axes]
    dims += [_held(name) for name in ("study", "cell")[len(axes) :]]
    names = [str(dim["name"]) for dim in dims]
    shape = tuple(len(dim["values"]) for dim in dims)
    views, planes, known = {}, Planes(), studies.figures_of(ds)
    mean: list[NDArray[np.float64]] = []
    for plane, name, of, title in (*_FIGURES, *_slo_figures(ds)):
        if name not in known:
            continue
        array = studies.over_seeds(studies.figure(ds, name, of))[0]
        views[plane] = {"label": title, "unit": "", "fromLow": True}
        for index, choice in enumerate(choices):
            values = array.isel(choice.at).transpose(*axes).values.reshape(shape)
            planes.add(f"{plane}.{index}", *independent(values, names))
            if plane == "ttft_mean":
                mean.append(values)
    codes = states(np.stack(mean))
    for index in range(len(choices)):
        planes.add(f"verdict.{index}", *independent(codes[index], names))
    header = _header(ds, dims, choices, codes) | {
        "views": {"verdict": {"label": "Which choice is best, by mean TTFT", "plane": "verdict"}, **views},
        "quantities": list(views),
        "columns": [["state", "verdict"], *([name, name] for name in views)],
        "headline": headline(ds, choices, np.stack(mean), codes, [dim["name"] for dim in dims]),
        "planes": planes.specs,
        "ranges": planes.ranges,
    }
    return Payload(header, planes.stored)


def choices_of(ds: xr.Dataset) -> tuple[list[Choice], list[str]]:
    """Return the combinations of policies that get a map each, at most `MOST_MAPS`, and the axes they are made of."""
    chosen: list[str] = []
    count = 1
    for name in CHOICES:
        if name in ds.dims and count * ds.sizes[name] <= MOST_MAPS:
            chosen.append(name)
            count *= ds.sizes[name]
    found = []
    for place in np.ndindex(*(ds.sizes[name] for name in chosen)):
        at = dict(zip(chosen, place, strict=True))
        words = ", ".join(value_text(ds[name].values[index]) for name, index in at.items())
        found.append(Choice(words or "This study", at))
    return found, chosen


def states(mean: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Return the state of each cell of (choice, \\*dims) mean times: best, near it, slower, or without result."""
    known = np.isfinite(mean)
    best = np.where(known, mean, np.inf).min(axis=0)
    codes = np.where(mean <= (1.0 + NEAR) * best, NEARLY, FAR)
    codes = np.where(mean == best, BEST, codes)
    return np.where(known, codes, NO_RESULT).astype(np.uint8)


def _slo_figures(ds: xr.Dataset) -> list[tuple[str, str, str | None, str]]:
    found: list[tuple[str, str, str | None, str]] = []
    for index, text in enumerate(ds["slo"].values.tolist() if "slo" in ds.dims else ()):
        found.append((f"attained_{index}", "slo_attainment", text, f"Share that meets {text}"))
        found.append((f"goodput_{index}", "goodput", text, f"Goodput, {text} [1/s]"))
    return found


def _described_axis(ds: xr.Dataset, name: str) -> dict[str, Any]:
    """Return what the viewer needs of an axis; a few numbers are names, as they need not be evenly spaced."""
    axis = describe_dim(ds, name)
    if ds.sizes[name] <= MOST_NAMES:
        axis |= {"kind": "category", "values": [point_text(name, value) for value in ds[name].values.tolist()]}
    if name.endswith("_tokens"):
        axis["unit"] = "token"
    return axis


def point_text(name: str, value: Any) -> str:
    """Return a point of an axis as short text."""
    if isinstance(value, str):
        return value
    if name == "ttl" and math.isinf(value):
        return "never"
    for size, suffix in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= 1e4 and abs(value) >= size:
            return f"{value / size:.4g}{suffix}"
    return f"{value:g}"


def _held(name: str) -> dict[str, Any]:
    """Return an axis of one point, for studies with fewer than two."""
    return {"name": name, "label": name.capitalize(), "unit": "", "kind": "category", "values": ["all"], "held": True}


def _header(
    ds: xr.Dataset, dims: Sequence[dict[str, Any]], choices: Sequence[Choice], codes: NDArray[np.uint8]
) -> dict[str, Any]:
    names = [str(dim["name"]) for dim in dims]
    # Numbers make the better picture: the longest such axes first.
    texts = [name in ds.dims and ds[name].dtype.kind not in "fiu" for name in names]
    order = sorted(range(len(dims)), key=lambda i: (texts[i], -len(dims[i]["values"])))
    wide = [names.index(name) for name in ("ttl", "host_tokens") if name in names] + order
    axes = [names[i] for i in dict.fromkeys(wide)][:2]
    several = len(choices) > 1
    first = np.argmax(codes == BEST, axis=0)
    won = np.where((codes == BEST).any(axis=0), first, len(choices))
    return {
        "format": FORMAT,
        "title": str(ds.attrs.get("title", "Cluster study")),
        "who": "Choice",
        "view": "ttft_mean" if sum(len(dim["values"]) > 1 for dim in dims) == 1 else "verdict",
        "dims": list(dims),
        "scalars": {},
        "policies": [
            {"id": choice.label, "label": choice.label, "description": _described(ds, choice),
             "color": COLORS[index % len(COLORS)]}
            for index, choice in enumerate(choices)
        ],
        "simplest": list(range(len(choices))) if several else None,
        "modes": [],
        "axes": axes,
        "start": start_amid((codes == FAR).any(axis=0), names, axes),
        "counts": [np.bincount(plane.ravel(), minlength=len(_LOOK)).tolist() for plane in codes],
        "sufficient": np.bincount(won.ravel(), minlength=len(choices) + 1).tolist(),
        "states": {"verdict": list(_LOOK)},
        "unchanged": "",
        "best": {"title": "Least mean TTFT", "caption": "Choice with the least mean TTFT", "none": "No result",
                 "note": "with a result"},
    }  # fmt: skip


def _described(ds: xr.Dataset, choice: Choice) -> str:
    parts = [f"{label(name)}: {value_text(ds[name].values[index])}" for name, index in choice.at.items()]
    return "; ".join(parts) or "every cell of the study"


def headline(
    ds: xr.Dataset, choices: Sequence[Choice], mean: NDArray[np.float64], codes: NDArray[np.uint8], dims: Sequence[str]
) -> list[str]:
    """Return the answer in sentences: which choice is best most often, the best cell, what failed."""
    cells = int((codes != NO_RESULT).any(axis=0).sum())
    wins = (codes == BEST).reshape(len(choices), -1).sum(axis=1)
    sentences = []
    if len(choices) > 1:
        most = [choice.label for choice, won in zip(choices, wins, strict=True) if won == wins.max()]
        share = "all" if wins.max() == cells else f"{100.0 * wins.max() / cells:.3g} % of"
        verb = "gives" if len(most) == 1 else "give"
        sentences.append(f"{shorten(listed(most), 120)} {verb} the least mean TTFT in {share} {cells:,} settings.")
    index = np.unravel_index(np.nanargmin(mean), mean.shape)
    least, worst = float(np.nanmin(mean)), float(np.nanmax(mean))
    where = [
        f"{in_sentence(label(name))} {point_text(name, ds[name].values[at].item())}"
        for name, at in zip(dims, index[1:], strict=True)
        if name in ds.dims
    ]
    who = f" with {choices[int(index[0])].label}" if len(choices) > 1 else ""
    place = f" at {listed(where)}" if where else ""
    sentences.append(f"The least mean TTFT is {number(least)} s{who}{place}; the greatest is {number(worst)} s.")
    if "seed" in ds.dims:
        sentences.append(f"Figures are means over {ds.sizes['seed']} seeds.")
    failed, pending = (int(ds.attrs.get(f"kvsweep_{name}", 0)) for name in ("failed", "pending"))
    if failed or pending:
        sentences.append(f"{failed} simulations failed and {pending} have not been run; their cells are empty.")
    return [sentence for sentence in sentences if not math.isnan(least)]
