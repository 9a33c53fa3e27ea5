"""From the state that the paper's core begins with to that of the engine's: wider rows, and the tables of its trees."""

from __future__ import annotations

from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

from kvsweep.catalog import load
from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.engine.resources import n_resources
from kvsweep.cluster.inputs.config import ClusterConfig
from kvsweep.cluster.inputs.service_profile import PathModel, Profile, path_coefficients
from kvsweep.cluster.policies import prefetch, write
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.state import Ints, State, winner_tree
from kvsweep.errors import InputError

PICO = 1e12
SCHEDULES = ("fcfs", "lpm")
FEW_NODES = 4096
FEW_CHUNKS = 4096


def extend(state: State, config: ClusterConfig, profile: Profile) -> State:
    """Return `state` as the engine's core takes it; raises InputError for what it lacks."""
    n_prefill, n_decode = config.n_prefill, config.n_decode
    pages = state.prefill[:, [col.POOL, col.HOST_POOL]].sum()
    slack = 10 * int(state.prefill[:, col.SLOTS].max()) + 1024
    n_nodes = min(int(pages), 2 * len(state.chain) + FEW_NODES) + slack
    run = np.zeros(eng.N_RUN, dtype=np.int64)
    run[: col.N_RUN] = state.run
    request = state.request
    trees = np.full((2 * n_prefill + 1, eng.N_TREE), -1, dtype=np.int64)
    trees[:, [eng.WALKS, eng.SIZE]] = 0
    trees[:, eng.CAPACITY] = config.gateway.tree_tokens // config.page_size
    first = int(request[0, col.ARRIVAL])  # of the trace, which nothing precedes
    count = n_resources(n_prefill, n_decode)
    wide = state._replace(
        run=run,
        real=_reals(state, config),
        chain=_with_answers(state, request, config) if config.is_colocated else state.chain,
        prefill=_prefill_rows(state, config),
        decode=_decode_rows(state, config),
        chunk=np.zeros((FEW_CHUNKS + 8 * slack, eng.N_CHUNK), dtype=np.int64),
        node=np.zeros((n_nodes, eng.N_NODE), dtype=np.int64),
        bucket=np.full(1 << (n_nodes - 1).bit_length(), -1, dtype=np.int64),
        tree=trees,
        pair=_pairs(n_prefill, n_decode),
        due=winner_tree(count, first),
    )
    _set_scalars(wide, config, profile)
    run[col.N_RESOURCES] = count
    run[col.LEAVES] = len(wide.due) // 3
    run[col.GROWTH] = eng.N_DECODE + _most_running(state)
    run[col.INBOUND] = run[col.GROWTH] + config.page_size
    run[col.TIMES] = run[col.INBOUND] + n_prefill
    slots = int(state.prefill[:, col.SLOTS].max()) + 1
    run[eng.N_SEGMENTS] = int(state.chain[:, col.SEGMENT].max(initial=-1)) + 1
    run[eng.RATIOS] = len(state.real)
    run[eng.STEP_LIST] = eng.N_PREFILL
    run[eng.DONE_LIST] = eng.N_PREFILL + slots
    run[eng.SOURCES] = eng.N_PREFILL + 2 * slots
    return wide


def _reals(state: State, config: ClusterConfig) -> NDArray[np.float64]:
    """Return the real numbers, with the ratio of each colocated worker, its start, its least, what a step takes off."""
    if not config.is_colocated:
        return state.real
    start = min(1.0, 0.7 * config.engine.conservativeness)
    least = 0.14 * start
    return np.concatenate((state.real, np.tile([start, start, least, (start - least) / 600], config.n_prefill)))


def _with_answers(state: State, request: Ints, config: ClusterConfig) -> Ints:
    """Return the chains, each with a segment of its own for the full pages that its answer adds."""
    stored = request[:, col.PROMPT] + request[:, col.OUTPUT] - 1
    pages = stored // config.page_size - request[:, col.FULL]
    begins, ends = request[:, col.CHAIN].copy(), request[:, col.CHAIN_END].copy()
    own = np.flatnonzero(pages > 0)
    shift = np.cumsum(pages > 0)
    at = ends[own]
    first = int(state.chain[:, col.SEGMENT].max(initial=-1)) + 1
    rows = np.zeros((len(own), col.N_PLACE), dtype=np.int64)
    rows[:, col.SEGMENT], rows[:, col.SEGMENT_PAGES] = first + np.arange(len(own)), pages[own]
    request[:, col.CHAIN] = begins + shift - (pages > 0)
    request[:, col.CHAIN_END] = ends + shift
    return np.insert(state.chain, at, rows, axis=0)


def _most_running(state: State) -> int:
    return int(state.decode[:, col.MAX_RUNNING].max())


