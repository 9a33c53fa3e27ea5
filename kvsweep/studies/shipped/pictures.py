"""The pictures people expect of a KV hierarchy, each from full simulations: sources, the cliff, capacity, tiers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kvsweep.catalog.specs import Disk, Link
from kvsweep.cluster.inputs.config import ClusterConfig, Context, config_mapping, parse_config
from kvsweep.cluster.inputs.service_profile import Profile, profile_mapping
from kvsweep.cluster.policies import eviction
from kvsweep.cluster.simulation.run import run
from kvsweep.errors import InputError
from kvsweep.results.analysis import studies
from kvsweep.results.attrs import to_attrs
from kvsweep.results.dataset import common_attrs, text_array, timestamp
from kvsweep.results.names import attributes
from kvsweep.studies.parallel import in_threads
from kvsweep.studies.shipped.shared_tier import Store, behind_link, drive_writes_per_day, lifetime_days, on_disk
from kvsweep.trace.build import Builder
from kvsweep.trace.model import Notes, Trace
from kvsweep.trace.reuse import hit_ratios, reuse

SOURCES = ("recompute", "device", "host", "disk", "remote")
"""Where a prompt's KV comes from; the last two are a tier behind the host, which fidelity paper does not have."""
LENGTHS = (1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
"""Prompt lengths of the picture of sources [token]."""
PAGE = 64
"""Tokens in a page [token]."""
L3 = {"pool_tokens": 10**9, "stop_policy": "wait_complete"}
"""A shared tier that holds all, and whose KV a request waits for."""
APART = 1e4
"""Pause between requests, in which everything ends [s]."""
DOCUMENTS = (4, 8, 16, 32, 64, 96, 128, 192, 256, 384)
"""Documents of the cliff, that is working sets."""
DOCUMENT_TOKENS = 8000.0
CLIFF_REQUESTS = 800
CLIFF_RATE = 12.0
"""Offered rate of the cliff, which reuse can serve and recomputing cannot [1/s]."""
TERA = 1e12
STOP = "timeout"
"""When a request stops waiting for L3 in the study of tiers, where the cluster file does not say."""


def worker_cluster(
    tp: int, device_tokens: int, host_tokens: int, fidelity: str = "engine", l3: Mapping[str, Any] | None = None
) -> ClusterConfig:
    """Return one prefill and one decode worker."""
    values = {
        "fidelity": fidelity, "page_size": PAGE,
        "workers": [
            {"role": "prefill", "tp": tp, "device_tokens": device_tokens, "host_tokens": host_tokens},
            {"role": "decode", "tp": tp, "device_tokens": 1 << 20},
        ],
    }  # fmt: skip
    return parse_config(values if l3 is None else {**values, "l3": l3}, "cluster of the picture")


def sources(
    profile: Profile, disk: Disk, link: Link, fidelity: str = "engine", lengths: Sequence[int] = LENGTHS
) -> xr.Dataset:
    """Return the time to first token of a lone prompt by its length and where its KV is, each simulated.

    ``recompute``: nowhere. ``device``: the same prompt came before. ``host``: it came before, and others since, which
    took its room on the device. ``disk``, ``remote``: others took its room on the host, too, and it is read from a
    drive, or from another machine's memory; NaN where that takes longer than the clock holds. All but the last page can
    be reused. ``handoff`` is the part of it from the end of the prefill until the KV is at the decode worker. Dims:
    source, prompt_tokens.
    """
    behind = {"disk": on_disk(profile, disk), "remote": behind_link(profile, link)} if fidelity != "paper" else {}

    def one(length: int) -> NDArray[np.float64]:
        tight = length + PAGE * (length // PAGE // 8 + 2)
        near = [_alone(profile, length, 1, device, 16 * length, fidelity) for device in (8 * length, tight)]
        far = [_fetched(each, length, tight, fidelity) for each in behind.values()]
        return np.stack([near[0][:, 0], *(found[:, -1] for found in (*near, *far))])

    found = np.array(in_threads(one, list(lengths))).transpose(2, 1, 0)
    coords = {"source": text_array(SOURCES[: found.shape[1]]), "prompt_tokens": np.array(lengths)}
    ds = xr.Dataset(
        {
            name: xr.Variable(("source", "prompt_tokens"), array, attributes(name))
            for name, array in zip(("ttft", "handoff"), found, strict=True)
        },
        {name: xr.Variable(name, points, attributes(name)) for name, points in coords.items()},
    )
    about = {
        "title": f"Time to first token by source of the KV, {profile.name}",
        "history": f"{timestamp()} kvsweep study sources",
        "kvsweep_result": "sources",
        "kvsweep_fidelity": fidelity,
        "kvsweep_profile": profile_mapping(profile),
        "kvsweep_profile_kind": profile.kind,
        "kvsweep_sources": {"disk": disk.name, "remote": link.name} if behind else None,
    }
    return ds.assign_attrs(to_attrs(common_attrs() | about))


def _fetched(profile: Profile, length: int, device_tokens: int, fidelity: str) -> NDArray[np.float64]:
    """Return the times of `_alone` with KV from L3 in the end, NaN where its copies are too long to be simulated."""
    try:
        # The host holds two of the prompts beside the first, and more than the device, or nothing would be fetched.
        return _alone(profile, length, 3, device_tokens, 5 * length // 2, fidelity, L3)
    except InputError:
        return np.full((2, 1), math.nan)


def _alone(
    profile: Profile, length: int, others: int, device_tokens: int, host_tokens: int, fidelity: str,
    l3: Mapping[str, Any] | None = None,
) -> NDArray[np.float64]:  # fmt: skip
    """Return (2, n) times [s] of a prompt, of `others` of the same length, and of the first again: TTFT and handoff."""
    one_pair = worker_cluster(profile.tp, device_tokens, host_tokens, fidelity, l3)
    # The lengths go on beyond the context of some models.
    config = replace(one_pair, context=Context(beyond="serve"))
    ds = run(_far_apart(length, others), config, profile)
    return np.stack([ds["ttft"].values, (ds["handoff_end"] - ds["prefill_end"]).values])


def _far_apart(length: int, others: int) -> Trace:
    """Return a prompt, `others` of the same length, and the first again, far apart."""
    builder, pages = Builder(Notes()), -(-length // PAGE)
    for i, which in enumerate((*range(others + 1), 0)):
        builder.add(i * APART, (length, 2), runs=([which * pages], [pages]))
    return builder.finish(PAGE, "picture of sources")


def cliff_study(profile: Profile, host_tokens: Sequence[int], fidelity: str = "engine") -> dict[str, Any]:
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


def tiers_study(
    profile: Profile, config: ClusterConfig, trace: Any, host_tokens: int, store: Store | None
) -> dict[str, Any]:
    """Return the study of device only, with host memory, and with what is behind it: `store`, None for nothing."""
    values = config_mapping(config)
    axes: dict[str, list[Any]] = {"host_tokens": [0, host_tokens]}
    if store is not None:
        profile, pool = store.profile(profile), store.pool_tokens(profile)
        values["l3"] = {"stop_policy": STOP, **values.get("l3", {}), "pool_tokens": pool}
        axes["l3_tokens"] = [0, pool]
    return {
        "title": "Device only, with host memory, and with a shared tier",
        "cluster": values,
        "profile": {"label": profile.name, **profile_mapping(profile)},
        "trace": trace,
        "axes": axes,
    }


def with_wear(ds: xr.Dataset, store: Store, amplification: float) -> xr.Dataset:
    """Return the study of tiers with how fast its drives are written and worn, if every day is as the trace."""
    written, seconds = ds["bytes_in"].sel(tier="l3", drop=True), ds["simulated_seconds"]
    pairs = list(zip(written.values.ravel().tolist(), seconds.values.ravel().tolist(), strict=True))
    found = {
        "drive_writes_per_day": [drive_writes_per_day(store, n_bytes, span) for n_bytes, span in pairs],
        "lifetime_days": [lifetime_days(store, n_bytes, span, amplification) for n_bytes, span in pairs],
    }
    shape = written.shape
    added = {name: (written.dims, np.reshape(values, shape), attributes(name)) for name, values in found.items()}
    about = {
        "store": store.name, "capacity_bytes": store.capacity_bytes, "write_amplification": amplification,
        "written_bytes_allowed": store.drives * store.disk.endurance.written_bytes if store.disk.endurance else None,
    }  # fmt: skip
    return ds.assign(added).assign_attrs(to_attrs({"kvsweep_shared_tier": about}))


def tiers_table(ds: xr.Dataset) -> list[dict[str, Any]]:
    """Return the before and after of tiers: device only, with host memory, and with L3 where there is one, a row each.

    A byte moved is one that a copy brought into a tier or to a decode worker.
    """
    hosts = ds["host_tokens"].values.tolist()
    places: list[tuple[str, dict[str, Any]]] = [
        ("device only" if not tokens else f"+ host {count(tokens)}", {"host_tokens": tokens}) for tokens in hosts
    ]
    if "l3_tokens" in ds.dims:
        none, pool = ds["l3_tokens"].values.tolist()
        places = [(name, {**at, "l3_tokens": none}) for name, at in places]
        places.append((f"+ shared {count(pool)}", {"host_tokens": hosts[-1], "l3_tokens": pool}))
    return [{"tiers": name, **_tier_row(ds.sel(at))} for name, at in places]


def _tier_row(part: xr.Dataset) -> dict[str, float]:
    hits, prompts = part["hit_tokens"].values, float(part["prompt_tokens"])
    row = {
        "hit_ratio": float(part["token_hit_ratio"]),
        **{f"hit_share_{tier}": float(hits[i] / prompts) for i, tier in enumerate(part["tier"].values)},
        **{f"ttft_{point}": float(part["ttft"].sel(statistic=point)) for point in ("mean", "p50", "p95", "p99")},
        "tokens_per_second": float(part["tokens_per_second"]),
        "bytes_moved": float(part["bytes_in"].sum() + part["handoff_bytes"]),
    }
    wear = [name for name in ("drive_writes_per_day", "lifetime_days") if name in part]
    # Without the shared tier there is no drive to wear out.
    return row | {name: float(part[name]) if int(part["l3_tokens"]) else math.nan for name in wear}


def count(tokens: float) -> str:
    """Return a number of tokens in millions, for the name of a row."""
    return f"{tokens * 1e-6:.3g}M tokens"
