"""The engine's core in the words of its slow twin: the same settings, and the same answer but for ``sim``."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.inputs.config import ClusterConfig, parse_config
from kvsweep.cluster.inputs.service_profile import PathModel, Profile
from kvsweep.cluster.outcome.dataset import dataset
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.simulation.run import finish
from kvsweep.trace.convert import change_block_size
from kvsweep.trace.model import Trace
from tests.cluster.engine.naive import PS, Request, Rules


def config_of(rules: Rules) -> ClusterConfig:
    """Return the cluster file that says what `rules` say."""
    first = rules.groups[0]
    workers = []
    for group in rules.groups:
        values = {"role": group.role, "tp": 1, "device_tokens": group.device_tokens, "max_running": group.max_running}
        if group.role != "decode":
            values |= {"host_tokens": group.host_tokens, "chunk_tokens": group.chunk_tokens}
        if group.role != "prefill":
            values["graph_buckets"] = list(group.graph_buckets)
        workers.append(values)
    gateway = {name: getattr(rules, name) for name in (
        "seed", "balance_requests", "balance_ratio", "match_ratio", "tree_tokens", "prefill_load_scale",
        "device_credit", "host_credit", "disk_credit", "active_weight")}  # fmt: skip
    reserve = next((group.reserved_decode_tokens for group in rules.groups if group.role == "decode"), 512)
    values = {
        "fidelity": "engine", "page_size": rules.page_size, "workers": workers,
        "gateway": {"policy": rules.gateway, **gateway},
        "eviction": {"policy": rules.eviction, "xi_tokens": rules.xi_tokens, "growth_tokens": rules.growth_tokens},
        "retrieval": {"policy": rules.retrieval, "rate_window_seconds": rules.rate_window_seconds},
        "write": {"policy": rules.write, "threshold": rules.threshold}, "handoff_sharing": rules.sharing,
        "workload": {"mode": "closed" if rules.closed else "open", "think_seconds": rules.think_seconds},
        "window_seconds": rules.window_seconds,
        "engine": {
            "overlap": rules.overlap, "schedule": rules.schedule, "max_prefill_tokens": first.max_prefill_tokens,
            "reserved_decode_tokens": reserve, "router_join": rules.router_join,
            "prebuilt_seconds": rules.prebuilt / PS, "load_back_threshold_tokens": rules.load_back_threshold,
            "conservativeness": rules.conservativeness,
        },
    }  # fmt: skip
    if rules.ttl is not None:
        kept = rules.retention_file or "idle_ttl"
        values["retention"] = {"policy": kept, "seconds": rules.ttl[0], "check_seconds": rules.ttl[1]}
    if rules.ttft_seconds is not None:
        values["slo"] = {"ttft_seconds": rules.ttft_seconds}
    if rules.l3 is not None:
        values["l3"] = {
            "pool_tokens": rules.l3.pool_tokens, "stop_policy": rules.l3.stop,
            "prefetch_threshold_tokens": rules.l3.prefetch_threshold,
            "timeout_base_seconds": rules.l3.timeout_base / PS,
            "timeout_per_1024_tokens_seconds": rules.l3.timeout_per_1024 / PS, "batch_pages": rules.l3.batch_pages,
        }  # fmt: skip
    return parse_config(values, "of the twin")


def profile_of(rules: Rules, profile: Profile) -> Profile:
    """Return `profile` with what the twin takes from its rules."""
    profile = dataclasses.replace(profile, n_layers=rules.n_layers)
    if rules.l3 is None:
        return profile
    read, write = (
        PathModel(boundary="whole", setup_seconds=setup / 1e15, bytes_per_s=1e18 / per_byte)
        for setup, per_byte in (rules.l3.read, rules.l3.write)
    )
    return dataclasses.replace(profile, l3_read=read, l3_write=write, l3_query_seconds=rules.l3.query / PS)


def picoseconds(seconds: Any) -> Any:
    return np.round(np.asarray(seconds) * PS).astype(np.int64).tolist()


def run(trace: Trace, rules: Rules, profile: Profile, check: bool = True) -> dict[str, Any]:
    """Return what `naive_engine.run` returns, by the core."""
    done = finish(
        trace, config_of(rules), profile_of(rules, profile), policy_files=list(rules.policy_files), check=check
    )
    ds, state = dataset(done), done.state
    colocated = done.config.is_colocated
    n_prefill, end = len(state.prefill), done.end
    causes = [str(cause) for cause in ds["cause"].values]
    times = ["arrival", "prefill_start", "prefill_end", "first_token", "finish"] + ["handoff_end"] * (not colocated)
    columns = {name: ds[name].values for name in (*times, "rejected", "uncached_tokens", "hit_tokens", "queue_delay",
                                                  "prefill_worker", "decode_worker")}  # fmt: skip
    ours = causes if not colocated else ["prefill", "prefill_slots", "prefill_capacity", "h2d"]
    requests = []
    for i in range(len(trace)):
        row = {name: column[i] for name, column in columns.items()}
        if row["rejected"]:
            requests.append({"arrival": picoseconds(row["arrival"]), "rejected": True})
            continue
        found = {name: picoseconds(row[name]) for name in times}
        delays = dict(zip(causes, picoseconds(row["queue_delay"]), strict=True))
        found |= {
            "rejected": False, "uncached": int(row["uncached_tokens"]), "hits": tuple(row["hit_tokens"].tolist()),
            "prefill_worker": int(row["prefill_worker"]),
            "decode_worker": None if colocated else int(row["decode_worker"]) - n_prefill,
            "delay": {cause: delays[cause] for cause in ours},
        }  # fmt: skip
        requests.append(found)
    busy = ds["utilization"].values * end
    occupancy = ds["occupancy"].values
    pages = {name: ds[name].values.tolist() for name in ("evictions", "expirations")}
    moved = state.prefill[:, [col.SENT_PAGES, col.RETRIEVED_PAGES, col.WRITTEN_PAGES, eng.STORE_READ_PAGES,
                              eng.STORE_WRITTEN_PAGES]].T * state.run[col.PAGE_BYTES]  # fmt: skip
    return {
        "requests": requests, "last_finish": end, "busy": np.round(busy).astype(np.int64).tolist(),
        "evictions": [tuple(row[:2]) for row in pages["evictions"][:n_prefill]],
        "expirations": [tuple(row[:2]) for row in pages["expirations"][:n_prefill]],
        "retractions": [0] * (0 if colocated else n_prefill) + state.decode[:, eng.RETRACTIONS].tolist(),
        "occupancy": [tuple(row[:2]) for row in occupancy.tolist()],
        "windows": {
            name: ds[name].values.tolist() for name in ("outstanding", "completed_requests", "delivered_tokens")
        },
        "trees": [_pages(trace, rules, state, w) for w in range(n_prefill)],
        "bytes": dict(zip(("handoff", "h2d", "d2h", "l3_read", "l3_write"), moved.tolist(), strict=True)),
    }  # fmt: skip


def _pages(trace: Trace, rules: Rules, state: Any, w: int) -> dict[Any, tuple[bool, bool, int, int]]:
    """Return of each page in the tree of worker `w` in which tiers it is, and how many locks it has."""
    trace = change_block_size(trace, rules.page_size) if trace.block_size else trace
    found = {}
    for node in state.node[: state.run[eng.N_NODES]]:
        if node[eng.TREE] != w:
            continue
        chain = Request(int(node[eng.CHAIN_OF]), trace, rules.page_size).chain
        begin, end = int(node[eng.BEGIN]), int(node[eng.BEGIN] + node[eng.LENGTH])
        for name in chain[begin:end]:
            found[name] = (
                bool(node[eng.DEVICE]), bool(node[eng.HOST]), int(node[eng.LOCKS]), int(node[eng.HOST_LOCKS])
            )  # fmt: skip
    return found
