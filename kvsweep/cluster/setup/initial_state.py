"""From a trace, a cluster file and a profile to the state a run begins with; all that cannot be run is refused here."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.inputs.config import SHARINGS, ClusterConfig
from kvsweep.cluster.inputs.service_profile import Coefficients, Profile, coefficients, decode_coefficients
from kvsweep.cluster.policies import eviction, gateway, retention, write
from kvsweep.cluster.policies.retention.hazard import best_ttl, gaps
from kvsweep.cluster.setup.closed_loop import PICO, Turns, turns
from kvsweep.cluster.setup.engine import extend
from kvsweep.cluster.setup.overflow import check_bounds, check_memory
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.segments import Chains, chains
from kvsweep.cluster.shared.state import Ints, State, winner_tree
from kvsweep.errors import InputError
from kvsweep.policies.context import SIDES
from kvsweep.policies.registry import Policy
from kvsweep.trace.model import Trace, offsets_of

LONGEST = 4_000_000
"""Longest trace [s]: a third of what the clock can hold, so that the run may end later."""
WINDOWS = 1 << 14


def initial_state(trace: Trace, config: ClusterConfig, profile: Profile, policy: Policy) -> State:
    """Return the state before the first arrival; raises InputError for what cannot be run."""
    if not len(trace):
        raise InputError("the trace has no requests; allowed: at least one")
    found = paged(trace, config.page_size)
    times = coefficients(profile, config.page_size)
    _check(trace, config, profile)
    check_memory(config)
    by_cost = config.eviction.policy not in ("lru", "fifo", "lfu", "belady", "tlru")
    check_bounds(trace, config, profile, whole=by_cost or retrieval_code(policy) == col.RETRIEVE_ASK)
    n_prefill, n_decode, n = config.n_prefill, config.n_decode, len(trace)
    is_engine = config.fidelity == "engine"
    request = _requests(trace, config.page_size, eng.N_REQUEST if is_engine else col.N_REQUEST)
    later = turns(trace, config, LONGEST)
    let_wait(request, later)
    n_resources = 2 * n_decode + 3 * n_prefill + 1
    real = np.zeros(col.N_REAL + 2 * (2 * n_prefill + n_decode))
    real[: col.N_REAL] = _real_settings(config, profile, policy)
    decode = _decode_workers(config, profile)
    run = _scalars(trace, config, times, policy, found)
    n_entries = 1 if is_engine else _most_entries(found, n_prefill)
    state = State(
        run=run,
        real=real,
        request=request,
        prefill=_prefill_workers(config),
        decode=decode,
        lists=lists(trace, config, found, later, run),
        chain=_places(found),
        entry_of=_slots(n_entries),
        entry=np.zeros((n_entries, col.N_ENTRY), dtype=np.int64),
        chunk=np.zeros((_most_chunks(trace, config), col.N_CHUNK), dtype=np.int64),
        windows=np.zeros(WINDOWS, dtype=np.int64),
        node=_none((1, 1)),
        bucket=_none((1,)),
        tree=_none((1, 1)),
        pair=_none((1, 1)),
        due=winner_tree(n_resources, int(request[0, col.ARRIVAL])),
    )
    request[:, col.CHAIN], request[:, col.CHAIN_END] = found.offsets[:-1], found.offsets[1:]
    request[:, col.DRAW : col.DRAW + 4] = draws(config, n)
    for side, table in enumerate((state.prefill, state.decode)):
        state.run[col.LEAST_POOL + side] = table[:, col.POOL].min()
        state.run[col.MOST_POOL + side] = table[:, col.POOL].max()
    state.run[col.LEFT] = n
    state.run[col.N_RESOURCES] = n_resources
    state.run[col.LEAVES] = len(state.due) // 3
    state.run[col.GROWTH] = col.N_DECODE + _most_running(config)
    state.run[col.INBOUND] = state.run[col.GROWTH] + config.page_size
    state.run[col.TIMES] = state.run[col.INBOUND] + n_prefill
    return extend(state, config, profile) if is_engine else state


def paged(trace: Trace, page_size: int) -> Chains:
    """Return the chains of `trace`; raises InputError for pages that its blocks cannot be brought to."""
    try:
        return chains(trace, page_size)
    except InputError as error:
        raise InputError(f"page_size: {error}") from error


def draws(config: ClusterConfig, n: int) -> Ints:
    """Return the random numbers of the gateway for `n` requests; (request, draw)."""
    return np.random.default_rng(config.gateway.seed).integers(0, 2**31, (n, 4))


def _none(shape: tuple[int, ...]) -> Ints:
    return np.full(shape, -1, dtype=np.int64)


def _places(found: Chains) -> Ints:
    places = np.zeros((len(found.chain), col.N_PLACE), dtype=np.int64)
    places[:, col.SEGMENT] = found.chain
    places[:, col.SEGMENT_PAGES] = found.length[found.chain]
    return places


def let_wait(request: Ints, later: Turns) -> None:
    """Have requests that follow another one wait for it to be over."""
    request[later.request, col.ARRIVAL] = -1
    request[later.request, col.THINK] = later.think
    request[later.previous, col.FOLLOWER] = later.request


def lists(trace: Trace, config: ClusterConfig, found: Chains, later: Turns, run: Ints) -> Ints:
    """Return the lists of the state, and note in the scalars `run` where each begins."""
    n_sessions = int(trace.session.max(initial=-1)) + 1
    run[col.SESSIONS_DECODE] = n_sessions
    run[col.TOUCHED], run[col.TOUCHED_DECODE] = 2 * n_sessions, 2 * n_sessions + config.n_prefill
    run[col.PENDING] = run[col.TOUCHED_DECODE] + config.n_decode
    parts = [_none((int(run[col.PENDING]),))]
    if len(later.request):
        # In order of arrival they are a heap already; it never holds more, as each that leaves lets one follow at most.
        pending = np.setdiff1d(np.arange(len(trace)), later.request)
        run[col.CLOSED], run[col.N_PENDING] = 1, len(pending)
        run[col.OCCUPANCY_END] = col.NEVER
        parts.append(pending)
    run[col.ORACLE] = sum(len(part) for part in parts)
    if config.eviction.policy == "belady":
        parts.append(_oracle(found, int(run[col.ORACLE])))
    return np.concatenate(parts)


def _slots(n_entries: int) -> NDArray[np.int32]:
    """Return the empty hash table for `n_entries`; half of it or more stays free, so that a search is short."""
    return np.full((1 << (2 * n_entries - 1).bit_length(), col.N_SLOT), -1, dtype=np.int32)


def _oracle(found: Chains, begin: int) -> Ints:
    """Return the first use of each segment, as a place in what follows: the requests that use it in order, NEVER.

    Places are counted from `begin` before this list.
    """
    counts = np.bincount(found.chain, minlength=len(found.length))
    first = len(counts) + offsets_of(counts + 1)[:-1]
    oracle = np.full(2 * len(counts) + len(found.chain), col.NEVER, dtype=np.int64)
    oracle[: len(counts)] = begin + first
    users = np.repeat(np.arange(len(found.offsets) - 1), np.diff(found.offsets))
    by_segment = np.argsort(found.chain, kind="stable")
    oracle[np.repeat(first - offsets_of(counts)[:-1], counts) + np.arange(len(users))] = users[by_segment]
    return oracle


def _requests(trace: Trace, page: int, n_columns: int) -> Ints:
    request = _none((len(trace), n_columns))
    request[:, col.ARRIVAL] = np.round(trace.arrival * PICO).astype(np.int64)
    request[:, col.PROMPT] = trace.input_tokens
    request[:, col.OUTPUT] = trace.output_tokens
    request[:, col.SESSION] = trace.session
    request[:, col.FULL] = trace.input_tokens // page
    request[:, col.PAGES] = -(-trace.input_tokens // page)
    return request


def _time_to_live(trace: Trace, config: ClusterConfig, found: Chains) -> float:
    """Return after how much idle time all pages are dropped [s], infinity for never, or not all after the same."""
    kept = config.retention
    if kept.policy == "hazard_ttl":
        known = gaps(trace.arrival, found, math.ceil(kept.fit_ratio * len(trace)))
        return best_ttl(known, kept.saved_seconds, kept.cost_per_second)
    return kept.seconds if kept.policy == "idle_ttl" else math.inf


def _retention_code(name: str, ttl: float) -> int:
    return int(math.isfinite(ttl)) if name in retention.POLICIES else col.FROM_FILE


def _growth(trace: Trace, config: ClusterConfig) -> int:
    """Return by how much the next prompt of a session is longer than what the worker saw of it before [token].

    A worker that decodes saw the answer, too.
    """
    if config.eviction.policy != "tlru" or config.eviction.growth_tokens is not None:
        return config.eviction.growth_tokens or 0
    order = np.argsort(trace.session, kind="stable")
    session, prompt = trace.session[order], trace.input_tokens[order]
    seen = prompt + trace.output_tokens[order] if config.is_colocated else prompt
    follows = (session[1:] == session[:-1]) & (session[1:] >= 0)
    n = int(follows.sum())
    return max(0, int((prompt[1:] - seen[:-1])[follows].sum()) // n) if n else 0


def _scalars(trace: Trace, config: ClusterConfig, times: Coefficients, policy: Policy, found: Chains) -> Ints:
    ttl = _time_to_live(trace, config, found)
    last = round(float(trace.arrival[-1]) * PICO)
    scalars = np.zeros(col.N_RUN, dtype=np.int64)
    values = gateway_scalars(config, last) | {
        col.EVICTION: _code(eviction.POLICIES, config.eviction.policy),
        col.BEYOND: _growth(trace, config) - config.eviction.xi_tokens,
        col.RETENTION: _retention_code(config.retention.policy, ttl),
        col.TTL: max(1, _picoseconds(ttl)) if math.isfinite(ttl) else 0,
        col.CHECK: _picoseconds(config.retention.check_seconds),
        col.THRESHOLD: write.POLICIES[config.write.policy].uses_needed(config.write.threshold),
        col.SHARING: SHARINGS.index(config.handoff_sharing),
        col.RETRIEVAL: retrieval_code(policy),
        col.FRONT: int(policy.recomputes == "front"),
        col.RATE_WINDOW: _picoseconds(config.retrieval.rate_window_seconds),
        col.PAGE_BYTES: times.page_bytes,
    }
    for column, value in values.items():
        scalars[column] = value
    scalars[col.STEP_FIXED : col.STEP_LEAST + 1] = times.prefill
    scalars[col.PATHS : col.DOMAIN] = times.paths.ravel()
    scalars[col.DOMAIN :] = times.domain.ravel()
    return scalars


def gateway_scalars(config: ClusterConfig, last: int) -> dict[int, int]:
    """Return, by column, the scalars that are the same whatever the workers; `last` is the last arrival [ps]."""
    return {
        col.PAGE: config.page_size,
        col.WINDOW: _picoseconds(config.window_seconds),
        col.GATEWAY: _code(gateway.POLICIES, config.gateway.policy),
        col.BALANCE_REQUESTS: config.gateway.balance_requests,
        col.OCCUPANCY_END: last if last > 0 else col.NEVER,
        col.SUSPECT: -1,
    }


def _code(built_in: tuple[str, ...], name: str) -> int:
    return built_in.index(name) if name in built_in else col.FROM_FILE


def retrieval_code(policy: Policy) -> int:
    fixed = {"default_policy": col.RETRIEVE_ALL, "all_compute": col.RETRIEVE_NONE}
    return fixed.get(policy.name, col.RETRIEVE_ASK) if policy.origin.startswith("built in") else col.RETRIEVE_ASK


def _real_settings(
    config: ClusterConfig, profile: Profile, policy: Policy
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    real = np.zeros(col.N_REAL)
    gateway_reals(real, config)
    if retrieval_code(policy) == col.RETRIEVE_ASK:
        if config.slo.ttft_seconds is None:
            raise InputError(
                f"slo: ttft_seconds: missing; retrieval policy {policy.name} decides by it; allowed: a time"
            )
        real[col.TARGET] = config.slo.ttft_seconds
    real[col.TOKEN_SECONDS] = profile.prefill.token_seconds
    real[col.PAIR_SECONDS] = profile.prefill.token_pair_seconds
    real[col.RECOMPUTES] = SIDES.index(policy.recomputes)
    return real


def gateway_reals(real: np.ndarray[tuple[int], np.dtype[np.float64]], config: ClusterConfig) -> None:
    """Set the real numbers of gateway policies."""
    real[col.BALANCE_RATIO] = config.gateway.balance_ratio
    real[col.MATCH_RATIO] = config.gateway.match_ratio
    real[col.LOAD_SCALE] = config.gateway.prefill_load_scale
    real[col.DEVICE_CREDIT] = config.gateway.device_credit
    real[col.HOST_CREDIT] = config.gateway.host_credit
    real[col.DISK_CREDIT] = config.gateway.disk_credit
    real[col.ACTIVE_WEIGHT] = config.gateway.active_weight


def _prefill_workers(config: ClusterConfig) -> Ints:
    slots = max(group.max_running for group in config.prefill)
    table = np.zeros((config.n_prefill, col.N_PREFILL + slots), dtype=np.int64)
    for w, group in enumerate(config.prefill_workers()):
        pool, host = group.device_tokens // config.page_size, group.host_tokens // config.page_size
        table[w, [col.POOL, col.FREE]] = pool
        table[w, [col.HOST_POOL, col.HOST_FREE]] = host
        table[w, col.CHUNK], table[w, col.SLOTS] = group.chunk_tokens, group.max_running
    table[:, [col.PARTIAL, col.SENDING]] = -1
    table[:, col.WAITING : col.NEXT_DROP] = -1
    table[:, [col.NEXT_DROP, col.HOST_NEXT_DROP]] = col.NEVER
    return table


def _decode_workers(config: ClusterConfig, profile: Profile) -> Ints:
    times = col.N_DECODE + _most_running(config) + config.page_size + config.n_prefill
    table = np.zeros((config.n_decode, times + 2 * (_most_running(config) + 1)), dtype=np.int64)
    workers = 0
    for group in config.decode:
        rows = slice(workers, workers := workers + group.count)
        table[rows, col.POOL] = group.device_tokens // config.page_size
        table[rows, col.MAX_RUNNING] = group.max_running
        found = decode_coefficients(profile, group.graph_buckets, group.max_running)
        table[rows, times : times + found.size] = found.ravel()
    table[:, col.RESERVING : col.N_DECODE] = -1
    return table


def _most_running(config: ClusterConfig) -> int:
    return max(group.max_running for group in config.decode)


def _most_entries(found: Chains, n_prefill: int) -> int:
    """Return the most entries there can be: a request makes entries at one worker, for its chain."""
    return max(1, min(len(found.chain), n_prefill * len(found.length)))


def _most_chunks(trace: Trace, config: ClusterConfig) -> int:
    """Return the most chunks of handoff there can be: all but the first and last of a request are whole budgets."""
    chunk = min(group.chunk_tokens for group in config.prefill)
    return int((-(-trace.input_tokens // chunk) + 2).sum())


def _picoseconds(seconds: float) -> int:
    return round(seconds * PICO)


def _check(trace: Trace, config: ClusterConfig, profile: Profile) -> None:
    for role, groups in (("prefill", config.prefill), ("decode", config.decode)):
        for group in groups:
            if group.tp != profile.tp:
                raise InputError(
                    f"{role} workers: tp: {group.tp}; allowed: {profile.tp}, as profile {profile.name!r} has"
                )
    check_duration(trace)


def check_duration(trace: Trace) -> None:
    """Refuse a trace that the clock cannot hold."""
    if float(trace.arrival[-1]) > LONGEST:
        raise InputError(f"the trace lasts {trace.arrival[-1]:.4g} s; allowed: at most {LONGEST} s")
