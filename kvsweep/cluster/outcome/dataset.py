"""The end of a run as a Dataset (names: `kvsweep.results.names`)."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import kvsweep.cluster.shared.columns as col
from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.inputs.config import ClusterConfig, config_mapping
from kvsweep.cluster.inputs.profiles import AnyProfile, any_profile_mapping
from kvsweep.cluster.outcome import engine, vllm
from kvsweep.cluster.policies.plugins import Plugin, Plugins
from kvsweep.cluster.shared.state import Ints, State
from kvsweep.policies.registry import Policy
from kvsweep.results.dataset import sweep_dataset, text_array, timestamp
from kvsweep.trace.model import Trace

if TYPE_CHECKING:
    import xarray as xr

TIERS = ("l1", "l2", "l3")
CAUSES = ("prefill", "prefill_slots", "prefill_capacity", "h2d", "decode_capacity", "handoff", "decode")
REFERENCES = "Compositional Performance Modeling of LLM Inference Clusters with Hierarchical KV Caching (the rules)"
ASSUMPTIONS = (
    "Fidelity paper: retrieve, then compute; replicas visible on completion; a decode worker admits when prompt and "
    "full output fit; no loop boundaries of engines; the first token is the end of the first decode step. No L3 tier."
)


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that came to its end, and what it was made of.

    `cpu_seconds` [s] are those of the core alone; `unused` is what the cluster file states without effect.
    """

    state: State
    trace: Trace
    config: ClusterConfig
    profile: AnyProfile
    policy: Policy
    plugins: Plugins
    cpu_seconds: float
    memory_bytes: int
    """Of the run's arrays [byte]."""
    unused: tuple[str, ...] = ()
    """What the cluster file states without effect."""
    is_compiled: bool = True
    """Whether the compiled core made it; its plain source gives the same to the last bit."""
    n_beyond: int = 0
    """Requests beyond the model's context."""

    @property
    def is_engine(self) -> bool:
        """Return whether the engine's core made it."""
        return self.config.core == "engine"

    @property
    def end(self) -> int:
        """Return the time of the last finish [ps]."""
        return int(self.state.request[:, col.FINISHED].max(initial=0))


@dataclass(frozen=True, slots=True)
class Told:
    """What a run tells of requests and workers: arrays of which `dataset` makes a Dataset, and attributes as there."""

    arrays: Mapping[str, Any]
    attrs: Mapping[str, Any]


def dataset(run: Finished) -> xr.Dataset:
    """Return requests, windows and workers of a finished run, with units and everything it was made from."""
    config, request = run.config, _columns(run.state)
    variables = _requests(run, request) | _windows(run.state, request, run.end) | _workers(run)
    n_windows = len(variables["outstanding"][1])
    coords: dict[str, tuple[tuple[str, ...], Any]] = {
        "window": (("window",), np.arange(n_windows) * config.window_seconds),
        "worker": (("worker",), text_array(worker_names(config))),
        **{name: ((dim,), text_array(labels)) for name, (dim, labels) in _labels(run).items()},
    }
    return sweep_dataset(variables, coords, attributes_of(run), squeeze=False)


def told(run: Finished) -> Told:
    """Return what `dataset` does of requests and workers, at a tenth of its cost."""
    variables = _requests(run, _columns(run.state)) | _workers(run)
    labels = {name: np.array(labels) for name, (_, labels) in _labels(run).items()}
    return Told({name: values for name, (_, values) in variables.items()} | labels, _figures_of(run))


def _labels(run: Finished) -> dict[str, tuple[str, Sequence[str]]]:
    """Return the dim and the texts of each coordinate that names workers, tiers and causes."""
    return {
        "worker_role": ("worker", _roles(run.config)),
        "tier": ("tier", TIERS),
        "cause": ("cause", CAUSES_OF[run.config.core]),
    }


def _columns(state: State) -> Ints:
    """Return the table of requests column by column, which is read once and not for each of many figures."""
    return np.ascontiguousarray(state.request.T)


def worker_names(config: ClusterConfig) -> list[str]:
    """Return the name of each worker, prefill workers first."""
    if config.is_colocated:
        return [f"worker{w}" for w in range(config.n_prefill)]
    return [f"prefill{w}" for w in range(config.n_prefill)] + [f"decode{d}" for d in range(config.n_decode)]


