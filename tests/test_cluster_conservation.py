"""Nothing comes from nowhere: tokens, pages and bytes of fuzzed cluster runs add up, by request and by worker."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from test_cluster_twin import policy_files, random_case

from kvsweep.cluster import columns as col
from kvsweep.cluster.config import ClusterConfig
from kvsweep.cluster.outcome import Finished, dataset
from kvsweep.cluster.profile import coefficients
from kvsweep.cluster.simulation import finish
from kvsweep.trace.convert import scale_time

__all__ = ["policy_files"]  # a fixture

SEEDS = range(80)


def fuzzed(seed: int, fidelity: str, files: list[Path], slower: float = 1.0) -> tuple[Finished, xr.Dataset, int]:
    """Return a run, its Dataset and the bytes of a page."""
    trace, config, profile = random_case(seed)
    config = dataclasses.replace(config, fidelity=fidelity)
    done = finish(scale_time(trace, slower), config, profile, policy_files=files)
    return done, dataset(done), coefficients(profile, config.page_size).page_bytes


def by_worker(ds: xr.Dataset, side: str, values: np.ndarray, config: ClusterConfig) -> np.ndarray:
    """Return the sum of `values` of the requests each worker served; (worker)."""
    served = ds["rejected"].values == 0
    n = config.n_prefill + config.n_decode
    return np.bincount(ds[side].values[served], weights=values[served], minlength=n).astype(np.int64)


def test_tokens_and_bytes_add_up(policy_files: list[Path], fidelity: str) -> None:
    fetched = 0
    for seed in SEEDS:
        done, ds, page_bytes = fuzzed(seed, fidelity, policy_files)
        config, page = done.config, done.config.page_size
        served = ds["rejected"].values == 0
        hits = ds["hit_tokens"].values
        computed = ds["uncached_tokens"].values
        assert (hits.sum(axis=1) + computed == np.where(served, ds["prompt_tokens"].values, 0)).all(), seed
        assert (computed[served] > 0).all() and (hits % page == 0).all() and not hits[:, 2].any()
        into, out = ds["bytes_in"].values, ds["bytes_out"].values
        # What was hit on the host came over H2D, and nothing else.
        h2d = by_worker(ds, "prefill_worker", hits[:, 1], config) // page * page_bytes
        assert out[:, 1].tolist() == h2d.tolist(), seed
        assert into[: config.n_prefill, 0].tolist() == h2d[: config.n_prefill].tolist(), seed
        # Every prompt goes to its decode worker whole, in whole pages.
        prompts = -(-ds["prompt_tokens"].values // page) * page_bytes
        received = by_worker(ds, "decode_worker", prompts, config)
        assert into[config.n_prefill :, 0].tolist() == received[config.n_prefill :].tolist(), seed
        sent = by_worker(ds, "prefill_worker", prompts, config)
        # What else left the device went to the host.
        assert (out[:, 0] - into[:, 1]).tolist() == sent.tolist(), seed
        assert not out[config.n_prefill :].any() and not into[:, 2].any() and not out[:, 2].any()
        fetched += int(h2d.sum())
    assert fetched > 0


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
