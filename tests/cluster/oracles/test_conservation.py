"""Nothing comes from nowhere: tokens, pages and bytes of fuzzed cluster runs add up, by request and by worker."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.inputs.config import ClusterConfig, Workload
from kvsweep.cluster.inputs.service_profile import Profile, coefficients
from kvsweep.cluster.outcome.dataset import Finished, dataset
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.simulation.run import finish
from kvsweep.trace.convert import scale_time
from kvsweep.trace.model import Trace
from tests.cluster.engine.core import config_of, profile_of
from tests.cluster.engine.samples import random_case as random_engine_case
from tests.cluster.paper.test_twin import policy_files, random_case

__all__ = ["policy_files"]  # a fixture

SEEDS = range(160)


def engine_case(seed: int) -> tuple[Trace, ClusterConfig, Profile]:
    """Return a cluster of prefill and decode workers whose steps take all candidates that the chunk has room for.

    Else a candidate may be left out after its pages were loaded, which stay (engine's README §4, 5.8).
    """
    for attempt in range(1000):
        trace, rules, profile = random_engine_case(1000 * seed + attempt)
        if rules.groups[0].role == "prefill":
            break
    for group in rules.groups:
        group.max_prefill_tokens = 10**9
    return trace, config_of(rules), profile_of(rules, profile)


def fuzzed(seed: int, fidelity: str, files: list[Path], slower: float = 1.0) -> tuple[Finished, xr.Dataset, int]:
    """Return a run, its Dataset and the bytes of a page."""
    trace, config, profile = random_case(seed) if fidelity == "paper" else engine_case(seed)
    done = finish(scale_time(trace, slower), config, profile, policy_files=files)
    return done, dataset(done), coefficients(profile, config.page_size).page_bytes


def by_worker(ds: xr.Dataset, side: str, values: np.ndarray, config: ClusterConfig) -> np.ndarray:
    """Return the sum of `values` of the requests each worker served; (worker)."""
    served = ds["rejected"].values == 0
    n = config.n_prefill + config.n_decode
    return np.bincount(ds[side].values[served], weights=values[served], minlength=n).astype(np.int64)


def test_tokens_and_bytes_add_up(policy_files: list[Path], fidelity: str) -> None:
    fetched = third = 0
    for seed in SEEDS:
        done, ds, page_bytes = fuzzed(seed, fidelity, policy_files)
        config, page = done.config, done.config.page_size
        served = ds["rejected"].values == 0
        hits = ds["hit_tokens"].values
        computed = ds["uncached_tokens"].values
        assert (hits.sum(axis=1) + computed == np.where(served, ds["prompt_tokens"].values, 0)).all(), seed
        assert (computed[served] > 0).all() and (hits % page == 0).all()
        into, out = ds["bytes_in"].values, ds["bytes_out"].values
        # What was hit on the host, or came there for a request, came over H2D, and nothing else.
        h2d = by_worker(ds, "prefill_worker", hits[:, 1:].sum(axis=1), config) // page * page_bytes
        assert (out[:, 1] - into[:, 2]).tolist() == h2d.tolist(), seed
        assert into[: config.n_prefill, 0].tolist() == h2d[: config.n_prefill].tolist(), seed
        # Every prompt goes to its decode worker whole, in whole pages.
        prompts = -(-ds["prompt_tokens"].values // page) * page_bytes
        received = by_worker(ds, "decode_worker", prompts, config)
        assert into[config.n_prefill :, 0].tolist() == received[config.n_prefill :].tolist(), seed
        sent = by_worker(ds, "prefill_worker", prompts, config)
        # What else left the device went to the host.
        assert (out[:, 0] - into[:, 1] + out[:, 2]).tolist() == sent.tolist(), seed
        assert not out[config.n_prefill :].any()
        # Of L3 no more is hit than was read, and what was read had been written, by any worker, once or less often.
        stored = by_worker(ds, "prefill_worker", hits[:, 2], config) // page * page_bytes
        assert (stored <= out[:, 2]).all() and (config.l3 or not (into[:, 2].any() or out[:, 2].any()))
        fetched, third = fetched + int(h2d.sum()), third + int(stored.sum())
    assert fetched > 0 and (third > 0) == (fidelity == "engine")


@pytest.mark.parametrize("fidelity", ["paper"])  # the engine's core keeps no chunk that arrived
def test_a_prompt_is_handed_off_in_chunks_of_all_its_pages(policy_files: list[Path], fidelity: str) -> None:
    several = 0
    for seed in SEEDS:
        done, ds, _ = fuzzed(seed, fidelity, policy_files)
        chunks = done.state.chunk[: done.state.run[col.N_CHUNKS]]
        pages = np.bincount(chunks[:, col.CHUNK_REQUEST], weights=chunks[:, col.CHUNK_PAGES], minlength=len(done.trace))
        expected = np.where(ds["rejected"].values == 0, -(-ds["prompt_tokens"].values // done.config.page_size), 0)
        assert pages.astype(int).tolist() == expected.tolist(), seed
        several += len(chunks) > (expected > 0).sum()
    assert several > 10


@pytest.mark.parametrize("fidelity", ["paper"])  # the engine's pages are in nodes of a tree: below
@pytest.mark.parametrize("slower", [1.0, 1e4])
def test_pages_in_are_resident_evicted_or_expired(slower: float, policy_files: list[Path], fidelity: str) -> None:
    """On the host always; on the device where requests do not meet, of which two may compute a page and keep one."""
    exact = 0
    for seed in SEEDS:
        done, ds, page_bytes = fuzzed(seed, fidelity, policy_files, slower)
        own, n_prefill = done.state.prefill, done.config.n_prefill
        gone = (ds["evictions"] + ds["expirations"]).values[:n_prefill]
        written = ds["bytes_in"].values[:n_prefill, 1] // page_bytes
        assert written.tolist() == (own[:, col.HOST_IDLE] + gone[:, 1]).tolist(), seed
        request = done.state.request
        new = request[:, col.FULL] - request[:, col.MATCHED] - request[:, col.IN_PLACE]
        came = by_worker(ds, "prefill_worker", new, done.config)[:n_prefill]
        left = own[:, col.IDLE] + gone[:, 0]
        # Requests of one instant stay together however slow the others come.
        apart = slower > 1.0 and len(np.unique(done.trace.arrival)) == len(done.trace)
        assert (left <= came).all() and (not apart or (left == came).all()), seed
        assert (own[:, col.FREE] + own[:, col.IDLE] == own[:, col.POOL]).all()
        exact += apart and gone.any()
    assert exact >= 5 or slower == 1.0


@pytest.mark.parametrize("apart", [False, True])
def test_pages_in_are_in_the_engine_s_trees_evicted_or_expired(apart: bool, policy_files: list[Path]) -> None:
    """On the device where requests do not meet and each has a token after its full pages: else pages are twins."""
    compared = full = 0
    for seed in SEEDS:
        trace, config, profile = engine_case(seed)
        if config.l3 is not None:  # what comes from L3 is on the host as well
            continue
        if apart:
            beyond = trace.input_tokens + (trace.input_tokens % config.page_size == 0)
            trace = dataclasses.replace(trace, arrival=100.0 * np.arange(len(trace)), input_tokens=beyond)
            config = dataclasses.replace(config, workload=Workload())
        done = finish(trace, config, profile, policy_files=policy_files)
        ds, page_bytes = dataset(done), coefficients(profile, config.page_size).page_bytes
        own, n_prefill, request = done.state.prefill, done.config.n_prefill, done.state.request
        node = done.state.node[: done.state.run[eng.N_NODES]]
        node = node[(node[:, eng.TREE] >= 0) & (node[:, eng.TREE] < n_prefill)]
        resident = np.zeros((n_prefill, 2), dtype=np.int64)
        for tier, column in enumerate((eng.DEVICE, eng.HOST)):
            np.add.at(resident[:, tier], node[:, eng.TREE], node[:, eng.LENGTH] * (node[:, column] == 1))
        left = resident + (ds["evictions"] + ds["expirations"]).values[:n_prefill, :2]
        written = ds["bytes_in"].values[:n_prefill, 1] // page_bytes
        assert written.tolist() == left[:, 1].tolist(), seed
        came = by_worker(ds, "prefill_worker", request[:, col.FULL] - request[:, col.MATCHED], done.config)[:n_prefill]
        assert (left[:, 0] <= came).all() and (not apart or (left[:, 0] == came).all()), seed
        assert (own[:, col.FREE] + resident[:, 0] == own[:, col.POOL]).all()
        compared, full = compared + 1, full + int(left[:, 0].sum() > resident[:, 0].sum())
    assert compared > 30 and full > 10