def _roles(config: ClusterConfig) -> list[str]:
    if config.is_colocated:
        return ["colocated"] * config.n_prefill
    return ["prefill"] * config.n_prefill + ["decode"] * config.n_decode


def attributes_of(run: Finished) -> dict[str, Any]:
    """Return what the figures of a run rest on."""
    reproducible = "SOURCE_DATE_EPOCH" in os.environ
    return {
        "title": f"kvsweep cluster run: {run.config.name}",
        "history": f"{timestamp()} kvsweep cluster run",
        "references": REFERENCES,
        "comment": ASSUMPTIONS_OF[run.config.core],
        "kvsweep_result": "cluster",
        "kvsweep_fidelity": run.config.fidelity,
        "kvsweep_extensions": engine.extensions(run.config, run.policy, run.plugins) if run.is_engine else None,
        "kvsweep_model": run.profile.model or None,
        "kvsweep_profile_kind": run.profile.kind,
        "kvsweep_trace": run.trace.source,
        "kvsweep_trace_notes": [str(note) for note in run.trace.notes],
        "kvsweep_retrieval": None if run.config.vllm else f"{run.policy.name} ({run.policy.origin})",
        "kvsweep_gateway": _named(run.config.gateway.policy, run.plugins.gateway),
        "kvsweep_eviction": None if run.config.vllm else _named(run.config.eviction.policy, run.plugins.eviction),
        "kvsweep_retention": None if run.config.vllm else _named(run.config.retention.policy, run.plugins.retention),
        "kvsweep_foresight": foresight(run.config) or None,
        "kvsweep_growth_tokens": _growth(run),
        "kvsweep_config_notes": list(run.unused),
        "kvsweep_profile": any_profile_mapping(run.profile),
        **_figures_of(run),
        # Of a file that is to be the same bytes again, the time it took is no part.
        "kvsweep_cpu_seconds": None if reproducible else run.cpu_seconds,
    }


def _figures_of(run: Finished) -> dict[str, Any]:
    """Return the attributes that studies measure; a step profile takes 10 ms to state."""
    operations, beyond = _operations(run)
    return {
        "kvsweep_retention_seconds": _chosen_ttl(run),
        "kvsweep_config": config_mapping(run.config),
        "kvsweep_operations": operations,
        "kvsweep_extrapolated_ratio": beyond / operations if operations else 0.0,
        "kvsweep_simulated_seconds": run.end * 1e-12,
        "kvsweep_beyond_context": run.n_beyond,
    }


def foresight(config: ClusterConfig) -> list[str]:
    """Return what policies of a run know of the trace beforehand, as none that serves requests could."""
    found, kept = [], config.retention
    if config.eviction.policy == "belady":
        found.append("eviction belady: the next use of everything")
    if config.eviction.policy == "tlru" and config.eviction.growth_tokens is None:
        found.append("eviction tlru: how much longer prompts of a session become, the mean over the trace")
    if kept.policy == "hazard_ttl":
        part = "whole trace" if kept.fit_ratio == 1.0 else f"first {kept.fit_ratio:.3g} of the trace"
        found.append(f"retention hazard_ttl: the gaps between uses in the {part}")
    return found


def _growth(run: Finished) -> int | None:
    """Return what ``tlru`` takes a conversation's next prompt to add [token]; None for other policies."""
    kept = run.config.eviction
    return int(run.state.run[col.BEYOND]) + kept.xi_tokens if kept.policy == "tlru" else None


def _chosen_ttl(run: Finished) -> float | None:
    """Return the idle time ``hazard_ttl`` chose [s], infinity where it keeps for ever; None for other policies."""
    if run.config.retention.policy != "hazard_ttl":
        return None
    return int(run.state.run[col.TTL]) * 1e-12 if run.state.run[col.RETENTION] else math.inf


def _named(name: str, plugin: Plugin | None) -> str:
    return f"{name} ({plugin.origin if plugin else 'built in'})"


def _operations(run: Finished) -> tuple[int, int]:
    """Return how many operations were timed, and how many of them outside what was measured."""
    prefill, decode = run.state.prefill, run.state.decode
    done = prefill[:, [col.STEPS, col.H2DS, col.D2HS]].sum() + decode[:, [col.DECODE_STEPS, col.CHUNKS]].sum()
    beyond = prefill[:, [col.STEPS_BEYOND, col.H2DS_BEYOND, col.D2HS_BEYOND]].sum()
    beyond += decode[:, [col.DECODE_STEPS_BEYOND, col.CHUNKS_BEYOND]].sum()
    if run.is_engine:
        done += prefill[:, [eng.STORE_READS, eng.STORE_WRITES]].sum()
        beyond += prefill[:, [eng.STORE_READS_BEYOND, eng.STORE_WRITES_BEYOND]].sum()
    return int(done), int(beyond)


