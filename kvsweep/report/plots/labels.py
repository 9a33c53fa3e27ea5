"""Words of the figures: axis titles, tick texts and the line that says which slice is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import xarray as xr
from matplotlib.colors import is_color_like
from matplotlib.font_manager import findfont, get_font

from kvsweep.costs.deployment import CUSTOM
from kvsweep.costs.inputs import NUMBER_FIELDS
from kvsweep.report.labels import block_tokens, title_of
from kvsweep.report.plots.scales import count_text
from kvsweep.report.plots.style import INK
from kvsweep.results.analysis.slices import Slice, value_text
from kvsweep.results.attrs import mapping_attr
from kvsweep.results.names import NAMES
from kvsweep.units import format_quantity

TITLES: Mapping[str, str] = {
    "request_rate": "Request rate [1/s]",
    "p95_seconds": "Latency target P95 [s]",
    "hit_ratio": "Hit ratio [1]",
    "miss_blocks": "Blocks cached nowhere [block]",
    "total_blocks": "Blocks of the request [block]",
    "prompt_tokens": "Prompt [token]",
    "missing_tokens": "Prompt cached nowhere [token]",
    "stack": "Stack",
    "placement": "Placement",
    "ttl": "Idle time to live [s]",
    "host_tokens": "Host KV of a worker [token]",
    "device_tokens": "Device KV of a worker [token]",
    "l3_tokens": "KV in the shared pool [token]",
    "chunk_tokens": "Chunk of a prefill step [token]",
    "page_size": "Page [token]",
}
_PHRASES: Mapping[str, Callable[[Any], str]] = {
    "stack": str,
    "placement": lambda value: f"placement {value}",
    "total_blocks": lambda value: f"{float(value):,.0f} blocks".replace(",", " "),
    "hit_ratio": lambda value: f"hit ratio {value_text(value)}",
    "miss_blocks": lambda value: f"{float(value):,.0f} blocks missed".replace(",", " "),
    "request_rate": lambda value: f"{value_text(value)} requests/s",
    "p95_seconds": lambda value: f"P95 {value_text(value)} s",
}
_TOKENS = {"total_blocks": "prompt_tokens", "miss_blocks": "missing_tokens"}
"""Axes of blocks, by what they are called in tokens."""
_PARTS = ("gpu", "dram", "disk", "link")
LONGEST = 60
"""Characters of a text beyond which it is shortened."""
LONGEST_NAME = 28
"""The same of the name of a policy, of which several stand side by side."""


def axis_title(dim: str) -> str:
    """Return the title of the axis of a dim, with its unit unless the tick texts carry it."""
    # Studies have any field of the cluster file as an axis.
    name = NAMES[dim].long_name if dim in NAMES else dim.replace("_", " ")
    return TITLES.get(dim) or title_of(name)


def shown_axis(ds: xr.Dataset, dim: str) -> tuple[str, list[Any]]:
    """Return the name and the points of a dim as they are drawn: blocks as tokens where a block is so many."""
    tokens = block_tokens(ds)
    if dim in _TOKENS and tokens is not None:
        return _TOKENS[dim], (ds[dim].values * tokens).tolist()
    return dim, ds[dim].values.tolist()


def tick_text(dim: str, value: Any) -> str:
    """Return the text of one tick of a dim."""
    unit = NUMBER_FIELDS[dim].unit if dim in NUMBER_FIELDS else ""
    if dim == "ttl" and float(value) == float("inf"):
        return "never"
    if dim.endswith("_tokens"):
        return count_text(float(f"{float(value):.3g}"))
    return format_quantity(float(value), unit) if unit in ("byte", "byte/s", "FLOP/s") else plain(value_text(value))


def caption(part: Slice) -> str:
    """Return what is fixed in a slice: the machine, whatever else the sweep was given, and any default taken."""
    ds = part.dataset
    stack = str(ds["stack"].values) if "stack" in ds.coords and ds["stack"].ndim == 0 else CUSTOM
    given = mapping_attr(ds, "kvsweep_config")
    names = [name for name in (*given, *_PHRASES) if name in ds.coords and ds[name].ndim == 0 and name in NAMES]
    tokens = block_tokens(ds)
    phrases = {name: _phrase(name, ds[name].item(), name in part.assumed, tokens) for name in dict.fromkeys(names)}
    if "hit_ratio" in phrases or "hit_ratio" in ds.dims:
        phrases.pop("miss_blocks", None)
    if stack == CUSTOM:
        phrases.pop("stack", None)
        phrases |= {name: str(ds[name].values) for name in _PARTS if name in ds.coords and ds[name].ndim == 0}
    order = ["stack", *_PARTS, *phrases]
    return " · ".join(phrases[name] for name in dict.fromkeys(order) if name in phrases)


def policy_labels(ds: xr.Dataset, longest: int = LONGEST_NAME) -> list[str]:
    """Return the names of the policies of a sweep as they can be drawn."""
    return [plain(str(label), longest) for label in ds["policy_label"].values]


def policy_colors(ds: xr.Dataset) -> list[str]:
    """Return the colours of the policies of a sweep; ink for what is no colour in a file of somebody else."""
    return [str(color) if is_color_like(str(color)) else INK for color in ds["policy_color"].values]


def _phrase(name: str, value: Any, assumed: bool, tokens_per_block: float | None) -> str:
    if name in _TOKENS and tokens_per_block is not None:
        count = tick_text(_TOKENS[name], value * tokens_per_block)
        text = f"prompt of {count} tokens" if name == "total_blocks" else f"{count} tokens missed"
    elif name in _PHRASES:
        text = _PHRASES[name](value)
    elif name in _PARTS or name == "model":
        text = str(value)
    else:
        text = f"{name} {tick_text(name, value)}"
    return plain(text) + (" (default)" if assumed else "")


def plain(text: str, longest: int = LONGEST) -> str:
    """Return a foreign name as matplotlib can draw it: one short line, no formulas, no glyph the font lacks."""
    line = " ".join(str(text).split())
    line = line if len(line) <= longest else line[: longest - 1] + "…"
    line = "".join(letter if ord(letter) in _glyphs() else "\u25a1" for letter in line)
    line = line.replace("$", r"\$")
    return f" {line}" if line.startswith("_") else line  # a leading underscore hides a label from legends


@cache
def _glyphs() -> frozenset[int]:
    return frozenset(get_font(findfont("DejaVu Sans")).get_charmap())
