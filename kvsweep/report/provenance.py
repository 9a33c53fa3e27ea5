"""Where the numbers of a report come from: configuration, hardware, versions, assumptions, precision."""

from __future__ import annotations

import contextlib
import shlex

import numpy as np
import xarray as xr

from kvsweep.report.labels import IN_TOKENS, block_tokens, label, number, shorten, unit
from kvsweep.report.payload import Payload
from kvsweep.results.attrs import mapping_attr

Rows = list[tuple[str, str]]

DEPLOYMENT = (
    "stack", "gpu", "gpu_count", "dram", "dram_count", "disk", "link", "model", "peak_flops", "hbm_bandwidth",
    "hbm_capacity", "dram_bandwidth", "dram_capacity", "disk_bandwidth", "disk_capacity", "link_bandwidth",
    "model_params", "tokens_per_block", "bytes_per_block", "gpu_eta", "attention_eta", "setup_seconds",
    "cost_model", "path_model", "overlap",
)  # fmt: skip
WORKLOAD = ("total_blocks", "placement", "hit_ratio", "miss_blocks", "request_rate", "p95_seconds")
_REPEATED = ("placement", "policy_files", "hardware")
"""Settings whose values may hold commas: their option is given once for each."""
PREFIXED = ("B", "B/s", "FLOP/s")
"""Units that are printed with an SI prefix."""
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def axes_rows(ds: xr.Dataset) -> Rows:
    """Return each axis of the workload with its range, or its one value; blocks as tokens, too."""
    tokens = block_tokens(ds)
    rows: Rows = []
    for name in (name for name in WORKLOAD if name in ds.coords):
        text = _extent(ds[name], name)
        if name in IN_TOKENS and tokens is not None:
            text = f"{_extent(ds[name] * tokens, name)} tokens: {text} blocks of {number(tokens)}"
            rows.append((IN_TOKENS[name], text))
        else:
            rows.append((label(name), text))
    return rows


def deployment_rows(ds: xr.Dataset) -> Rows:
    """Return what the machine and the model resolved to in the catalog."""
    world = [("World", str(ds.attrs["kvsweep_world"]))] if "kvsweep_world" in ds.attrs else []
    return [*world, *((label(name), _extent(ds[name], name)) for name in DEPLOYMENT if name in ds.coords)]


def version_rows(ds: xr.Dataset, payload: Payload) -> Rows:
    """Return versions, sources and precision."""
    found = [
        ("Made by", ds.attrs.get("source")),
        ("History", ds.attrs.get("history")),
        ("Catalog (sha256)", ds.attrs.get("kvsweep_catalog_sha256")),
        ("Schema", ds.attrs.get("kvsweep_schema_version")),
        ("Conventions", ds.attrs.get("Conventions")),
        ("References", ds.attrs.get("references")),
        ("Assumptions", ds.attrs.get("comment")),
        ("Precision", precision(payload)),
    ]
    return [(name, str(value)) for name, value in found if value is not None]


def precision(payload: Payload) -> str:
    """Return how far the numbers of the page may lie from those of the Dataset."""
    worst = error_bound(payload)
    states = "States, decisions and counts are exact. "
    if worst == 0.0:
        return states + "Times and blocks are the Dataset's own numbers, not quantised; tables round them for display."
    return states + (
        f"Times and blocks are quantised on a logarithmic scale of 24 bits: read-outs and CSV are within {worst:.1g} "
        "(relative) of the Dataset; tables round them further for display."
    )


def error_bound(payload: Payload) -> float:
    """Return the greatest relative error [1] of a time or block count read from the payload.

    A time derived from quantised ones adds its own difference to their error.
    """
    errors = {"log24": 0.0, "derived": 0.0}
    for spec in payload.header["planes"].values():
        if "error" in spec:
            errors[spec["type"]] = max(errors[spec["type"]], spec["error"])
    return errors["log24"] + errors["derived"]


def source_rows(ds: xr.Dataset) -> Rows:
    """Return where the figures of every catalog entry in use come from."""
    return [(str(entry), str(citation)) for entry, citation in mapping_attr(ds, "kvsweep_sources").items()]


def command_line(ds: xr.Dataset) -> str:
    """Return the command that makes this sweep again, empty when the file does not hold its configuration."""
    words = ["kvsweep", "sweep"]
    for name, value in mapping_attr(ds, "kvsweep_config").items():
        if name == "squeeze":  # the command line always does
            continue
        option = "--" + name.removesuffix("s" if name == "policy_files" else "").replace("_", "-")
        repeated = value if isinstance(value, list) and name in _REPEATED else [value]
        for item in repeated:
            words += [option, ",".join(map(str, item)) if isinstance(item, list) else str(item)]
    return shlex.join([*words, "--output", "sweep.nc"]) if len(words) > 2 else ""


def python_call(ds: xr.Dataset) -> str:
    """Return the Python call that makes this sweep again, empty when the file does not hold its configuration."""
    config = mapping_attr(ds, "kvsweep_config")
    if not config:
        return ""
    options = ",\n".join(f"    {name}={value!r}" for name, value in config.items())
    return f"import kvsweep\n\nds = kvsweep.sweep(\n{options},\n)"


def _extent(axis: xr.DataArray, name: str) -> str:
    values = np.unique(axis.values)
    varies = "" if axis.ndim == 0 or axis.dims == (name,) else f" (varies with {', '.join(map(str, axis.dims))})"
    if axis.dtype.kind not in "fiu":
        shown = [str(value) for value in (axis.values.ravel() if axis.ndim else values)]
        return ", ".join(dict.fromkeys(shown)) + varies
    if len(values) == 1:
        return quantity(float(values[0]), unit(name, axis))
    span = f"{quantity(float(values[0]), unit(name, axis))} to {quantity(float(values[-1]), unit(name, axis))}"
    return span + (f", {axis.size} points" if axis.dims == (name,) else varies)


def setting(name: str, text: str | None, longest: int = 300) -> str:
    """Return a setting as somebody gave it, large quantities with a prefix."""
    if text is None:
        return "not set"
    if unit(name) in PREFIXED:
        with contextlib.suppress(ValueError):  # of a range, or a number typed with its unit
            return quantity(float(text), unit(name))
    return shorten(text, longest)


def quantity(value: float, units: str) -> str:
    """Return a number with its unit, bytes and operations with an SI prefix."""
    if units in PREFIXED:
        for size, prefix in _PREFIXES:
            if abs(value) >= size:
                return f"{number(value / size)} {prefix}{units}"
    return f"{number(value)} {units}".strip()