Variables = dict[str, tuple[tuple[str, ...], Any]]


def _requests(run: Finished, request: Ints) -> Variables:
    """Return the figures of requests; (column, request)."""
    state, page = run.state, int(run.state.run[col.PAGE])
    columns = {
        "arrival": col.ARRIVAL, "prefill_start": col.BEGAN, "prefill_end": col.PREFILLED, "handoff_end": col.HANDED,
        "first_token": col.FIRST_TOKEN, "finish": col.FINISHED,
    }  # fmt: skip
    rejected = request[col.REJECTED] == 1
    found: Variables = {name: (("request",), _seconds(request[column])) for name, column in columns.items()}
    arrival, first, finish = (request[column] for column in (col.ARRIVAL, col.FIRST_TOKEN, col.FINISHED))
    output = request[col.OUTPUT]
    gaps = np.where(output > 1, output - 1, np.nan)
    hits = np.zeros((request.shape[1], len(TIERS)), dtype=np.int64)
    if run.is_engine:
        hits[:] = engine.hits(request) * page
    elif run.config.vllm:
        hits[:, 0] = vllm.hits(request)
    else:
        hits[:, 0], hits[:, 1] = request[col.MATCHED] * page, request[col.RETRIEVED] * page
    hits[rejected] = 0
    computed = np.where(rejected, 0, request[col.PROMPT] - hits.sum(axis=1))
    first_decode = 0 if run.config.is_colocated else len(state.prefill)
    decode_worker = np.where(rejected, -1, request[col.AT_DECODE] + first_decode)
    per_request = {
        "ttft": _between(first, arrival),
        "tpot": _between(finish, first) / gaps,
        "e2e": _between(finish, arrival),
        "prompt_tokens": request[col.PROMPT],
        "output_tokens": output,
        "uncached_tokens": computed,
        "prefill_worker": request[col.AT_PREFILL].astype(np.int32),
        "decode_worker": decode_worker.astype(np.int32),
        "session": run.trace.session,
        "rejected": rejected.astype(np.int8),
    }
    found |= {name: (("request",), values) for name, values in per_request.items()}
    found["hit_tokens"] = (("request", "tier"), hits)
    found["queue_delay"] = (("request", "cause"), DELAYS_OF[run.config.core](state, request))
    return found


def _delays(_: State, request: Ints) -> NDArray[np.float64]:
    """Return the time each request waited, by cause (paper/README §12) [s]; (request, cause)."""
    slots, capacity = request[col.SLOTS_BEFORE] * 1e-12, request[col.CAPACITY_BEFORE] * 1e-12
    admitted, began, ready = request[col.ADMITTED], request[col.BEGAN], request[col.READY]
    h2d = np.where(request[col.H2D_BEGAN] >= 0, request[col.H2D_BEGAN] - admitted, 0) * 1e-12
    stretched = request[col.HANDED] - request[col.CHUNK_BEGAN] - request[col.CHUNK_ALONE]
    by_cause = {
        "prefill": _between(admitted, request[col.ARRIVAL]) - slots - capacity + _between(began, ready),
        "prefill_slots": slots,
        "prefill_capacity": capacity,
        "h2d": h2d,
        "decode_capacity": _between(request[col.RESERVED], request[col.FIRST_STEP_END]),
        "handoff": _between(request[col.CHUNK_BEGAN], request[col.CHUNK_QUEUED]) + stretched * 1e-12,
        "decode": _between(request[col.JOINED], request[col.HANDED]),
    }
    table = np.stack([by_cause[cause] for cause in CAUSES], axis=1)
    table[request[col.REJECTED] == 1] = np.nan
    # Differences of times that are exact in [ps] may leave a hair below 0 in [s].
    return np.asarray(np.maximum(table, 0.0))


