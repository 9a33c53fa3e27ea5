"""The pictures people expect of a KV hierarchy, each from full simulations: sources, the cliff, capacity, tiers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from kvsweep.cluster import eviction
from kvsweep.cluster.config import ClusterConfig, config_mapping, parse_config
from kvsweep.cluster.profile import Profile, profile_mapping
from kvsweep.cluster.simulation import run
from kvsweep.errors import InputError
from kvsweep.results import studies
from kvsweep.results.attrs import to_attrs
from kvsweep.results.dataset import common_attrs, text_array, timestamp
from kvsweep.results.names import attributes
from kvsweep.studies.parallel import in_threads
from kvsweep.trace.build import Builder
from kvsweep.trace.model import Notes, Trace
from kvsweep.trace.reuse import hit_ratios, reuse

SOURCES = ("recompute", "device", "host")
"""Where a prompt's KV comes from; disk and remote follow with a shared tier."""
LENGTHS = (1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
"""Prompt lengths of the picture of sources [token]."""
APART = 1e4
"""Pause between requests, in which everything ends [s]."""
DOCUMENTS = (4, 8, 16, 32, 64, 96, 128, 192, 256, 384)
"""Documents of the cliff, that is working sets."""
DOCUMENT_TOKENS = 8000.0
CLIFF_REQUESTS = 800
CLIFF_RATE = 12.0
"""Offered rate of the cliff, which reuse can serve and recomputing cannot [1/s]."""
TERA = 1e12


def worker_cluster(tp: int, device_tokens: int, host_tokens: int, fidelity: str = "paper") -> ClusterConfig:
    """Return one prefill and one decode worker."""
    return parse_config(
        {
            "fidelity": fidelity, "page_size": 64,
            "workers": [
                {"role": "prefill", "tp": tp, "device_tokens": device_tokens, "host_tokens": host_tokens},
                {"role": "decode", "tp": tp, "device_tokens": 1 << 20},
            ],
        },
        "cluster of the picture",
    )  # fmt: skip


def sources(profile: Profile, fidelity: str = "paper", lengths: Sequence[int] = LENGTHS) -> xr.Dataset:
    """Return the time to first token of a lone prompt by its length and where its KV is, each simulated.

    ``recompute``: nowhere. ``device``: the same prompt came before. ``host``: it came before, and others since, which
    took its room on the device. All but the last page can be reused. Dims: source, prompt_tokens.
    """

    def one(length: int) -> list[float]:
        pages = length // 64
        trace = _three(length)
        roomy = run(trace, worker_cluster(profile.tp, 8 * length, 16 * length, fidelity), profile)
        tight = run(trace, worker_cluster(profile.tp, length + 64 * (pages // 8 + 2), 16 * length, fidelity), profile)
        return [float(roomy["ttft"][0]), float(roomy["ttft"][2]), float(tight["ttft"][2])]

    found = np.array(in_threads(one, list(lengths))).T
    coords = {"source": text_array(SOURCES), "prompt_tokens": np.array(lengths)}
    ds = xr.Dataset(
        {"ttft": xr.Variable(("source", "prompt_tokens"), found, attributes("ttft"))},
        {name: xr.Variable(name, points, attributes(name)) for name, points in coords.items()},
    )
    about = {
        "title": f"Time to first token by source of the KV, {profile.name}",
        "history": f"{timestamp()} kvsweep study sources",
        "kvsweep_result": "sources",
        "kvsweep_profile": profile_mapping(profile),
        "kvsweep_profile_kind": profile.kind,
    }
    return ds.assign_attrs(to_attrs(common_attrs() | about))


def _three(length: int) -> Trace:
    """Return a prompt, another one of the same length, and the first again, far apart."""
    builder, pages = Builder(Notes()), -(-length // 64)
    for i, first in enumerate((0, pages, 0)):
        builder.add(i * APART, (length, 2), runs=([first], [pages]))
    return builder.finish(64, "picture of sources")


def cliff_study(profile: Profile, host_tokens: Sequence[int], fidelity: str = "paper") -> dict[str, Any]:
    """Return the study of the cliff: questions to ever more documents, until their KV fits nowhere."""
    traces = [
        {
            "generate": "qa", "label": f"{n} documents", "sessions": n, "turns": CLIFF_REQUESTS / n,
            "input_tokens": DOCUMENT_TOKENS, "request_rate": CLIFF_RATE,
        }
        for n in DOCUMENTS
    ]  # fmt: skip
    return {
        "title": "The cliff: questions to more and more documents",
        "cluster": config_mapping(worker_cluster(profile.tp, 262_144, 0, fidelity)),
        "profile": {"label": profile.name, **profile_mapping(profile)},
        "trace": traces,
        "axes": {"host_tokens": list(host_tokens)},
    }


def with_working_sets(ds: xr.Dataset) -> xr.Dataset:
    """Return the study of the cliff over ``working_set`` [token] in place of its traces."""
    sets = np.array([float(str(label).split()[0]) * DOCUMENT_TOKENS for label in ds["trace"].values])
    found = ds.assign_coords(working_set=xr.Variable("trace", sets, attributes("working_set")))
    return found.swap_dims(trace="working_set")


def capacity_study(
    profile: Profile, config: ClusterConfig, trace: Any, capacities: Sequence[int] | None = None
) -> dict[str, Any]:
    """Return the study of hit ratio against capacity: every eviction policy over host memory."""
    device = config.prefill[0].device_tokens
    found = capacities or [0, *(round(device * 2.0**i) for i in range(0, 9))]
    return {
        "title": "Hit ratio against capacity",
        "cluster": config_mapping(config),
        "profile": {"label": profile.name, **profile_mapping(profile)},
        "trace": trace,
        "axes": {"eviction": list(eviction.POLICIES), "host_tokens": [int(tokens) for tokens in found]},
    }


@dataclass(frozen=True, slots=True)
class Bounds:
    """Hit ratios of one cache of all workers' room, by exact stack distances, and of an infinite one [1]."""

    lru: list[float]
    infinite: float


def bounds(trace: Trace, capacities: Sequence[float]) -> Bounds:
    """Return the hit ratios of a single LRU cache of `capacities` [token], and of an infinite one."""
    if not trace.block_size:
        raise InputError("the trace has no block ids; allowed for hit ratios: one that has")
    found = reuse(trace)
    blocks: list[int | None] = [max(1, int(tokens // trace.block_size)) for tokens in capacities]
    *lru, infinite = hit_ratios(trace, found, [*blocks, None])
    return Bounds(lru, infinite)


def next_terabyte(ds: xr.Dataset, kv_bytes_per_token: float, policy: str = "lru") -> list[dict[str, float]]:
    """Return what more host memory buys: for each step of capacity, what a further TB a worker is worth there."""
    part = ds.sel(eviction=policy) if "eviction" in ds.dims else ds
    tokens = part["host_tokens"].values.astype(float)
    memory = tokens * kv_bytes_per_token / TERA
    ratio = studies.over_seeds(part["token_hit_ratio"])[0].values
    ttft = studies.over_seeds(studies.figure(part, "ttft", "mean"))[0].values
    busy = studies.over_seeds(part["prefill_utilization"])[0].values
    rows = []
    for i in range(len(tokens)):
        step = memory[i] - memory[i - 1] if i else math.nan
        rows.append({
            "host_tokens": tokens[i], "host_terabytes": memory[i], "token_hit_ratio": float(ratio[i]),
            "ttft_mean": float(ttft[i]),
            "hit_ratio_per_terabyte": float((ratio[i] - ratio[i - 1]) / step) if i else math.nan,
            "ttft_per_terabyte": float((ttft[i] - ttft[i - 1]) / step) if i else math.nan,
            "prefill_utilization_per_terabyte": float((busy[i] - busy[i - 1]) / step) if i else math.nan,
        })  # fmt: skip
    return rows


def tiers_table(ds: xr.Dataset, names: Mapping[int, str] | None = None) -> list[dict[str, Any]]:
    """Return the before and after of tiers: device only, then with host memory, a row each."""
    rows = []
    for tokens in ds["host_tokens"].values.tolist():
        part = ds.sel(host_tokens=tokens)
        hits = part["hit_tokens"].values
        prompts = float(part["prompt_tokens"])
        moved = float(part["bytes_in"].sum() + part["bytes_out"].sum() + part["handoff_bytes"])
        name = (names or {}).get(tokens) or ("device only" if not tokens else f"+ host {tokens * 1e-6:.3g}M tokens")
        ttft = part["ttft"]
        rows.append({
            "tiers": name, "hit_ratio": float(part["token_hit_ratio"]),
            **{f"hit_share_{tier}": float(hits[i] / prompts) for i, tier in enumerate(ds["tier"].values)},
            **{f"ttft_{point}": float(ttft.sel(statistic=point)) for point in ("mean", "p50", "p95", "p99")},
            "tokens_per_second": float(part["tokens_per_second"]), "bytes_moved": moved,
        })  # fmt: skip
    return rows
