"""Words and units a reader sees for the names in a Dataset."""

from __future__ import annotations

import xarray as xr

from kvsweep.results.names import NAMES

_SHORT = {
    "request_rate": "Request rate",
    "p95_seconds": "Latency target",
    "hit_ratio": "Hit ratio",
    "miss_blocks": "Missing blocks",
    "total_blocks": "Blocks per request",
    "placement": "Placement",
    "stack": "Stack",
    "gpu": "GPU",
    "dram": "DRAM",
    "disk": "Disk",
    "link": "Link",
    "model": "Model",
    "gpu_count": "GPUs",
    "dram_count": "DRAM modules",
    "peak_flops": "Peak compute per GPU",
    "hbm_bandwidth": "HBM bandwidth per GPU",
    "hbm_capacity": "HBM capacity per GPU",
    "dram_bandwidth": "DRAM bandwidth",
    "dram_capacity": "DRAM module capacity",
    "disk_bandwidth": "Disk bandwidth",
    "disk_capacity": "Disk capacity",
    "link_bandwidth": "Link bandwidth",
    "model_params": "Model parameters",
    "tokens_per_block": "Tokens per block",
    "bytes_per_block": "Bytes per block",
    "gpu_eta": "Achieved share of peak compute",
    "memory_utilization": "Share of HBM taken",
    "max_model_len": "Longest sequence",
    "step_tokens": "Largest step",
    "kv_dtype": "Numbers of the KV cache",
    "weight_dtype": "Numbers of the weights",
    "attention_eta": "Achieved share in attention",
    "setup_seconds": "Fixed time of restoring",
    "cost_model": "Cost model",
    "path_model": "Path model",
    "overlap": "Overlap",
    "storage_throughput": "Restore rate",
    "recompute_throughput": "Recompute rate",
    "profile": "Profile",
    "trace": "Trace",
    "fidelity": "Fidelity",
    "gateway": "Gateway",
    "eviction": "Eviction",
    "retention": "Retention",
    "retrieval": "Retrieval",
    "write": "Write",
    "page_size": "Page size",
    "chunk_tokens": "Chunk",
    "device_tokens": "Device KV per worker",
    "host_tokens": "Host KV per worker",
    "l3_tokens": "KV in the shared pool",
    "ttl": "Idle TTL",
    "rate_scale": "Rate scale",
    "seed": "Seed",
}

STATE_WORDS = ("fail", "too slow", "overloaded", "pass")
"""What a reader calls the codes of `results.analysis.sweeps.VERDICTS`: by what is missed, not by what is met."""

IN_TOKENS = {"total_blocks": "Prompt", "miss_blocks": "Prompt cached nowhere"}
"""Axes counted in blocks, and what they are called where they are told in tokens."""

_UNITS = {"1": "", "s-1": "1/s", "d-1": "1/day", "d": "days", "byte": "B", "byte s-1": "B/s"}
_OWN_UNITS = {"peak_flops": "FLOP/s", "storage_throughput": "blocks/s", "recompute_throughput": "blocks/s"}


def label(name: str) -> str:
    """Return the short label of an axis or coordinate."""
    if name in _SHORT:
        return _SHORT[name]
    return title_of(NAMES[name].long_name if name in NAMES else name.replace("_", " "))


def title_of(text: str) -> str:
    """Return `text` with a capital in front, and vLLM with those of its own."""
    text = text.replace("vllm", "vLLM")
    return text if text.startswith("vLLM") else text[:1].upper() + text[1:]


def in_sentence(text: str) -> str:
    """Return a label as it stands within a sentence: small, unless it is an abbreviation."""
    return text if text[:2].isupper() else text[:1].lower() + text[1:]


def unit(name: str, array: xr.DataArray | None = None) -> str:
    """Return the unit as it is printed, empty for counts, shares and texts."""
    stored = NAMES[name].units if name in NAMES else str(array.attrs.get("units", "")) if array is not None else ""
    return _OWN_UNITS.get(name, _UNITS.get(stored, stored))


def block_tokens(ds: xr.Dataset) -> float | None:
    """Return the tokens in a block [token], None where that is not one number."""
    found = ds.coords.get("tokens_per_block")
    return float(found) if found is not None and found.ndim == 0 else None


def number(value: float) -> str:
    """Return a number for a sentence: four significant digits, thousands separated by commas."""
    if value != value or value in (float("inf"), float("-inf")):
        return "infinite"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.4g}" if 1e-3 <= abs(value) < 1e6 else f"{value:.4g}"


def shorten(text: str, limit: int = 60) -> str:
    """Return `text` on one line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def listed(words: list[str]) -> str:
    """Return words as an enumeration: ``a``, ``a and b``, ``a, b and c``."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