CAUSES_OF = {"paper": CAUSES, "engine": engine.CAUSES, "vllm": vllm.CAUSES}
ASSUMPTIONS_OF = {"paper": ASSUMPTIONS, "engine": engine.ASSUMPTIONS, "vllm": vllm.ASSUMPTIONS}
DELAYS_OF = {"paper": _delays, "engine": engine.delays, "vllm": vllm.delays}
"""What runs of each core tell otherwise."""


def _windows(state: State, request: Ints, end: int) -> Variables:
    window = int(state.run[col.WINDOW])
    count = end // window + 1
    served = request[col.REJECTED] == 0
    arrived, completed = (
        np.bincount(request[column][served] // window, minlength=count)[:count]
        for column in (col.ARRIVAL, col.FINISHED)
    )
    return {
        "outstanding": (("window",), np.cumsum(arrived - completed)),
        "completed_requests": (("window",), completed),
        "delivered_tokens": (("window",), state.windows[:count].copy()),
    }


def _workers(run: Finished) -> Variables:
    state, end = run.state, run.end
    prefill, decode, n_prefill = state.prefill, state.decode, len(state.prefill)
    busy, stepping = prefill[:, col.BUSY_TIME], decode[:, col.BUSY_TIME]
    if run.is_engine:
        busy, stepping = engine.busy_times(state, end)
    if run.config.is_colocated:
        decode, busy, stepping = decode[:0], busy + stepping, stepping[:0]
    n = n_prefill + len(decode)
    names = ("evictions", "expirations", "bytes_in", "bytes_out")
    tables = {name: np.zeros((n, len(TIERS)), dtype=np.int64) for name in names}
    for tier in range(2):
        tables["evictions"][:n_prefill, tier] = prefill[:, col.EVICTED + tier]
        tables["expirations"][:n_prefill, tier] = prefill[:, col.EXPIRED + tier]
    moved = prefill[:, [col.RETRIEVED_PAGES, col.WRITTEN_PAGES, col.SENT_PAGES]].T * state.run[col.PAGE_BYTES]
    retrieved, written, sent = moved
    tables["bytes_in"][:n_prefill, 0], tables["bytes_out"][:n_prefill, 0] = retrieved, written + sent
    tables["bytes_in"][:n_prefill, 1], tables["bytes_out"][:n_prefill, 1] = written, retrieved
    tables["bytes_in"][n_prefill:, 0] = decode[:, col.RECEIVED_PAGES] * state.run[col.PAGE_BYTES]
    if run.is_engine:
        read, stored = prefill[:, [eng.STORE_READ_PAGES, eng.STORE_WRITTEN_PAGES]].T * state.run[col.PAGE_BYTES]
        tables["bytes_out"][:n_prefill, 1] += stored
        tables["bytes_in"][:n_prefill, 1] += read
        tables["bytes_in"][:n_prefill, 2], tables["bytes_out"][:n_prefill, 2] = stored, read
    found: Variables = {name: (("worker", "tier"), table) for name, table in tables.items()}
    found["occupancy"] = (("worker", "tier"), _occupancy(state)[:n])
    found["utilization"] = (("worker",), np.concatenate((busy, stepping)) / end if end else np.zeros(n))
    return found


def _occupancy(state: State) -> NDArray[np.float64]:
    """Return the mean of the tokens held in each tier [token]; (worker, tier)."""
    n_prefill, n_decode = len(state.prefill), len(state.decode)
    pools = state.real[col.N_REAL :].reshape(-1, 2)
    span = int(state.run[col.OCCUPANCY_END]) * 1e-12
    # The level at the end, less what came later weighted by when it came.
    mean = state.run[col.PAGE] * (pools[:, 0] * span - pools[:, 1]) / span if span else np.zeros(len(pools))
    occupancy = np.zeros((n_prefill + n_decode, len(TIERS)))
    occupancy[:n_prefill, :2] = mean[: 2 * n_prefill].reshape(-1, 2)
    occupancy[n_prefill:, 0] = mean[2 * n_prefill : 2 * n_prefill + n_decode]
    # Sums of products leave a hair below 0 for a pool that held nothing.
    return np.asarray(np.maximum(occupancy, 0.0))


def _seconds(times: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return times [ps] as [s], NaN for what never happened."""
    return np.where(times >= 0, times * 1e-12, np.nan)


def _between(later: NDArray[np.int64], earlier: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the time from `earlier` to `later` [s], NaN where `later` never happened."""
    return np.where(later >= 0, (later - earlier) * 1e-12, np.nan)