def _prefill_rows(state: State, config: ClusterConfig) -> Ints:
    slots = int(state.prefill[:, col.SLOTS].max()) + 1
    rows = np.zeros((config.n_prefill, eng.N_PREFILL + 2 * slots + config.n_decode), dtype=np.int64)
    rows[:, : col.N_PREFILL] = state.prefill[:, : col.N_PREFILL]
    rows[:, eng.READING] = -1
    rows[:, eng.BOOTING : eng.N_PREFILL] = -1
    return rows


def _decode_rows(state: State, config: ClusterConfig) -> Ints:
    shift = eng.N_DECODE - col.N_DECODE
    rows = np.zeros((config.n_decode, state.decode.shape[1] + shift), dtype=np.int64)
    rows[:, : col.N_DECODE] = state.decode[:, : col.N_DECODE]
    rows[:, eng.N_DECODE :] = state.decode[:, col.N_DECODE :]
    rows[:, eng.TRANSFER : eng.N_DECODE] = -1
    most = rows[:, col.MAX_RUNNING]
    rows[:, eng.ROWS] = np.where(most <= 32, 3 * most, most)
    return rows


def _pairs(n_prefill: int, n_decode: int) -> Ints:
    pairs = np.zeros((n_prefill * n_decode, eng.N_PAIR), dtype=np.int64)
    pairs[:, [eng.QUEUE, eng.QUEUE_TAIL, eng.ACTIVE_CHUNK]] = -1
    return pairs


def _set_scalars(state: State, config: ClusterConfig, profile: Profile) -> None:
    rules, run = config.engine, state.run
    values = {
        eng.COLOCATED: int(config.is_colocated),
        eng.OVERLAP: int(rules.overlap),
        eng.SCHEDULE: SCHEDULES.index(rules.schedule),
        eng.MAX_INPUT: rules.max_prefill_tokens,
        eng.RESERVE: rules.reserved_decode_tokens,
        eng.JOIN: int(rules.router_join),
        eng.PREBUILT: max(1, round(rules.prebuilt_seconds * PICO)),
        eng.LOAD_LEAST: rules.load_back_threshold_tokens,
        eng.LAYERS: _layers(config, profile),
        eng.TAKES_EVICTED: int(write.POLICIES[config.write.policy].TAKES_EVICTED),
        eng.FREE_NODE: -1,
        eng.FREE_CHUNK: -1,
        eng.STARTS: -1,
        col.NOW: -1,
    }
    for column, value in values.items():
        run[column] = value
    if config.l3 is not None:
        _set_shared_tier(state, config, profile)


def _set_shared_tier(state: State, config: ClusterConfig, profile: Profile) -> None:
    shared, run = config.l3, state.run
    assert shared is not None
    paths = []
    for name in ("l3_read", "l3_write"):
        path: PathModel | None = getattr(profile, name)
        if path is None:
            raise InputError(f"profile: {name}: missing; the cluster has l3; allowed: boundary, setup_seconds, …")
        paths.append(path)
    run[eng.STORE] = 1
    state.tree[-1, eng.CAPACITY] = run[eng.STORE_POOL] = shared.pool_tokens // config.page_size
    run[eng.STOP_POLICY] = prefetch.POLICIES.index(shared.stop_policy)
    run[eng.PREFETCH_LEAST] = shared.prefetch_threshold_tokens
    run[eng.TIMEOUT] = round(shared.timeout_base_seconds * PICO)
    run[eng.TIMEOUT_PER_KI] = round(shared.timeout_per_1024_tokens_seconds * PICO)
    run[eng.BATCH_PAGES] = shared.batch_pages
    run[eng.QUERY] = max(1, round(profile.l3_query_seconds * PICO))
    run[eng.READ_SETUP], run[eng.READ_PER_BYTE] = path_coefficients(paths[0])
    run[eng.WRITE_SETUP], run[eng.WRITE_PER_BYTE] = path_coefficients(paths[1])
    for column, path in ((eng.READ_LOW, paths[0]), (eng.STORE_LOW, paths[1])):
        span = path.payload_bytes
        run[column : column + 2] = (ceil(span.low), floor(span.high)) if span else (1, 0)


def _layers(config: ClusterConfig, profile: Profile) -> int:
    """Return the layers by which loading and computing overlap."""
    if profile.n_layers is not None:
        return profile.n_layers
    models = load().models
    shape = models[profile.model].shape if profile.model in models else None
    if shape is not None:
        return shape.layers
    if any(group.host_tokens for group in config.prefill_workers()):
        raise InputError(
            f"profile {profile.name!r}: n_layers: missing, and model {profile.model!r} is not in the catalog; "
            "loading from the host overlaps by layers; allowed: 1 to 10000 layers"
        )
    return 1
